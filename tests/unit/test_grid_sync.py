"""Test that kernels with grid synchronization are found in linked images of any inputs."""

from __future__ import annotations

import functools
import subprocess
from typing import TYPE_CHECKING

import pytest
from cuda.pathfinder import find_nvidia_binary_utility

from aotcuda import arch
from aotcuda.binary import grid_sync
from aotcuda.builder.config.model import Options
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import nvjitlink, nvrtc
from aotcuda.builder.plan import toolchain

if TYPE_CHECKING:
    from pathlib import Path

# NVRTC takes a second for the header, so device functions read the barrier's address without it.
MEET = r"""
extern "C" __device__ __noinline__ void meet()
{ unsigned high, low;
  asm volatile("mov.u32 %0, %%envreg1; mov.u32 %1, %%envreg2;" : "=r"(high), "=r"(low));
  atomicAdd((unsigned *)((unsigned long long)high << 32 | low), 1u); }
extern "C" __device__ __noinline__ void through() { meet(); }
extern "C" __device__ __noinline__ float apart(float a) { return a * 3; }
"""
KERNELS = """#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __device__ void meet();
extern "C" __device__ void through();
extern "C" __device__ float apart(float);
struct Large { float x[64]; };
extern "C" __global__ void sync_itself(float *a) { a[threadIdx.x] = 1; cg::this_grid().sync(); a[0] = a[blockIdx.x]; }
extern "C" __global__ void sync_in_loop(float *a, int n)
{ auto g = cg::this_grid(); for (int i = 0; i < n; i++) { a[i + threadIdx.x] += a[i + 1]; cg::sync(g); } }
extern "C" __global__ void sync_called(float *a) { a[threadIdx.x] = 1; meet(); a[0] = a[blockIdx.x]; }
extern "C" __global__ void sync_deeper(float *a) { a[threadIdx.x] = 1; through(); a[0] = a[blockIdx.x]; }
extern "C" __global__ void ranks(float *a) { a[0] = cg::this_grid().thread_rank() + cg::this_grid().size(); }
extern "C" __global__ void block(float *a)
{ auto b = cg::this_thread_block(); b.sync(); a[0] = cg::tiled_partition<32>(b).shfl(a[1], 3); }
extern "C" __global__ void plain(float *a) { a[0] = apart(a[1]) * 1.5e-39f + 0x44; }
extern "C" __global__ void large(Large l, float *a, int n) { a[0] = l.x[n & 63] + l.x[1] + l.x[17]; }
"""
SYNCED = {"sync_itself", "sync_in_loop", "sync_called", "sync_deeper"}
CASES = [
    *((target, form) for target in ("sm_75", "sm_90", "sm_100") for form in ("ltoir", "ptx", "cubin")),
    *((target, "ltoir") for target in ("sm_80", "sm_89", "sm_90a", "sm_103", "sm_110", "sm_120", "sm_121")),
]
OF_CI = [("sm_90", "ltoir"), ("sm_90", "ptx"), ("sm_90", "cubin"), ("sm_120", "ltoir")]


LOWEST = {7: "75", 8: "75", 9: "90", 10: "100", 11: "100", 12: "100"}
"""The target of the linked LTOIR by major compute capability."""


@functools.cache
def compiled(text: str, name: str, target: arch.Target, *, lto: bool) -> LinkInput:
    item = LinkInput(kind="cu", name=name, data=text.encode())
    data = nvrtc.compile_source(item, target, Options(), toolchain.include_dirs(), lto=lto)
    return LinkInput(kind="ltoir" if lto else "ptx", name=name, data=data)


def assembled(item: LinkInput, target: arch.Target, folder: Path) -> LinkInput:
    """Assemble PTX to relocatable machine code."""
    (folder / "meet.ptx").write_bytes(item.data.rstrip(b"\0"))
    ptxas = find_nvidia_binary_utility("ptxas")
    command = [ptxas, "-c", f"-arch={target}", str(folder / "meet.ptx"), "-o", str(folder / "meet.cubin")]
    subprocess.run(command, check=True, capture_output=True)
    return LinkInput(kind="cubin", name="meet.cubin", data=(folder / "meet.cubin").read_bytes())


@pytest.mark.parametrize(
    ("name", "form"), [pytest.param(*case, marks=[pytest.mark.matrix] * (case not in OF_CI)) for case in CASES]
)
def test_grid_synchronization_is_found_in_machine_code(name, form, tmp_path):
    target = arch.parse(name)
    lowest = arch.parse(f"sm_{LOWEST[target.major]}")
    functions = compiled(MEET, "meet", lowest if form == "ltoir" else target, lto=form == "ltoir")
    if form == "cubin":
        functions = assembled(functions, target, tmp_path)
    kernels = compiled(KERNELS, "kernels", target if form == "ptx" else lowest, lto=form != "ptx")
    data, _ = nvjitlink.link("pkg.k", [kernels, functions], target, Options(), [])
    assert grid_sync.in_cubin(data, target.major) == SYNCED


def test_grid_synchronization_is_found_in_ptx():
    target, code = arch.parse("compute_75"), arch.parse("sm_75")
    items = [compiled(text, name, code, lto=True) for text, name in ((KERNELS, "kernels"), (MEET, "meet"))]
    data, _ = nvjitlink.link("pkg.k", items, target, Options(), [])
    assert grid_sync.in_ptx(data.decode()) == SYNCED
