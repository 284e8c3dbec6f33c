"""Compile real images without a GPU with numba-cuda, nvJitLink, NVRTC and nvFatbin, and describe them by cuobjdump."""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

ARCHS = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")

SOURCE = r"""
__constant__ float table[100];
__device__ int counter[7];
__device__ __noinline__ float deep(float* x, int n)
{
    float l[32];
    for (int i = 0; i < 32; i++) l[i] = x[i];
    for (int i = 0; i < n; i++) l[(i * i) & 31] += l[i & 31];
    return l[n & 31];
}
__device__ __noinline__ int again(int n, int* x)
{
    volatile int l[4];
    l[n & 3] = n;
    return n <= 1 ? x[0] : again(n - 1, x) + l[n & 3] + again(n - 2, x);
}
struct Mixed { char c; double d; short s[3]; };
struct Large { char bytes[20000]; };
extern "C" {
__device__ __noinline__ float exported(float a) { return a * counter[0]; }
__global__ void calls(float* x, int n)
{
    __shared__ float s[10];
    s[threadIdx.x] = deep(x, n) + table[n];
    __syncthreads();
    x[0] = s[n] + exported(x[3]);
}
__global__ void recurse(int* x, int n) { x[0] = again(n, x); }
__global__ void __launch_bounds__(96, 2) bounded(Mixed m, char c, short* p) { p[0] = m.s[c] + c; }
__global__ void large(Large l, char c, int i, int* p) { p[0] = l.bytes[i] + c; }
__global__ void empty() {}
__global__ void spills(float* x)
{
    float r[100];
#pragma unroll
    for (int i = 0; i < 100; i++) r[i] = x[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 100; i++) x[i] = r[99 - i] * r[i] + r[(i * 37) % 100];
}
}
"""
"""Source with calls that are not inlined, recursion, constants, structs as parameters, and spilled registers."""


KERNELS = ("axpy", "tiled", "scratch")


@functools.cache
def _numba_kernels() -> dict[str, tuple[object, str, int | None]]:
    """Return Python functions with their signatures and launch bounds, by name."""
    from numba import cuda, float32, float64

    def axpy(a, x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = a * x[i]

    def tiled(x, y):
        tile = cuda.shared.array(96, float32)
        i = cuda.threadIdx.x
        tile[i] = x[i]
        cuda.syncthreads()
        y[i] = tile[95 - i]

    def scratch(x, y, n):
        values = cuda.local.array(64, float64)
        for i in range(64):
            values[i] = x[i]
        for i in range(n):
            values[(i * 7) % 64] += values[(i * i) % 64]
        y[0] = values[n % 64]

    return {
        "axpy": (axpy, "void(float32, float32[::1], float32[::1])", None),
        "tiled": (tiled, "void(float32[::1], float32[::1])", 128),
        "scratch": (scratch, "void(float64[::1], float64[::1], int32)", None),
    }


@functools.cache
def ltoir(name: str, arch: str) -> bytes:
    """Return the LTOIR of one of `KERNELS`."""
    pytest.importorskip("numba", reason="Numba compiles the images, and there is none for this Python")
    from numba import cuda

    function, signature, launch_bounds = _numba_kernels()[name]
    digits = arch.partition("_")[2]
    code, _ = cuda.compile(
        function,
        signature,
        device=False,
        abi="numba",
        abi_info={"abi_name": name},
        cc=(int(digits[:-1]), int(digits[-1])),
        output="ltoir",
        launch_bounds=launch_bounds,
    )
    return code


def _link(inputs: list[tuple[str, bytes]], *options: str) -> bytes:
    from cuda.bindings import nvjitlink

    handle = nvjitlink.create(len(options), list(options))
    for kind, data in inputs:
        nvjitlink.add_data(handle, getattr(nvjitlink.InputType, kind), data, len(data), "input")
    nvjitlink.complete(handle)
    as_ptx = "-ptx" in options
    size = (nvjitlink.get_linked_ptx_size if as_ptx else nvjitlink.get_linked_cubin_size)(handle)
    result = bytearray(size)
    (nvjitlink.get_linked_ptx if as_ptx else nvjitlink.get_linked_cubin)(handle, result)
    nvjitlink.destroy(handle)
    return bytes(result)


@functools.cache
def numba_cubin(arch: str) -> bytes:
    """Return `KERNELS` in one image."""
    return _link([("LTOIR", ltoir(name, arch)) for name in KERNELS], f"-arch={arch}", "-lto")


@functools.cache
def numba_ptx(arch: str) -> bytes:
    """Return `KERNELS` as PTX for a target such as `compute_75`."""
    base = arch.replace("compute", "sm")
    return _link([("LTOIR", ltoir(name, base)) for name in KERNELS], f"-arch={arch}", "-lto", "-ptx")


@functools.cache
def cuda_cubin(arch: str, *options: str) -> bytes:
    """Compile `SOURCE` with NVRTC."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(SOURCE.encode(), b"source.cu", 0, [], [])
    flags = [option.encode() for option in (f"-arch={arch}", *options)]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    result = bytearray(size)
    nvrtc.nvrtcGetCUBIN(program, result)
    nvrtc.nvrtcDestroyProgram(program)
    return bytes(result)


@functools.cache
def linked_cubin(arch: str) -> bytes:
    """Compile `SOURCE` for linking and link it, so that its functions keep their symbols."""
    return _link([("CUBIN", cuda_cubin(arch, "-rdc=true"))], f"-arch={arch}")


def pack(images: list[tuple[str, str, bytes]], *options: str) -> bytes:
    """Return a fatbin of images, each with its kind and arch (`sm_90a`, `compute_75`)."""
    from cuda.bindings import nvfatbin

    handle = nvfatbin.create(list(options), len(options))
    for kind, arch, data in images:
        number = arch.partition("_")[2]
        if kind == "sass":
            nvfatbin.add_cubin(handle, data, len(data), number, "test")
        elif kind == "ptx":
            nvfatbin.add_ptx(handle, data, len(data), number, "test", "")
        else:
            nvfatbin.add_ltoir(handle, data, len(data), number, "test", "")
    result = bytearray(nvfatbin.size(handle))
    nvfatbin.get(handle, result)
    nvfatbin.destroy(handle)
    return bytes(result)


@functools.lru_cache(maxsize=64)
def cuobjdump(data: bytes, *options: str) -> str:
    """Return the output of cuobjdump for an image or a fatbin."""
    from cuda.pathfinder import find_nvidia_binary_utility

    tool = find_nvidia_binary_utility("cuobjdump")
    if tool is None:
        pytest.fail("cuobjdump is not installed; the `test` extra has it")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "image")
        path.write_bytes(data)
        return subprocess.run([tool, *options, str(path)], capture_output=True, text=True, check=True).stdout


def resource_usage(data: bytes) -> dict[str, dict[str, str]]:
    """Return `REG`, `STACK`, `SHARED`, `CONSTANT[0]` and so on for each kernel, by cuobjdump."""
    rows = re.findall(r"Function (\S+):\n\s+(.*)", cuobjdump(data, "--dump-resource-usage"))
    return {name: dict(re.findall(r"(\S+?):(\S+)", line)) for name, line in rows}


def constant_arrays(data: bytes) -> int:
    """Return the bytes of constant arrays, which all kernels share, by cuobjdump."""
    match = re.search(r"Common:\n.*CONSTANT\[3\]:(\d+)", cuobjdump(data, "--dump-resource-usage"))
    return int(match[1]) if match else 0
