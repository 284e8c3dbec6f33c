"""Test that kernels are cooperative if a linked function synchronizes the grid."""

from __future__ import annotations

import pytest

from integration import projects

# Instructions of `this_grid().sync()`, whose header NVRTC compiles for seconds.
MEET = r"""
extern "C" __device__ int meet(int *result, int a)
{ unsigned high, low;
  asm volatile("mov.u32 %0, %%envreg1; mov.u32 %1, %%envreg2;" : "=r"(high), "=r"(low));
  atomicAdd((unsigned *)((unsigned long long)high << 32 | low), 1u); *result = a; return 0; }
extern "C" __device__ int stay(int *result, int a) { *result = a; return 0; }
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


@pytest.mark.usefixtures("front_end")
@pytest.mark.parametrize("arch", ["sm_80", "compute_80"])
def test_kernel_whose_linked_function_synchronizes_the_grid_is_cooperative(arch, tmp_path):
    kernels = 'kernels = { waits = "void(int32[::1])", goes = "void(int32[::1])" }'
    root = projects.write(tmp_path / "p", projects.source(NUMBA), aotcuda=f'arch = ["{arch}"]', module=kernels)
    (root / "pkg" / "meet.cu").write_text(MEET)
    manifest = projects.manifest_of(projects.content(projects.build_wheel(root)), "pkg.k")
    cooperative = {kernel["name"]: kernel["overloads"][0]["cooperative"] for kernel in manifest["kernels"]}
    assert cooperative == {"waits": True, "goes": False}
