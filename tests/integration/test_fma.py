"""Test that machine code and PTX of each front end have no fused multiply-adds with `fma = false`."""

from __future__ import annotations

import importlib.util
import re
from typing import TYPE_CHECKING

import pytest

from aotcuda.binary import fatbin
from integration import projects
from support.images import cuobjdump

if TYPE_CHECKING:
    from pathlib import Path

NUMBA = """
from {package} import cuda

@cuda.jit(device=True)
def apart(a, b, c):
    return a * b + c

@cuda.jit
def kernel(x, y):
    x[0] = apart(x[1], x[2], x[3]) - x[4] * x[5]
    y[0] = y[1] * y[2] - y[3]

def function(a, b, c):
    return a * b + c
"""
TRITON = """
import triton
import triton.language as tl

@triton.jit
def kernel(x, y):
    tl.store(x, tl.load(x + 1) * tl.load(x + 2) + tl.load(x + 3))
    tl.store(y, tl.load(y + 1) * tl.load(y + 2) + tl.load(y + 3))
"""
CPP = """
__device__ int calls;
__constant__ float table[4] = {1, 2, 3, 4};
__device__ __noinline__ float called(float a, float b) { calls++; return a * b + table[1]; }
#define BODY(name) extern "C" __global__ void name(float *x, double *y) \\
{ __shared__ float s[32]; s[threadIdx.x] = x[1] * x[2] + x[3]; __syncthreads(); \\
  x[0] = s[0] + called(x[4], x[5]) * x[6]; y[0] = y[1] * y[2] - y[3]; }
BODY(exact) BODY(other)
"""
TYPES = '"void(float32[::1], float64[::1])"'
FRONT_ENDS = {
    "numba-cuda": ("numba.cuda", "k.py", NUMBA.format(package="numba"), TYPES),
    "numba-cuda-mlir": ("numba_cuda_mlir", "k.py", NUMBA.format(package="numba_cuda_mlir"), TYPES),
    "triton": ("triton", "k.py", TRITON, '"*fp32, *fp64"'),
    "cuda-cpp": ("cuda.bindings.nvrtc", "k.cu", CPP, ""),
}
"""By front end: the package that it needs, the file of its kernels, their source, and their signature."""

ARCH = 'arch = ["sm_80", "compute_80"]'
FUSED = re.compile(r"\b[FD]FMA|\bfma\.")


def is_installed(front_end: str) -> bool:
    package = FRONT_ENDS[front_end][0]
    return importlib.util.find_spec(package.partition(".")[0]) is not None


def module(front_end: str) -> str:
    """Return the table of a module with a kernel `exact`, which has the option, and a kernel `other`."""
    _, file, _, signature = FRONT_ENDS[front_end]
    keys = [] if front_end == "cuda-cpp" else ['python = "kernel"', f"signature = {signature}"]
    source = f"pkg/{file}" if file.endswith(".cu") else f"pkg.{tag(front_end)}"
    return (
        f'[tool.aotcuda.modules."pkg.{tag(front_end)}_built"]\nfrontend = "{front_end}"\nsource = "{source}"\n'
        f"kernels.exact = {{ {', '.join([*keys, 'fma = false'])} }}\nkernels.other = {{ {', '.join(keys)} }}\n"
    )


def tag(front_end: str) -> str:
    return front_end.replace("-", "_")


def written(folder: Path, front_ends: list[str], *tables: str) -> Path:
    """Return a project with the sources of some front ends."""
    root = projects.write(folder, "", aotcuda=ARCH)
    config = root / "pyproject.toml"
    config.write_text(config.read_text().partition(f"[{projects.MODULE}]")[0] + "\n".join(tables))
    for name in front_ends:
        _, file, text, _ = FRONT_ENDS[name]
        (root / "pkg" / file.replace("k.py", f"{tag(name)}.py")).write_text(text)
    return root


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the output of a build with a module for each front end."""
    names = [name for name in FRONT_ENDS if is_installed(name)]
    root = written(tmp_path_factory.mktemp("fma") / "p", names, *map(module, names))
    projects.aotcuda(root, "build", "--out", root / "out")
    return root / "out"


def code(data: bytes) -> dict[str, dict[str, str]]:
    """Return the text of each kernel's machine code or PTX, by target and entry point."""
    texts: dict[str, dict[str, str]] = {}
    for entry in fatbin.read(data, "kernels"):
        if entry.kind == "ptx":
            parts = re.split(r"\.entry (\w+)", entry.content.decode())[1:]
        else:
            parts = re.split(r"Function : (\w+)", cuobjdump(entry.content, "-sass"))[1:]
        texts[entry.arch] = dict(zip(parts[::2], parts[1::2], strict=True))
    return texts


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_fma_false_gives_no_fused_instructions(front_end, built):
    if not is_installed(front_end):
        pytest.skip(f"{front_end} is not installed")
    targets = code((built / f"pkg/{tag(front_end)}_built.aotcuda/kernels.fatbin").read_bytes())
    assert len(targets) == 2
    for target, kernels in targets.items():
        assert any(name.startswith("exact") for name in kernels), target
        for name, text in kernels.items():
            expected = not name.startswith("exact") and "own_options" not in name
            assert bool(FUSED.search(text)) == expected, (target, name)


@pytest.mark.parametrize("front_end", ["numba-cuda", "numba-cuda-mlir"])
def test_exported_functions_keep_fma_off_in_linked_kernels(front_end, tmp_path):
    functions = (
        'functions.exact = { python = "function", signature = "float32(float32, float32, float32)", fma = false }\n'
        'functions.other = { python = "function", signature = "float32(float32, float32, float32)" }'
    )
    if not is_installed(front_end):
        pytest.skip(f"{front_end} is not installed")
    table = f'[tool.aotcuda.modules."pkg.k"]\nfrontend = "{front_end}"\nsource = "pkg.{tag(front_end)}"\n{functions}\n'
    root = written(tmp_path / "p", [front_end], table)
    (root / "pkg" / "use.cu").write_text("""
extern "C" __device__ float exact(float a, float b, float c);
extern "C" __device__ float other(float a, float b, float c);
extern "C" __global__ void uses_exact(float *x) { x[0] = exact(x[1], x[2], x[3]); }
extern "C" __global__ void uses_other(float *x) { x[0] = other(x[1], x[2], x[3]); }
""")
    with (root / "pyproject.toml").open("a") as config:
        config.write(
            '\n[tool.aotcuda.modules."pkg.use"]\nfrontend = "cuda-cpp"\nsource = "pkg/use.cu"\n'
            'kernels = { uses_exact = {}, uses_other = {} }\nlink = [{ module = "pkg.k" }]\n'
        )
    projects.aotcuda(root, "build", "--out", root / "out")
    data = (root / "out/pkg/use.aotcuda/kernels.fatbin").read_bytes()
    for entry in fatbin.read(data, "kernels"):
        if entry.kind == "sass":
            text = cuobjdump(entry.content, "-sass")
            exact = re.search(r"Function : uses_exact(.*?)(?=Function :|\Z)", text, re.DOTALL)
            other = re.search(r"Function : uses_other(.*?)(?=Function :|\Z)", text, re.DOTALL)
            assert not FUSED.search(exact[1])
            assert FUSED.search(other[1])
