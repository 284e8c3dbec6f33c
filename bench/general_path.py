"""Measure the time that the general path adds to a launch, over the stand-in driver; no GPU is needed.

One scalar and three arrays. The figures are for comparisons within one run: what a launch takes of the processor
more than `cuLaunchKernelEx` called by ctypes with everything prepared, each the least of many batches in turn.

    python bench/general_path.py                      # this checkout
    python bench/general_path.py --beside OLDER       # and the package of another one, in processes by turns
    python bench/general_path.py --profile cupy       # where the time of CuPy's arrays goes
"""

from __future__ import annotations

import cProfile
import ctypes
import gc
import importlib
import itertools
import json
import os
import pstats
import shutil
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import machine
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
_SIGNATURE = "void(float32, float32[::1], float32[::1], float32[::1])"
_SITUATIONS = ("default", "given", "given, other current")
_STREAM = 0x5000
_BATCH = 200
UNIT = "microseconds of processor time over a prepared call by ctypes; the least of many batches"

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


def main() -> int:
    arguments = arguments_of(__doc__, "general_path")
    if in_this_process(arguments, _cases, "{}, default"):
        return 0
    figures = by_turns(__file__, arguments, AOTCUDA_EXTENSION="0")
    if arguments.out != machine.RESULTS / "general_path.json":
        machine.write(arguments.out, machine.describe(), unit=UNIT, figures=figures)
    return 0


def arguments_of(doc: str | None, name: str) -> argparse.Namespace:
    """Return the arguments of a script that measures launches of two checkouts by turns."""
    parser = machine.parser(doc, name)
    parser.add_argument("--beside", type=Path, help="a folder with another aotcuda")
    parser.add_argument("--turns", type=int, default=3, help="processes of each (%(default)s)")
    parser.add_argument("--batches", type=int, default=30, help="of each row in a process (%(default)s)")
    parser.add_argument("--profile", metavar="ROW")
    parser.add_argument("--measure", action="store_true", help="in this process; prints JSON")
    return parser.parse_args()


def in_this_process(
    arguments: argparse.Namespace, cases: Callable[[Path], dict[str, Callable[[], object]]], row: str = "{}"
) -> bool:
    """Measure or profile in this process if the arguments request it; `row` is the name of a profiled row."""
    if not (arguments.measure or arguments.profile):
        return False
    sys.path.append(str(ROOT / "tests"))
    with tempfile.TemporaryDirectory() as folder:
        made = cases(Path(folder))
        if arguments.profile:
            profile(made[row.format(arguments.profile)])
        else:
            print(json.dumps(measure(made, arguments.batches)))
    return True


def by_turns(script: str, arguments: argparse.Namespace, **environment: str) -> dict[str, dict[str, float]]:
    """Return the least time of each row and checkout, from `script --measure` in processes by turns; print a table."""
    states = {"before": arguments.beside.resolve()} if arguments.beside else {}
    states["now"] = ROOT
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(arguments.turns):
        for state, place in states.items():
            command = [sys.executable, script, "--measure", "--batches", str(arguments.batches)]
            variables = machine.environment(PYTHONPATH=str(place), **environment)
            done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True, cwd=place)
            for name, value in json.loads(done.stdout).items():
                found.setdefault(name, {}).setdefault(state, []).append(value)
    figures = {name: {state: round(min(values), 3) for state, values in row.items()} for name, row in found.items()}
    machine.table(("over ctypes, us", *states), [(name, *row.values()) for name, row in figures.items()])
    return figures


def measure(cases: dict[str, Callable[[], object]], batches: int) -> dict[str, float]:
    """Return microseconds of processor time for a launch of each row, over those of the row "ctypes"."""
    taken: dict[str, list[float]] = {name: [] for name in cases}
    gc.disable()
    for _ in range(batches):
        for name, case in cases.items():
            taken[name].append(_time(case) / _BATCH * 1e6)
    base = min(taken.pop("ctypes"))
    return {"ctypes": base, **{name: min(values) - base for name, values in taken.items()}}


def _time(run: Callable[[], object]) -> float:
    begin = time.thread_time()
    for _ in itertools.repeat(None, _BATCH):
        run()
    return time.thread_time() - begin


def profile(run: Callable[[], object]) -> None:
    """Print where the time of a launch goes."""
    taken = cProfile.Profile()
    taken.enable()
    for _ in range(20000):
        run()
    taken.disable()
    pstats.Stats(taken).sort_stats("tottime").print_stats(25)


def _cases(folder: Path) -> dict[str, Callable[[], object]]:
    """Return launches by library and situation, and a prepared call of the driver."""
    packaged, prepared = stand_in(folder)
    cases = {"ctypes": prepared}
    current = install()
    for name, make in _ARRAYS.items():
        arrays = [make(0x7F0000001000 + at * 0x1000) for at in range(3)]
        for situation in _SITUATIONS:
            if situation.endswith("current") and name not in current:
                continue
            stream = None if situation == "default" else _STREAM
            run = packaged.k[(4, 128) if stream is None else (4, 128, stream)]
            cases[f"{name}, {situation}"] = _case(run, arrays, current.get(name), situation)
    return cases


def stand_in(folder: Path) -> tuple[Any, Callable[[], object]]:
    """Make the stand-in this process's driver; return a packaged module, and a prepared call of the driver."""
    from aotcuda.runtime import driver
    from support import manifests

    library = folder / "libcuda.so.1"
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        sys.exit("this needs a C compiler")
    source = ROOT / "tests" / "support" / "fake_libcuda.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, source, "-lpthread"], check=True)
    driver.LIBRARY = str(library)
    manifests.write(folder, [manifests.kernel("k", _SIGNATURE), manifests.kernel("empty", "void()")])
    sys.path.insert(0, str(folder))
    packaged: Any = importlib.import_module("mypkg.kernels")
    packaged.empty[1, 1]()
    return packaged, _prepared(packaged)


def _case(run: Any, arrays: list[Any], current: list[int] | None, situation: str) -> Callable[[], object]:
    x, y, out = arrays
    on = 0 if situation != "given" else _STREAM

    def launch() -> None:
        run(2.0, x, y, out)

    def launch_on() -> None:
        current[0] = on  # type: ignore[index]
        run(2.0, x, y, out)

    return launch if current is None else launch_on


def _prepared(packaged: Any) -> Callable[[], object]:
    loaded = packaged.empty._loader.current
    overload = loaded.table("empty").overloads[0]
    [(configurations, kernel)] = overload.targets.values()
    launch, slot = loaded.library.driver.launch, overload.take()
    config = configurations[0]
    parameters, extra = slot.pointers

    def run() -> None:
        launch(config, kernel, parameters, extra)

    return run


class _Stream:
    """CuPy's; an attribute of an object takes as long as one of CuPy's."""

    __slots__ = ("_at",)

    def __init__(self, at: list[int]) -> None:
        self._at = at

    @property
    def ptr(self) -> int:
        return self._at[0]


def install() -> dict[str, list[int]]:
    """Put stand-ins for CuPy and PyTorch in their places; the cells that hold their current streams."""
    cupy, torch, found = types.ModuleType("cupy"), types.ModuleType("torch"), {"cupy": [0], "torch": [0]}
    stream = _Stream(found["cupy"])
    cupy._util = types.SimpleNamespace(CUDA_ARRAY_INTERFACE_EXPORT_VERSION=3)  # type: ignore[attr-defined]
    cupy.cuda = types.SimpleNamespace(get_current_stream=lambda: stream)  # type: ignore[attr-defined]
    raw = found["torch"].__getitem__  # of GPU 0
    torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=raw)  # type: ignore[attr-defined]
    sys.modules["cupy"], sys.modules["torch"] = cupy, torch
    return found


class _Pointer:
    __slots__ = ("ptr",)

    def __init__(self, address: int) -> None:
        self.ptr = address


class ndarray:  # noqa: N801 (CuPy's name)
    """An array whose attributes take as long as those of an object made in C."""

    __slots__ = ("_c_contiguous", "_f_contiguous", "data", "dtype", "ndim", "shape", "strides")
    __module__ = "cupy"

    def __init__(self, address: int) -> None:
        self._c_contiguous = self._f_contiguous = True
        self.data, self.dtype, self.ndim, self.shape, self.strides = (
            _Pointer(address), np.dtype("f4"), 1, (1000,), (4,)
        )  # fmt: skip


class Tensor:
    """A tensor; its methods are functions made in C."""

    __slots__ = ("data_ptr", "dtype", "element_size", "get_device", "is_conj", "is_contiguous", "is_cuda", "ndim",
                 "shape", "stride")  # fmt: skip
    __module__ = "torch"

    def __init__(self, address: int) -> None:
        def method(value: object) -> Any:
            return itertools.repeat(value).__next__

        self.dtype, self.is_cuda, self.ndim = _FLOAT, True, 1
        self.shape = _Size((1000,))
        self.data_ptr, self.get_device, self.is_conj = method(address), method(0), method(False)
        self.is_contiguous, self.element_size, self.stride = method(True), method(4), method((1,))


class _Size(tuple[int, ...]):
    __slots__ = ()


class _Dtype:
    is_complex = False

    def __str__(self) -> str:
        return "torch.float32"


_FLOAT = _Dtype()


class DeviceNDArray:
    """A stand-in for an array of Numba, an object of Python."""

    def __init__(self, address: int) -> None:
        self.dtype, self.shape, self.strides, self.ndim = np.dtype("f4"), (1000,), (4,), 1
        self.stream = 0
        self.gpu_data = types.SimpleNamespace(device_pointer=ctypes.c_uint64(address))
        self.gpu_data.device_pointer = address

    device_ctypes_pointer = property(lambda self: ctypes.c_void_p(self.gpu_data.device_pointer))


DeviceNDArray.__module__ = "numba.cuda.cudadrv.devicearray"


class Interface:
    """An array that has `__cuda_array_interface__` alone."""

    __slots__ = ("_shown",)

    def __init__(self, address: int) -> None:
        self._shown = {
            "version": 3, "typestr": "<f4", "shape": (1000,), "strides": None, "data": (address, False), "stream": None
        }  # fmt: skip

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self._shown


_ARRAYS: dict[str, Callable[[int], Any]] = {
    "cupy": ndarray,
    "torch": Tensor,
    "numba": DeviceNDArray,
    "interface": Interface,
}


if __name__ == "__main__":
    os.environ.setdefault("AOTCUDA_EXTENSION", "0")
    sys.exit(main())
