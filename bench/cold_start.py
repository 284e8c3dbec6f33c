"""From the start of a process to the first result on the GPU, in milliseconds and in parts, beside Numba.

Each run is a fresh process that imports its kernel, makes a context, loads the kernel's code, launches it and copies
the result back. Starting the driver and making the context is the same for everyone and can take tenths of a second, so
it is a part of its own; "beyond" is all the rest, the interpreter's own start aside.

    python bench/cold_start.py                     # needs a GPU and the wheel of bench/prepare.py, installed
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import machine

_HEAD = """
import sys, time
clock = time.monotonic
marks = [("interpreter", clock())]
def mark(name):
    marks.append((name, clock()))
"""

# The driver's own calls: what a program without any library needs for memory and a context.
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
"""

_CONTEXT = """
context = ctypes.c_void_p()
check(cuda.cuInit(0))
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
check(cuda.cuCtxSetCurrent(context))
mark("context")
x, y, out = Buffer([1, 2, 3]), Buffer([10, 20, 30]), Buffer([0, 0, 0])
mark("data")
"""

_TAIL = """
import json
print(json.dumps([marks, result]))
"""

_AOTCUDA = (
    _HEAD
    + _DRIVER
    + """
mark("ctypes")
import benchkernels.kernels as k
mark("import")
"""
    + _CONTEXT
    + """
k.__aotcuda__.ready()
mark("load")
k.axpy[1, 32](2.0, x, y, out)
mark("launch")
result = out.read()
mark("result")
"""
    + _TAIL
)

_NUMBA = (
    _HEAD
    + """
import warnings
warnings.simplefilter("ignore")
import numpy as np
from numba import config, cuda
config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
import probe
kernel = probe.axpy
mark("import")
cuda.current_context()
mark("context")
x, y = cuda.to_device(np.array([1, 2, 3], "f4")), cuda.to_device(np.array([10, 20, 30], "f4"))
out = cuda.to_device(np.zeros(3, "f4"))
mark("data")
kernel[1, 32](np.float32(2), x, y, out)
mark("launch")
result = out.copy_to_host().tolist()
mark("result")
"""
    + _TAIL
)

_PROBE = """
from numba import cuda
@cuda.jit(cache={cache})
def axpy(a, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]
"""

# What no launch can do without; "data" is the program's own.
_COMMON = ("interpreter", "context", "data")
_LIMIT = 15


def main() -> int:
    parser = machine.parser(__doc__, "cold_start")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--numba-runs", type=int, default=4)
    arguments = parser.parse_args()
    here = machine.describe()
    if machine.driver() is None:
        sys.exit("this needs a GPU and its driver")
    ways = {
        "driver alone": (_HEAD + _DRIVER + 'mark("ctypes")' + _CONTEXT + "result = [12, 24, 36]" + _TAIL, {}),
        "aotcuda, first-use": (_AOTCUDA, {"AOTCUDA_LOAD": "first-use"}),
        "aotcuda, import": (_AOTCUDA, {"AOTCUDA_LOAD": "import"}),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, cache in (("numba-cuda", False), ("numba-cuda, cache=True", True)):
            probe = Path(folder, name)
            probe.mkdir()
            (probe / "probe.py").write_text(_PROBE.format(cache=cache), encoding="utf-8")
            ways[name] = (_NUMBA, {"PYTHONPATH": f"{probe}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"})
        runs = {name: arguments.numba_runs if "numba" in name else arguments.runs for name in ways}
        figures, missing = _measure(ways, runs)

    parts = sorted({part for item in figures.values() for part in item}, key=_order)
    machine.table(
        ("ms", *parts),
        [(name, *(item.get(part, 0.0) for part in parts)) for name, item in figures.items()],
    )
    met = {}
    for name in ("aotcuda, first-use", "aotcuda, import"):
        if name in figures and "driver alone" in figures:
            beyond = figures[name]["beyond"] - (_context_of(figures) if name.endswith("import") else 0)
            met[f"{name}: at most {_LIMIT} ms beyond the driver's own start"] = beyond <= _LIMIT
    for text, verdict in met.items():
        print(f"{text}: {'met' if verdict else 'MISSED'}")
    for name, reason in missing.items():
        print(f"left out: {name}: {reason}")
    machine.write(arguments.out, here, unit="ms", figures=figures, missing=missing, measures=met)
    return 0 if all(met.values()) else 1


def _context_of(figures: dict[str, dict[str, float]]) -> float:
    """An import that loads starts the driver itself: what the driver alone takes for its start and its context."""
    moved = figures["driver alone"]["context"] - figures["aotcuda, import"]["context"]
    return max(moved, 0.0)


def _measure(
    ways: dict[str, tuple[str, dict[str, str]]], runs: dict[str, int]
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """By way: the median of each part; and the ways that do not work here, with what they said."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    missing: dict[str, str] = {}
    for turn in range(max(runs.values()) + 1):
        for name, (code, environment) in ways.items():
            if name in missing or turn > runs[name]:
                continue
            begin = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                missing[name] = (done.stderr.strip().splitlines() or ["no message"])[-1][:200]
                continue
            marks, result = json.loads(done.stdout.splitlines()[-1])
            if result != [12, 24, 36]:
                sys.exit(f"{name} gave {result}")
            if turn:  # the first one warms the file cache, and Numba's
                found[name].append(_parts(begin, marks))
    return {
        name: {part: round(median([item[part] for item in items]), 2) for part in items[0]}
        for name, items in found.items()
        if items
    }, missing


def _parts(begin: float, marks: list[tuple[str, float]]) -> dict[str, float]:
    """Milliseconds between the marks; `beyond` is the sum of what is not everyone's."""
    parts: dict[str, float] = {}
    for name, at in marks:
        parts[name] = (at - begin) * 1e3
        begin = at
    parts["beyond"] = sum(value for name, value in parts.items() if name not in _COMMON)
    return parts


def _order(part: str) -> int:
    names = ("interpreter", "ctypes", "import", "context", "data", "load", "launch", "result", "beyond")
    return names.index(part)


if __name__ == "__main__":
    sys.exit(main())
