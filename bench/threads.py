"""Measure how many launches a second several threads make together, with the GIL and without.

Threads launch the same kernel at once, with arrays of their own, and in two ways: each with a launcher and a stream of
its own, or all with one launcher on the default stream. All start at a barrier with the GPU idle, in batches that the
streams' queues can hold; a figure is the median over the turns of all launches by the time from the first thread's
begin to the last one's end. C in as many threads shows what the driver itself has to give: it has locks of its own.

    python bench/prepare.py /tmp/bench && pip install /tmp/bench/*.whl    # on any machine with aotcuda[cu13]
    python bench/threads.py                                               # on a machine with a GPU
    python bench/threads.py --pythons python3 python3.14t                 # these Pythons in turn, in one result

Nothing but aotcuda, the wheel and the driver is imported, so that any Python will do.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import machine

if TYPE_CHECKING:
    from collections.abc import Callable

    Work = Callable[[int], None]
    MakeWorks = Callable[[list[Any]], list[Work]]  # from the streams of the threads

GRID, BLOCK, ELEMENTS = 8, 128, 1000
_QUEUE = 800  # of a stream; it holds about a thousand launches
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING

_LOOP = r"""
typedef unsigned U;
typedef int (*Launch)(void *, U, U, U, U, U, U, U, void *, void **, void **);
int loop(Launch launch, void *kernel, U grid, U block, void *stream, void **extra, int count)
{
    int code = 0;
    for (int i = 0; i < count; i++)
        code |= launch(kernel, grid, 1, 1, block, 1, 1, 0, stream, 0, extra);
    return code;
}
"""


def main() -> int:
    parser = machine.parser(__doc__, "threads")
    parser.add_argument("--counts", type=int, nargs="*", default=[1, 2, 4, 8], help="numbers of threads")
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--pythons", nargs="*", default=[sys.executable], help="the interpreters to compare")
    parser.add_argument("--measure", action="store_true", help="measure with this interpreter, and print JSON alone")
    arguments = parser.parse_args()
    if arguments.measure:
        json.dump(_measure(arguments.counts, arguments.turns), sys.stdout)
        return 0

    here = machine.describe()
    figures: dict[str, Any] = {}
    for python in arguments.pythons:
        command = [python, __file__, "--measure", f"--turns={arguments.turns}", "--counts", *map(str, arguments.counts)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        name, found = json.loads(done.stdout)
        figures[name] = found
        _print(name, found)
    machine.write(arguments.out, here, unit="launches a second, of all threads together", figures=figures)
    return 0


def _measure(counts: list[int], turns: int) -> tuple[str, dict[str, dict[str, dict[int, int]]]]:
    """Return this Python's name, and launches a second by way, kind of sharing, and number of threads."""
    from gpu import buffers

    buffers.primary_context()
    kernels = importlib.import_module("benchkernels.kernels")
    with tempfile.TemporaryDirectory() as folder:
        ways = _ways(kernels.axpy, buffers, Path(folder))
        figures = {
            way: {
                sharing: {count: _rate(make, buffers, count, turns, shared=sharing == "shared") for count in counts}
                for sharing in ("own", "shared")
            }
            for way, make in ways.items()
        }
    has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return f"Python {platform.python_version()} {'with' if has_gil else 'without'} the GIL", figures


def _ways(kernel: Any, buffers: Any, folder: Path) -> dict[str, MakeWorks]:
    """By name: what makes loops of launches on streams, each with arrays of its own; equal streams share a launcher."""
    from aotcuda.runtime import fast as extension
    from aotcuda.runtime.launch_config import Configuration
    from aotcuda.runtime.launcher import Launcher

    loader = kernel._loader

    def arguments() -> tuple[Any, ...]:
        return (2.0, *(buffers.Buffer("f", [0] * ELEMENTS) for _ in range(3)))

    def loop(run: Callable[..., object]) -> Work:
        a, x, y, out = arguments()

        def work(count: int) -> None:
            for _ in range(count):
                run(a, x, y, out)

        return work

    def plain(streams: list[Any]) -> list[Work]:
        launchers = {
            stream: Launcher(loader, kernel.__name__, "", Configuration(GRID, BLOCK, stream, 0, ""), None)
            for stream in {stream.value or 0 for stream in streams}
        }
        return [loop(launchers[stream.value or 0]) for stream in streams]

    def fast(streams: list[Any]) -> list[Work]:
        return [loop(kernel[GRID, BLOCK, stream.value or 0]) for stream in streams]

    plain([ctypes.c_void_p()])[0](2)  # loads everything
    ways = {"aotcuda, Python": plain}
    if extension.in_use() is not None:
        ways["aotcuda, C"] = fast
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return ways
    source, library = folder / "loop.c", folder / "loop.so"
    source.write_text(_LOOP, encoding="utf-8")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    run = ctypes.CDLL(str(library)).loop
    address = ctypes.cast(buffers.cuda.cuLaunchKernel, ctypes.c_void_p)

    def c(stream: Any) -> Work:
        args = arguments()
        Launcher(loader, kernel.__name__, "", Configuration(GRID, BLOCK, 0, 0, ""), None)(*args)
        plan = loader.current.table(kernel.__name__).overloads[0]
        slot = plan.take()  # holds the parameters of that launch
        size = ctypes.c_size_t(plan.size)
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(slot.buffer), 2, ctypes.addressof(size), 0)
        handle = plan.kernels[0].kernel
        keep = (args, size)

        def work(count: int) -> None:
            buffers.check(run(address, handle, GRID, BLOCK, stream, extra, count if keep else 0))

        return work

    return {"C": lambda streams: [c(stream) for stream in streams], **ways}


def _rate(make: MakeWorks, buffers: Any, count: int, turns: int, *, shared: bool) -> int:
    """Return the launches a second of so many threads."""
    streams = [ctypes.c_void_p() for _ in range(count)]
    for stream in streams:
        if not shared:
            buffers.check(buffers.cuda.cuStreamCreate(ctypes.byref(stream), _NON_BLOCKING))
    works = make(streams)
    batch = _QUEUE // count if shared else _QUEUE
    for work in works:
        work(3)
    start, end = threading.Barrier(count + 1), threading.Barrier(count + 1)
    spans: list[tuple[float, float]] = []
    rates = []

    def run(work: Work) -> None:
        try:
            buffers.primary_context()
            for _ in range(turns + 2):
                start.wait()
                begin = time.perf_counter()
                work(batch)
                spans.append((begin, time.perf_counter()))
                end.wait()
        except BaseException:  # no thread waits for one that failed
            start.abort()
            end.abort()
            raise

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for turn in range(turns + 2):
        buffers.check(buffers.cuda.cuCtxSynchronize())
        spans.clear()
        start.wait()
        end.wait()
        if turn >= 2:
            rates.append(count * batch / (max(last for _, last in spans) - min(first for first, _ in spans)))
    for thread in threads:
        thread.join()
    buffers.check(buffers.cuda.cuCtxSynchronize())
    for stream in streams:
        if not shared:
            buffers.check(buffers.cuda.cuStreamDestroy_v2(stream))
    return round(median(rates))


def _print(name: str, figures: dict[str, dict[str, dict[str, int]]]) -> None:
    rows: list[tuple[object, ...]] = []
    for way, sharings in figures.items():
        for sharing, rates in sharings.items():
            title = {"own": "launcher and stream of its own", "shared": "one launcher"}[sharing]
            rows.append((f"{way}, {title}", *(round(rate / 1e6, 3) for rate in rates.values())))
    counts = next(iter(next(iter(figures.values())).values()))
    print(f"\n{name}, millions of launches a second, by threads")
    machine.table(("", *counts), [(first, *(f"{rate:.3f}" for rate in rest)) for first, *rest in rows])
    sys.stdout.flush()


sys.path.insert(1, str(machine.RESULTS.parents[1] / "tests"))  # `gpu.buffers`: GPU memory by the driver alone

if __name__ == "__main__":
    sys.exit(main())
