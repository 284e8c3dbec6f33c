"""Kernels that synchronize the grid in CUDA C++ are launched cooperatively, in modules of each front end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from integration import projects

if TYPE_CHECKING:
    from pathlib import Path

# As `this_grid().sync()` does; its header takes NVRTC seconds.
MEET = r"""
extern "C" __device__ int meet(int *result, int a)
{ unsigned high, low;
  asm volatile("mov.u32 %0, %%envreg1; mov.u32 %1, %%envreg2;" : "=r"(high), "=r"(low));
  atomicAdd((unsigned *)((unsigned long long)high << 32 | low), 1u); *result = a; return 0; }
extern "C" __device__ int stay(int *result, int a) { *result = a; return 0; }
"""
CPP = """#include <cooperative_groups.h>
template <class T> __global__ void waits(T *a) { a[0] = 1; cooperative_groups::this_grid().sync(); a[1] = a[0]; }
extern "C" __global__ void goes(float *a) { a[0] = cooperative_groups::this_grid().thread_rank(); }
"""
NUMBA = """
from numba import cuda

meet = cuda.declare_device("meet", "int32(int32)", link="pkg/meet.cu")
stay = cuda.declare_device("stay", "int32(int32)", link="pkg/meet.cu")

@cuda.jit
def waits(a):
    a[0] = meet(a[1])

@cuda.jit
def goes(a):
    a[0] = stay(a[1])
"""


def marked(root: Path, out: str) -> dict[str, bool]:
    """By kernel, whether the manifest has it launched cooperatively."""
    projects.aotcuda(root, "build", "--out", root / out)
    files = {"pkg/k.aotcuda/manifest.json": (root / out / "pkg/k.aotcuda/manifest.json").read_bytes()}
    kernels = projects.manifest_of(files, "pkg.k")["kernels"]
    return {kernel["name"]: all(overload["cooperative"] for overload in kernel["overloads"]) for kernel in kernels}


@pytest.mark.usefixtures("front_end")
@pytest.mark.parametrize("arch", ["sm_80", "compute_80"])
def test_a_python_kernel_whose_linked_function_synchronizes_the_grid(arch, tmp_path):
    kernels = 'kernels = { waits = "void(int32[::1])", goes = "void(int32[::1])" }'
    root = projects.write(tmp_path / "p", projects.source(NUMBA), aotcuda=f'arch = ["{arch}"]', module=kernels)
    (root / "pkg" / "meet.cu").write_text(MEET)
    assert marked(root, "out") == {"waits": True, "goes": False}


@pytest.mark.matrix  # tests/unit/test_grid_sync.py has code in C++
@pytest.mark.parametrize("arch", ["sm_80", "compute_80"])
def test_a_cpp_kernel_that_synchronizes_the_grid(arch, tmp_path):
    kernels = 'frontend = "cuda-cpp"\nkernels = { waits = "waits<float>", goes = {} }'
    root = projects.write(tmp_path / "p", "", aotcuda=f'arch = ["{arch}"]', module=kernels)
    (root / "pkg" / "k.cu").write_text(CPP)
    config = root / "pyproject.toml"
    config.write_text(config.read_text().replace('"pkg._k"', '"pkg/k.cu"'))
    assert marked(root, "out") == {"waits": True, "goes": False}
