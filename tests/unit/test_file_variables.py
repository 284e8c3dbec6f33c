"""Check that each CUDA C++ file of a link has its own copy of a header's variables, as with nvcc."""

from __future__ import annotations

import re

import pytest

from aotcuda import arch
from aotcuda.builder.config.model import Options
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import nvjitlink

HEADERS = {
    "constant": ("__constant__ float table[4] = {1, 2, 3, 4};", "table[i]"),
    "device": ("__device__ int counter;", "atomicAdd(&counter, i)"),
    "namespace": ("namespace physics { __device__ double table[3]; }", "(float)physics::table[i]"),
    "managed": ("__managed__ int shared_counter = 7;", "shared_counter"),
    "extern C": ('extern "C" { __device__ float plain = 3; }', "plain"),
    "two": ("__device__ int first; __constant__ int second;", "first + second"),
}


@pytest.mark.parametrize(("name", "debug"), [*((name, False) for name in HEADERS), ("constant", True)])
def test_each_file_has_its_copy(name, debug):
    header, value = HEADERS[name]
    kernel = "float {0}(int); float {1}(int);".replace("float", 'extern "C" __device__ float').format("fa", "fb")
    kernel += 'extern "C" __global__ void k(float *x) { x[0] = fa(1) + fb(2); }'
    items = [LinkInput(kind="cu", name="k.cu", data=kernel.encode())]
    for function in ("fa", "fb"):
        text = f'{header}\nextern "C" __device__ float {function}(int i) {{ return {value}; }}'
        items.append(LinkInput(kind="cu", name=f"csrc/{function}.cu", data=text.encode()))
    target = arch.parse("sm_80")
    if not debug:
        other = LinkInput(kind="cu", name="other", data=b'extern "C" __device__ int other(int a) { return a; }')
        code = nvjitlink.nvrtc.compile_source(other, target, Options(), [], lto=True)
        items.append(LinkInput(kind="ltoir", name="other", data=code))
    data, _ = nvjitlink.link("pkg.k", items, target, Options(debug=debug), [])
    variable = re.findall(r"(?:table|counter|shared_counter|plain|first)__[0-9a-f]{8}", data.decode("latin-1"))
    assert len(set(variable)) == 2
