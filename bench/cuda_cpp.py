"""Compare kernels in CUDA C++ with CuPy's RawModule and nvcc: host time of a launch, and time on the GPU.

    python bench/cuda_cpp.py build FOLDER     where aotcuda[cpp-cu13] and nvcc are installed; needs no GPU
    python bench/cuda_cpp.py time FOLDER      on a machine with a GPU and CuPy, with the same folder

`build` makes a wheel, and a cubin of the same file by nvcc. `time` compares them, and writes the result.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import gpu_time
import machine

if TYPE_CHECKING:
    from collections.abc import Callable

ARCH = "sm_90"
N = 1 << 24
_SOURCE = """
extern "C" __global__ void axpy(float a, const float *x, const float *y, float *out, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = a * x[i] + y[i];
}

extern "C" __global__ void special(const float *x, float *out, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = expf(-x[i] * x[i]) * sinf(x[i]) / sqrtf(1 + x[i] * x[i]);
}
"""
_CONFIG = """\
[build-system]
requires = ["hatchling", "aotcuda[cpp-cu13]"]
build-backend = "hatchling.build"

[project]
name = "benchcpp"
version = "1.0"

[tool.hatch.build.targets.wheel]
packages = ["benchcpp"]

[tool.hatch.build.targets.wheel.hooks.aotcuda]

[tool.aotcuda]
frontend = "cuda-cpp"
arch = ["sm_90"]

[tool.aotcuda.modules."benchcpp.kernels"]
source = "kernels.cu"
kernels.axpy = {}
kernels.special = {}

[tool.aotcuda.modules."benchcpp.lengths"]
source = "kernels.cu"
kernels.axpy = { parameters = { n = "out.size" } }
"""


def main() -> int:
    parser = machine.parser(__doc__, "cuda_cpp")
    parser.add_argument("step", choices=["build", "time"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "nvcc")
    parser.add_argument("--turns", type=int, default=25)
    arguments = parser.parse_args()
    if arguments.step == "build":
        _build(arguments.folder, arguments.nvcc)
        return 0
    here = machine.describe()
    launches, gpu = _measure(arguments.folder, arguments.turns)
    machine.table(("a launch of axpy", "µs"), list(launches.items()))
    machine.table(("on the GPU", "aotcuda, µs", "nvcc, µs"), [(name, *pair) for name, pair in gpu.items()])
    met = {
        "a launch takes no longer than RawKernel's": launches["aotcuda"] <= launches["RawKernel"],
        "so does one whose length is the array's": launches["aotcuda, n taken from out"] <= launches["RawKernel"],
    }
    met |= {f"{name}: GPU time within 2 % of nvcc's": ours <= 1.02 * theirs for name, (ours, theirs) in gpu.items()}
    return machine.report(arguments.out, here, met, launch_microseconds=launches, gpu_microseconds=gpu)


def _build(folder: Path, nvcc: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        project = Path(temporary)
        (project / "benchcpp").mkdir()
        (project / "benchcpp" / "__init__.py").write_text("")
        (project / "pyproject.toml").write_text(_CONFIG)
        (project / "kernels.cu").write_text(_SOURCE)
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(project)]
        subprocess.run(command, check=True, capture_output=True)
        cubin = ["-cubin", f"-arch={ARCH}", str(project / "kernels.cu"), "-o", str(folder / "nvcc.cubin")]
        subprocess.run([nvcc, *cubin], check=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        manifest = json.loads(archive.read("benchcpp/kernels.aotcuda/manifest.json"))
    found = {kernel["name"]: kernel["overloads"][0]["resources"][ARCH]["registers"] for kernel in manifest["kernels"]}
    machine.table(("kernel", "registers"), list(found.items()))


def _measure(folder: Path, turns: int) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    import cupy
    import numpy as np

    installed = folder / "installed"
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        archive.extractall(installed)
    sys.path.insert(0, os.fspath(installed))
    k, lengths = (importlib.import_module(f"benchcpp.{name}") for name in ("kernels", "lengths"))
    raw = cupy.RawModule(code=_SOURCE)
    nvcc = cupy.RawModule(path=os.fspath(folder / "nvcc.cubin"))
    rng = np.random.default_rng(7)
    x, y = (cupy.asarray(rng.normal(size=N).astype("float32")) for _ in range(2))
    out, small, blocks = cupy.zeros(N, "float32"), cupy.zeros(256, "float32"), N // 256
    a, n, few = np.float32(2), np.int64(N), np.int64(256)

    k.axpy[blocks, 256](2.0, x, y, out, N)
    ours = out.copy()
    nvcc.get_function("axpy")((blocks,), (256,), (a, x, y, out, n))
    cupy.testing.assert_array_equal(ours, out)
    lengths.axpy[blocks, 256](2.0, x, y, out)
    cupy.testing.assert_array_equal(ours, out)

    kernel, prepared, taken = raw.get_function("axpy"), k.axpy[1, 256], lengths.axpy[1, 256]
    ways: dict[str, Callable[[], object]] = {
        "aotcuda": lambda: prepared(2.0, small, small, small, 256),
        "aotcuda, n taken from out": lambda: taken(2.0, small, small, small),
        "RawKernel": lambda: kernel((1,), (256,), (a, small, small, small, few)),
    }
    launches = dict.fromkeys(ways, float("inf"))
    for _ in range(turns):
        for name, launch in ways.items():
            taken_us = machine.host_time(launch, cupy.cuda.runtime.deviceSynchronize, 256)
            launches[name] = min(launches[name], taken_us)
    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "axpy": (
            lambda: k.axpy[blocks, 256](2.0, x, y, out, N),
            lambda: nvcc.get_function("axpy")((blocks,), (256,), (a, x, y, out, n)),
        ),
        "special": (
            lambda: k.special[blocks, 256](x, out, N),
            lambda: nvcc.get_function("special")((blocks,), (256,), (x, out, n)),
        ),
    }
    gpu = {}
    for name, (ours, theirs) in pairs.items():
        both = gpu_time.measure(cupy, {"aotcuda": ours, "nvcc": theirs}, turns)
        gpu[name] = (both["aotcuda"], both["nvcc"])
    return {name: round(value, 2) for name, value in launches.items()}, gpu


if __name__ == "__main__":
    sys.exit(main())
