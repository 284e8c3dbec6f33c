"""Kernels that launch kernels: the device runtime is linked, as nvcc links it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aotcuda import arch
from aotcuda.binary import cubin
from aotcuda.builder.config.model import Options
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import nvjitlink, nvrtc
from aotcuda.builder.plan import toolchain
from aotcuda.errors import LinkError

SOURCE = """__global__ void child(float *x) { x[threadIdx.x] += 1; }
extern "C" __global__ void parent(float *x) { child<<<1, 32>>>(x); }
"""


def code(target: arch.Target) -> LinkInput:
    item = LinkInput(kind="cu", name="csrc/k.cu", data=SOURCE.encode())
    data = nvrtc.compile_source(item, target, Options(), toolchain.include_dirs(), lto=True)
    return LinkInput(kind="ltoir", name=item.name, data=data)


@pytest.mark.parametrize("name", ["sm_75", "sm_90", "sm_120"])
def test_the_device_runtime_is_linked_where_kernels_launch_kernels(name):
    target = arch.parse(name)
    data, _ = nvjitlink.link("pkg.k", [code(target)], target, Options(), [])
    assert {"parent", "_Z5childPf"} <= {kernel.name for kernel in cubin.read(data, name).kernels}


def test_ptx_of_kernels_that_launch_kernels_is_refused():
    target = arch.parse("compute_75")
    with pytest.raises(LinkError, match=r"^pkg.k: compute_75 cannot be built, .*; list sm_\* targets alone$"):
        nvjitlink.link("pkg.k", [code(target)], target, Options(), [])


def test_kernels_that_launch_kernels_beside_one_with_an_fma_of_its_own_are_refused():
    target = arch.parse("sm_90")
    item = replace(code(target), unfused=("parent",))
    with pytest.raises(LinkError, match=r"^pkg.k: a kernel launches kernels, so one kernel cannot have another fma"):
        nvjitlink.link("pkg.k", [item], target, Options(), [])
