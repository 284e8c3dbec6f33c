"""The programs that `bench/cold_start.py` times from their start to their first result.

Each multiplies and adds on the GPU, and prints marks, the result, and notes. A mark is the name of a part and the clock
at its end. The parts are `start` (from the process's start to its first line), imports, `context` (start of the driver
and of the GPU's context), `data` (three small arrays on the GPU), `load` (compiling and loading before the launch),
`launch` (until the first launch is queued) and `result` (until the numbers are on the host).
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

PARTS = (
    "start", "ctypes", "import", "context", "data", "import of kernels", "import of Triton", "load", "launch", "result",
    "beyond", "total",
)  # fmt: skip

RESULT = [12.0, 24.0, 36.0]
X, Y = [1, 2, 3], [10, 20, 30]


class Program(NamedTuple):
    """Describe a program.

    Attributes:
        code: Python, or "" for the program in C.
        environment: Environment variables of the process.
        module: The module that must be installed; "" for none.
    """

    code: str
    environment: dict[str, str] = {}  # noqa: RUF012 (never changed)
    module: str = ""


_HEAD = """
import sys, time
clock = time.monotonic
marks = [("start", clock())]
def mark(name):
    marks.append((name, clock()))
notes = {}
"""

_TAIL = """
import json
print(json.dumps([marks, result, notes]))
"""

# Calls of the driver, for memory and a context in programs without a library.
_DRIVER = """
import array, ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def check(code):
    if code:
        raise SystemExit(f"CUresult {code}")
class Buffer:
    def __init__(self, values):
        self.host = array.array("f", values)
        self.size = ctypes.c_size_t(4 * len(self.host))
        self.pointer = ctypes.c_uint64()
        check(cuda.cuMemAlloc_v2(ctypes.byref(self.pointer), self.size))
        check(cuda.cuMemcpyHtoD_v2(self.pointer, ctypes.c_void_p(self.host.buffer_info()[0]), self.size))
    @property
    def __cuda_array_interface__(self):
        return {"shape": (len(self.host),), "typestr": "<f4", "data": (self.pointer.value, False), "version": 3}
    def read(self):
        check(cuda.cuMemcpyDtoH_v2(ctypes.c_void_p(self.host.buffer_info()[0]), self.pointer, self.size))
        return list(self.host)
mark("ctypes")
"""

_START = """
device, context = ctypes.c_int(), ctypes.c_void_p()
check(cuda.cuInit(0))
check(cuda.cuDeviceGet(ctypes.byref(device), 0))
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
check(cuda.cuCtxSetCurrent(context))
mark("context")
"""

_BUFFERS = """
x, y, out = Buffer([1, 2, 3]), Buffer([10, 20, 30]), Buffer([0, 0, 0])
mark("data")
"""

_IMPORT = """
import benchkernels.kernels as k
mark("import of kernels")
"""

_LAUNCH = """
k.__aotcuda__.ready()
mark("load")
k.axpy[1, 32](2.0, x, y, out)
mark("launch")
result = {read}
mark("result")
notes["image"] = k.__aotcuda__.chosen[0].arch
"""


def _packaged(arrays: str, read: str) -> str:
    """Return a program that launches the packaged kernel over arrays."""
    return arrays + _IMPORT + _LAUNCH.format(read=read) + _TAIL


_OWN = _packaged(_HEAD + _DRIVER + _START + _BUFFERS, "out.read()")

_SOURCE = r"""
extern "C" __global__ void axpy(float a, const float *x, const float *y, float *out, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = a * x[i] + y[i];
}
"""

_CUPY_ARRAYS = (
    _HEAD
    + """
import cupy
mark("import")
cupy.cuda.runtime.free(0)  # as cudaFree(0), which does nothing but make the context
mark("context")
x, y = cupy.array([1, 2, 3], "float32"), cupy.array([10, 20, 30], "float32")
out = cupy.empty(3, "float32")
mark("data")
"""
)

_CUPY = (
    _CUPY_ARRAYS
    + f"""
kernel = cupy.RawKernel({_SOURCE!r}, "axpy")
kernel.compile()
mark("load")
kernel((1,), (32,), (cupy.float32(2), x, y, out, cupy.int64(3)))
mark("launch")
result = out.get().tolist()
mark("result")
"""
    + _TAIL
)

_TORCH_ARRAYS = (
    _HEAD
    + """
import torch
mark("import")
torch.cuda.synchronize()  # which makes the context
mark("context")
x, y = torch.tensor([1.0, 2.0, 3.0], device="cuda"), torch.tensor([10.0, 20.0, 30.0], device="cuda")
out = torch.empty(3, device="cuda")
mark("data")
"""
)

_TRITON = (
    _TORCH_ARRAYS
    + """
import cold_triton
mark("import of Triton")
cold_triton.axpy.warmup(2.0, x, y, out, 3, BLOCK=128, grid=(1,))
mark("load")
cold_triton.axpy[(1,)](2.0, x, y, out, 3, BLOCK=128)
mark("launch")
result = out.tolist()
mark("result")
"""
    + _TAIL
)

_CUDA_CORE = (
    _HEAD
    + _DRIVER
    + f"""
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
mark("import")
device = Device(0)
device.set_current()
mark("context")
{_BUFFERS}
options = ProgramOptions(arch="sm_%d%d" % tuple(device.compute_capability))
kernel = Program({_SOURCE!r}, "c++", options=options).compile("cubin").get_kernel("axpy")
mark("load")
pointers = [buffer.pointer.value for buffer in (x, y, out)]
launch(
    device.default_stream, LaunchConfig(grid=1, block=32), kernel, ctypes.c_float(2), *pointers, ctypes.c_longlong(3)
)
mark("launch")
result = out.read()
mark("result")
"""
    + _TAIL
)

_WARP = (
    _HEAD
    + """
import warp
import cold_warp
mark("import")
warp.config.log_level = warp.LOG_WARNING
warp.init()
warp.synchronize_device("cuda:0")
mark("context")
x, y = (warp.array(values, dtype=float, device="cuda:0") for values in ([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]))
out = warp.empty(3, dtype=float, device="cuda:0")
mark("data")
warp.load_module(cold_warp, device="cuda:0")
mark("load")
warp.launch(cold_warp.axpy, dim=3, inputs=[2.0, x, y, out], device="cuda:0")
mark("launch")
result = out.numpy().tolist()
mark("result")
"""
    + _TAIL
)

# A launch in two steps: compile, or load from Numba's cache; then launch.
_NUMBA = (
    _HEAD
    + """
import warnings
warnings.simplefilter("ignore")
import numpy as np
{imports}
config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
from {probe} import axpy as kernel
mark("import")
cuda.current_context()
mark("context")
x, y = cuda.to_device(np.array([1, 2, 3], "f4")), cuda.to_device(np.array([10, 20, 30], "f4"))
out = cuda.to_device(np.zeros(3, "f4"))
mark("data")
{load}
kernel[1, 32](np.float32(2), x, y, out)
mark("launch")
result = out.copy_to_host().tolist()
mark("result")
{note}
"""
    + _TAIL
)

_NUMBA_LOAD = """
kernel.compile(tuple([kernel.typeof_pyval(value) for value in (np.float32(2), x, y, out)]))
mark("load")
"""


def _numba() -> str:
    imports = "from numba import config, cuda"
    note = 'notes["cache hits"] = sum(kernel.stats.cache_hits.values())'
    return _fill(_NUMBA, imports=imports, probe="cold_numba", load=_NUMBA_LOAD, note=note)


def _mlir() -> str:
    imports = "from numba_cuda_mlir import cuda\nfrom numba_cuda_mlir.numba_cuda.core import config"
    return _fill(_NUMBA, imports=imports, probe="cold_mlir", load="", note="")


def _fill(template: str, **values: str) -> str:
    """Fill a template as `str.format` does, though it has other braces."""
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", value)
    return template


_JIT = """
from {module} import cuda
@cuda.jit({options})
def axpy(a, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]
"""

_PROBES = {
    "cold_numba": _JIT.format(module="numba", options="cache=True"),
    "cold_mlir": _JIT.format(module="numba_cuda_mlir", options=""),
    "cold_triton": """
import triton
import triton.language as tl
@triton.jit
def axpy(a, x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, a * tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)
""",
    "cold_warp": """
import warp as wp
@wp.kernel
def axpy(a: float, x: wp.array(dtype=float), y: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    out[i] = a * x[i] + y[i]
""",
}
"""Modules with the kernels of peers that read them from files."""

_LATE = {"AOTCUDA_LOAD": "first-use"}

OURS: dict[str, Program] = {
    "driver alone": Program(_HEAD + _DRIVER + _START + _BUFFERS + f"result = {RESULT}\n" + _TAIL),
    "C, the same image": Program(""),
    "aotcuda, first-use": Program(_OWN, _LATE),
    "aotcuda, import": Program(_OWN, {"AOTCUDA_LOAD": "import"}),
    "aotcuda, CuPy's arrays": Program(_packaged(_CUPY_ARRAYS, "out.get().tolist()"), _LATE, "cupy"),
    "aotcuda, PyTorch's tensors": Program(_packaged(_TORCH_ARRAYS, "out.tolist()"), _LATE, "torch"),
    "aotcuda, first-use, in Python": Program(_OWN, {**_LATE, "AOTCUDA_EXTENSION": "0"}),
}

PEERS: dict[str, Program] = {
    "CuPy RawKernel, from its cache": Program(_CUPY, module="cupy"),
    "PyTorch and Triton, from its cache": Program(_TRITON, module="triton"),
    "cuda.core, compiled": Program(_CUDA_CORE, module="cuda.core"),
    "Warp, from its cache": Program(_WARP, module="warp"),
    "numba-cuda, cache=True": Program(_numba(), module="numba_cuda"),
    "numba-cuda-mlir": Program(_mlir(), module="numba_cuda_mlir"),
}


def write_probes(folder: Path) -> None:
    """Write the modules that the peers' programs import."""
    folder.mkdir()
    for name, text in _PROBES.items():
        Path(folder, f"{name}.py").write_text(text.lstrip(), encoding="utf-8")


def c_program() -> str:
    """Return the program in C, with the parameter block of the wheel's manifest."""
    manifest = packaged().parent / "manifest.json"
    record = next(
        item for item in json.loads(manifest.read_text(encoding="utf-8"))["kernels"] if item["name"] == "axpy"
    )
    overload: dict[str, Any] = record["overloads"][0]
    numbers = {"zero": "0", "items": "3", "itemsize": "4", "shape0": "3", "stride0": "4", "step0": "1"}
    stores = ["*(float *)block = 2.0f;"]
    for number, parameter in enumerate(overload["parameters"][1:]):
        for index, word in enumerate(parameter["words"]):
            value = numbers.get(word, f"memory[{number}]")
            stores.append(f"*(long long *)(block + {parameter['offset'] + 8 * index}) = {value};")
    return (
        _C.replace("@SIZE@", str(overload["parameter_bytes"]))
        .replace("@SYMBOL@", overload["symbol"])
        .replace("@STORES@", "\n    ".join(stores))
    )


def packaged() -> Path:
    """Return the fatbin of the benchmark's kernels, where they are installed."""
    spec = find_spec("benchkernels")
    assert spec is not None and spec.origin is not None, "install the wheel of bench/kernels"
    return Path(spec.origin).parent / "kernels.aotcuda" / "kernels.fatbin"


_C = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static struct { const char *name; double at; } marks[16];
static int count;
static void mark(const char *name)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    marks[count].name = name;
    marks[count++].at = t.tv_sec + 1e-9 * t.tv_nsec;
}
static void *cuda;
#define CALL(name, ...)                                                                                                \
    do {                                                                                                               \
        int (*function)() = (int (*)())dlsym(cuda, #name);                                                             \
        int code = function ? function(__VA_ARGS__) : -1;                                                              \
        if (code) {                                                                                                    \
            fprintf(stderr, #name ": CUresult %d\n", code);                                                            \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)
int main(int argc, char **argv)
{
    mark("start");
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda || argc < 2)
        return 1;
    int device;
    void *context, *library, *kernel;
    CALL(cuInit, 0u);
    CALL(cuDeviceGet, &device, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, device);
    CALL(cuCtxSetCurrent, context);
    mark("context");
    float values[3][3] = {{1, 2, 3}, {10, 20, 30}, {0, 0, 0}};
    unsigned long long memory[3];
    for (int i = 0; i < 3; i++) {
        CALL(cuMemAlloc_v2, &memory[i], sizeof values[i]);
        CALL(cuMemcpyHtoD_v2, memory[i], (void *)values[i], sizeof values[i]);
    }
    mark("data");
    FILE *file = fopen(argv[1], "rb");
    if (!file)
        return 1;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *image = malloc(size);
    if (fread(image, 1, size, file) != (size_t)size)
        return 1;
    fclose(file);
    CALL(cuLibraryLoadData, &library, (void *)image, NULL, NULL, 0u, NULL, NULL, 0u);
    CALL(cuLibraryGetKernel, &kernel, library, "@SYMBOL@");
    mark("load");
    _Alignas(16) char block[@SIZE@];
    @STORES@
    size_t bytes = sizeof block;
    void *extra[] = {(void *)1, block, (void *)2, &bytes, NULL};
    CALL(cuLaunchKernel, kernel, 1u, 1u, 1u, 32u, 1u, 1u, 0u, NULL, NULL, (void *)extra);
    mark("launch");
    CALL(cuMemcpyDtoH_v2, (void *)values[2], memory[2], sizeof values[2]);
    mark("result");
    printf("[[");
    for (int i = 0; i < count; i++)
        printf("%s[\"%s\", %.9f]", i ? ", " : "", marks[i].name, marks[i].at);
    printf("], [%g, %g, %g], {}]\n", values[2][0], values[2][1], values[2][2]);
    return 0;
}
"""
