"""The kernel that `launch.py` and `triton_launch.py` launch in every way, and its launches from C.

Every peer launches the same work: a kernel of one float and three arrays, over the same grid. C calls the driver with
parameters that are ready, which is the least that a host can do.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import shutil
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Batch = Callable[[int], float]  # from a number of launches to seconds

GRID, BLOCK, ELEMENTS = 8, 128, 1000
ORDERED = "C, both streams ordered"
_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
_PEERS = ("cupy-cuda13x", "cupy-cuda12x", "torch", "triton", "cuda-core", "warp-lang", "numba-cuda", "numba-cuda-mlir")

CUDA_SOURCE = """
extern "C" __global__ void probe(float a, float *x0, float *x1, float *x2, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        x0[i] = a * x0[i] + x1[i] + x2[i];
}
"""
_SOURCES = {
    "numba": """
def probe(a, x0, x1, x2):
    i = grid(1)
    if i < x0.size:
        x0[i] = a * x0[i] + x1[i] + x2[i]
""",
    "triton": """
import triton.language as tl

def probe(a, x0, x1, x2, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x0 + i, mask=i < n) + tl.load(x1 + i, mask=i < n) + tl.load(x2 + i, mask=i < n)
    tl.store(x0 + i, a * total, mask=i < n)
""",
    "warp": """
import warp as wp

@wp.kernel
def probe(a: float, x0: wp.array(dtype=float), x1: wp.array(dtype=float), x2: wp.array(dtype=float)):
    i = wp.tid()
    x0[i] = a * x0[i] + x1[i] + x2[i]
""",
}

_LOOP = r"""
#include <time.h>
typedef unsigned U;
typedef int (*Launch)(void *, U, U, U, U, U, U, U, void *, void **, void **);
typedef struct {
    int (*record)(void *, void *), (*wait)(void *, void *, U);
    void *event, *other;
    int mutual;
} Order;
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
double loop(Launch launch, void *kernel, unsigned grid, unsigned block, void *stream, void **extra, int count,
            const Order *order)
{
    double begin = now();
    for (int i = 0; i < count; i++) {
        if (order && (order->record(order->event, order->other) || order->wait(stream, order->event, 0)))
            return -1;
        if (launch(kernel, grid, 1, 1, block, 1, 1, 0, stream, 0, extra))
            return -1;
        if (order && order->mutual &&
            (order->record(order->event, stream) || order->wait(order->other, order->event, 0)))
            return -1;
    }
    return now() - begin;
}
"""


class MissingError(Exception):
    """A peer is missing; the text is the reason."""


class Case:
    """The packaged kernel `axpy`, and arrays and sources for its peers.

    Attributes:
        packaged: The kernel.
        folder: The folder for sources and caches of the peers.
    """

    def __init__(self, kernels: Any, folder: Path) -> None:
        self.packaged = kernels.axpy
        self.folder = folder

    def cupy(self) -> list[Any]:
        import cupy

        return [cupy.zeros(ELEMENTS, "float32") for _ in range(3)]

    def torch(self) -> list[Any]:
        import torch

        return [torch.zeros(ELEMENTS, device="cuda") for _ in range(3)]

    def numba(self) -> list[Any]:
        return [numba_cuda().device_array(ELEMENTS, "float32") for _ in range(3)]

    def module(self, peer: str) -> Any:
        """Import the kernel's source for a peer from a file, since Triton and Warp read their kernels' files."""
        path = self.folder / f"probe_{peer}.py"
        path.write_text(_SOURCES[peer], encoding="utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


class _Order(ctypes.Structure):
    """`Order` of `_LOOP`."""

    _fields_ = (
        ("record", ctypes.c_void_p),
        ("wait", ctypes.c_void_p),
        ("event", ctypes.c_void_p),
        ("other", ctypes.c_void_p),
        ("mutual", ctypes.c_int),
    )


def c_batches(
    case: Case, arrays: list[Any], stream: int = 0, other: int | None = None, *, mutual: bool = False
) -> Iterator[tuple[str, Batch]]:
    """Yield launches from C by name; the other ways are compared with the first.

    With an `other` stream, also yield `ORDERED`, whose launches wait for that stream, as launches of arrays on that
    stream have to; with `mutual` that stream then waits for the launch, too. One event without times serves all
    launches, as in aotcuda.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        message = "no C compiler"
        raise MissingError(message)
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "loop.c"), Path(folder, "loop.so")
        source.write_text(_LOOP, encoding="utf-8")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        run = ctypes.CDLL(str(library)).loop
    run.restype = ctypes.c_double
    driver = ctypes.CDLL("libcuda.so.1")
    case.packaged[GRID, BLOCK](2.0, *arrays)  # loads it
    loaded = case.packaged._images.current
    plan = loaded.table("axpy").overloads[0]
    _, slot, *_ = loaded.select("axpy", (2.0, *arrays), stream)  # the parameters of this launch
    size = ctypes.c_size_t(plan.size)
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(slot.buffer), 2, ctypes.addressof(size), 0)
    launch = ctypes.cast(driver.cuLaunchKernel, ctypes.c_void_p)

    def batch(order: Any) -> Batch:
        def seconds(count: int) -> float:
            kernel = plan.kernels[0].kernel
            found: float = run(launch, kernel, GRID, BLOCK, ctypes.c_void_p(stream), extra, count, order)
            if found < 0:
                message = "the driver refused the launch"
                raise MissingError(message)
            return found

        seconds.keep = (slot, size, arrays)  # type: ignore[attr-defined]
        return seconds

    yield "C", batch(None)
    if other is not None:
        event = ctypes.c_void_p()
        if driver.cuEventCreate(ctypes.byref(event), _NO_TIMING):
            message = "the driver made no event"
            raise MissingError(message)
        record, wait = (
            ctypes.cast(getattr(driver, name), ctypes.c_void_p).value for name in ("cuEventRecord", "cuStreamWaitEvent")
        )
        yield ORDERED, batch(ctypes.pointer(_Order(record, wait, event.value, other, int(mutual))))


def loop(call: str, arrays: Sequence[object] = (), **names: object) -> Batch:
    """Return a loop over a call, compiled from its text as in a program; `{args}` are a scalar and the arrays."""
    values = {f"x{at}": array for at, array in enumerate(arrays)} | names
    text = call.format(args=", ".join(["2.0", *(f"x{at}" for at in range(len(arrays)))]))
    source = (
        f"def bind({', '.join(values)}):\n"
        "    def batch(count):\n"
        "        begin = clock()\n"
        "        for _ in range(count):\n"
        f"            {text}\n"
        "        return clock() - begin\n"
        "    return batch\n"
    )
    scope: dict[str, Any] = {"clock": time.perf_counter}
    exec(source, scope)
    batch: Batch = scope["bind"](**values)
    return batch


def numba_cuda() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from numba import config, cuda
    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
    return cuda


def versions() -> dict[str, str]:
    """Return the versions of the peers that are installed."""
    found = {}
    for name in _PEERS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
