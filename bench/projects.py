"""Generate projects for the measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ARCHS = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")

_PYPROJECT = """\
[build-system]
requires = ["hatchling", "aotcuda[cu13]"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0"
dependencies = ["aotcuda"]

[tool.hatch.build.targets.wheel]
packages = ["{name}"]

[tool.hatch.build.targets.wheel.hooks.aotcuda]

[tool.aotcuda]
arch = [{archs}]

[tool.aotcuda.modules."{name}.kernels"]
source = "{name}._kernels"

[tool.aotcuda.modules."{name}.kernels".kernels]
"""

# Five kernels of the kinds that packages have: streaming, a loop, math functions, shared memory, two dimensions.
_TEMPLATES = (
    (
        "void(float32, float32[::1], float32[::1])",
        """
@cuda.jit
def {name}(a, x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + {number}
""",
    ),
    (
        "void(float64[::1], float64[::1], int32)",
        """
@cuda.jit
def {name}(x, out, terms):
    i = cuda.grid(1)
    if i < out.size:
        total = 0.0
        for term in range(terms):
            total = total * x[i] + (term + {number})
        out[i] = total
""",
    ),
    (
        "void(float32[::1], float32[::1])",
        """
@cuda.jit
def {name}(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = math.exp(-x[i] * x[i]) * math.sin(x[i] + {number}) / math.sqrt(1 + x[i] * x[i])
""",
    ),
    (
        "void(float32[::1], float32[::1])",
        """
@cuda.jit
def {name}(x, out):
    tile = cuda.shared.array(256, dtype=float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    tile[t] = x[i] if i < x.size else {number}
    cuda.syncthreads()
    step = 128
    while step > 0:
        if t < step:
            tile[t] += tile[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = tile[0]
""",
    ),
    (
        "void(float32[:, ::1], float32[:, ::1])",
        """
@cuda.jit
def {name}(x, out):
    i, j = cuda.grid(2)
    if 0 < i < x.shape[0] - 1 and 0 < j < x.shape[1] - 1:
        out[i, j] = {number} * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1] - 4 * x[i, j])
""",
    ),
)


# The same kernels in C++, in the same order; an array comes with its length, or with its two. Literals are doubles
# where Numba computes in double precision, as it does with a float32 and a Python int.
_CPP = (
    """
extern "C" __global__ void {name}(float a, const float *x, long, float *out, long size)
{{
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < size)
        out[i] = a * x[i] + {number}.0;
}}
""",
    """
extern "C" __global__ void {name}(const double *x, long, double *out, long size, int terms)
{{
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < size) {{
        double total = 0.0;
        for (int term = 0; term < terms; ++term)
            total = total * x[i] + (term + {number});
        out[i] = total;
    }}
}}
""",
    """
extern "C" __global__ void {name}(const float *x, long, float *out, long size)
{{
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < size)
        out[i] = expf(-x[i] * x[i]) * sin(x[i] + {number}.0) / sqrt(1.0 + x[i] * x[i]);
}}
""",
    """
extern "C" __global__ void {name}(const float *x, long size, float *out, long)
{{
    __shared__ float tile[256];
    int t = threadIdx.x;
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    tile[t] = i < size ? x[i] : {number}.0;
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {{
        if (t < step)
            tile[t] += tile[t + step];
        __syncthreads();
    }}
    if (t == 0)
        out[blockIdx.x] = tile[0];
}}
""",
    """
extern "C" __global__ void {name}(const float *x, long rows, long columns, float *out, long, long width)
{{
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    long j = blockIdx.y * (long)blockDim.y + threadIdx.y;
    if (0 < i && i < rows - 1 && 0 < j && j < columns - 1)
        out[i * width + j] = {number}.0 * (x[(i - 1) * columns + j] + x[(i + 1) * columns + j] + x[i * columns + j - 1]
                                           + x[i * columns + j + 1] - 4.0 * x[i * columns + j]);
}}
""",
)


def generate(folder: Path, name: str, kernels: int) -> Path:
    """Return a project in `folder/name` whose module `name.kernels` has so many kernels."""
    project = folder / name
    package = project / name
    package.mkdir(parents=True)
    table = [_PYPROJECT.format(name=name, archs=", ".join(f'"{item}"' for item in ARCHS))]
    source = ["import math\n\nfrom numba import cuda, float32\n"]
    for number in range(kernels):
        signature, template = _TEMPLATES[number % len(_TEMPLATES)]
        table.append(f'k{number} = "{signature}"\n')
        source.append(template.format(name=f"k{number}", number=number))
    (package / "_kernels.py").write_text("\n".join(source), encoding="utf-8")
    (project / "pyproject.toml").write_text("".join(table), encoding="utf-8")
    (package / "__init__.py").write_text("", encoding="utf-8")
    return project


def generate_cpp(folder: Path, kernels: int) -> Path:
    """Return a file with the kernels of `generate` in CUDA C++, with the same arithmetic in the same precision."""
    folder.mkdir(parents=True)
    texts = [_CPP[number % len(_CPP)].format(name=f"k{number}", number=number) for number in range(kernels)]
    path = folder / "kernels.cu"
    path.write_text("".join(texts), encoding="utf-8")
    return path


def generate_files(folder: Path, files: int) -> Path:
    """Return a project in `folder` whose module `files.kernels` has so many `.cu` files of five kernels."""
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "__init__.py").write_text("", encoding="utf-8")
    (folder / "csrc").mkdir()
    paths = [f"csrc/kernels{file}.cu" for file in range(files)]
    for file, path in enumerate(paths):
        texts = [template.format(name=f"k{5 * file + at}", number=5 * file + at) for at, template in enumerate(_CPP)]
        (folder / path).write_text("".join(texts), encoding="utf-8")
    listed = ", ".join(f'"{item}"' for item in ARCHS)
    table = _PYPROJECT.format(name="files", archs=listed).partition("[tool.aotcuda.modules")[0] + 'load = "first-use"\n'
    table += f'[tool.aotcuda.modules."files.kernels"]\nfrontend = "cuda-cpp"\nsource = {paths}\n'
    table += "".join(f"kernels.k{number} = {{}}\n" for number in range(5 * files))
    (folder / "pyproject.toml").write_text(table, encoding="utf-8")
    return folder
