"""Compare launches whose grid, stream or number of elements changes: microseconds of host time of one call.

`bench/launch.py --grids` runs this. Each way has a process of its own: aotcuda with and without its C extension, the
same for another installed aotcuda (`--baseline`), and the peers, CuPy's RawKernel and Triton. The processes take turns:
in each block, every process measures each of its launches once, in a batch that begins with an idle GPU. Without a GPU,
or with `--stand-in`, launches go to the stand-in driver of the tests, with stand-ins for the arrays; then the processor
time of the thread is measured, and there are no peers.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import machine
import peers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[1]
GRIDS = 300
ROUNDS = 4
"""A batch has `GRIDS * ROUNDS` launches, fewer than fill the queue of a stream twice."""

LAUNCHES = {
    "stored launcher": "f({args})",
    "one grid": "k[8, 128]({args})",
    "300 grids": "k[item, 128]({args})",
    "300 grids, tuples": "k[(item, 2), (32, 4)]({args})",
    "one stream object": "k[8, 128, stream]({args})",
    "300 stream objects": "k[8, 128, item]({args})",
    "forall, one n": "k.forall(1000)({args})",
    "forall, 300 n": "k.forall(item)({args})",
    "cooperative, 300 grids": "k.configure(item, 128, cooperative=True)({args})",
}
_AIMS = (
    ("300 grids", "one grid", 0.5),
    ("300 stream objects", "one stream object", 0.5),
    ("forall, one n", "one grid", 1.0),
)


# ---------------------------------------------------------------------------------------------- one process of launches


def work(arguments: Any) -> int:
    """Answer each line of standard input with one JSON line of samples; the first line names what is missing."""
    with contextlib.ExitStack() as stack:
        setup = _stand_in(stack) if arguments.stand_in else _gpu()
        missing: dict[str, str] = {}
        batches = dict(_batches(setup, arguments.worker, missing))
        for name in [*batches]:
            try:
                for _ in range(3):
                    batches[name]()
            except Exception as error:  # noqa: BLE001 (a fault of one way must not end the others)
                missing[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
                del batches[name]
        print(json.dumps(missing), flush=True)
        gc.collect()
        gc.disable()
        for _line in sys.stdin:
            samples = {}
            for name, batch in batches.items():
                setup.synchronize()
                samples[name] = batch() / (GRIDS * ROUNDS) * 1e6
            setup.synchronize()
            print(json.dumps(samples), flush=True)
    return 0


def _batches(setup: Any, way: str, missing: dict[str, str]) -> Iterator[tuple[str, Callable[[], float]]]:
    for library, make in setup.arrays.items():
        try:
            arrays = make()
        except ImportError as error:
            missing[library] = str(error)
            continue
        args = ", ".join(["2.0", *(f"a{at}" for at in range(3))])
        values: dict[str, Any] = {f"a{at}": array for at, array in enumerate(arrays)}
        if way == "peers":
            yield from _peers(library, values, missing)
            continue
        k = setup.kernel
        streams = setup.streams(library)
        for name, text in LAUNCHES.items():
            items: Any = streams if "stream" in name else [*range(1, GRIDS + 1)]
            if items is None:
                continue
            given = {**values, "k": k, "stream": items[0]}
            if name == "stored launcher":
                given["f"] = k[8, 128]
            yield f"{library}: {name}", _loop(text.format(args=args), items, given)


def _peers(library: str, values: dict[str, Any], missing: dict[str, str]) -> Iterator[tuple[str, Callable[[], float]]]:
    numbers = [*range(1, GRIDS + 1)]
    try:
        if library == "cupy":
            import cupy

            kernel: Any = cupy.RawKernel(peers.CUDA_SOURCE, "probe")
            text = "k((GRID,), (128,), (f32(2.0), a0, a1, a2, i64(1000)))"
            more = {"k": kernel, "f32": cupy.float32, "i64": cupy.int64}
        elif library == "torch":
            import triton

            with tempfile.TemporaryDirectory() as folder:
                kernel = triton.jit(peers.Case(types.SimpleNamespace(axpy=None), Path(folder)).module("triton").probe)
                _loop("k[(8,)](2.0, a0, a1, a2, 1000, 128)", [1], {**values, "k": kernel})()
            text, more = "k[(GRID,)](2.0, a0, a1, a2, 1000, 128)", {"k": kernel}
        else:
            return
    except Exception as error:  # noqa: BLE001 (as above)
        missing[f"peer of {library}"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        return
    yield f"{library}: one grid", _loop(text.replace("GRID", "8"), numbers, {**values, **more})
    yield f"{library}: 300 grids", _loop(text.replace("GRID", "item"), numbers, {**values, **more})


def _loop(text: str, items: Any, values: dict[str, Any]) -> Callable[[], float]:
    """Return a function that launches for each item, some times over, and returns the seconds."""
    clock = time.thread_time if "AOTCUDA_BENCH_STAND_IN" in os.environ else time.perf_counter
    source = (
        f"def run():\n    begin = now()\n    for _ in rounds:\n        for item in items:\n            {text}\n"
        "    return now() - begin\n"
    )
    items = [items[at % len(items)] for at in range(GRIDS)]
    space = {**values, "now": clock, "rounds": range(ROUNDS), "items": items}
    exec(source, space)
    return space["run"]  # type: ignore[no-any-return]


# ----------------------------------------------------------------------------------------------------------- the arrays


def _gpu() -> Any:
    def cupy_arrays() -> list[Any]:
        import cupy

        return [cupy.zeros(peers.ELEMENTS, "float32") for _ in range(3)]

    def torch_arrays() -> list[Any]:
        import torch

        return [torch.zeros(peers.ELEMENTS, device="cuda") for _ in range(3)]

    def interface_arrays() -> list[Any]:
        return [_Interface(array) for array in cupy_arrays()]

    def streams(library: str) -> list[Any] | None:
        if library == "cupy":
            import cupy

            return [cupy.cuda.Stream(non_blocking=True) for _ in range(GRIDS)]
        if library == "torch":
            import torch

            return [torch.cuda.ExternalStream(_new_stream()) for _ in range(GRIDS)]
        return None

    return types.SimpleNamespace(
        arrays={"default": interface_arrays, "cupy": cupy_arrays, "torch": torch_arrays},
        kernel=importlib.import_module("benchkernels.kernels").axpy,
        streams=lambda library: streams(library) or [None],
        synchronize=machine.synchronize(),
    )


def _new_stream() -> int:
    """Return the handle of a new stream; PyTorch's own streams are 32 handles of a pool."""
    handle = ctypes.c_void_p()
    library = machine.driver()
    assert library is not None and library.cuStreamCreate(ctypes.byref(handle), 1) == 0
    return handle.value or 0


class _Interface:
    """An array that offers only `__cuda_array_interface__`; its launches go to the default stream."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, "stream": None}


class _Pointer:
    __slots__ = ("device_id", "ptr")

    def __init__(self, ptr: int) -> None:
        self.ptr, self.device_id = ptr, 0


def _stand_in(stack: contextlib.ExitStack) -> Any:
    """Return a kernel over the stand-in driver, and light stand-ins for the classes of CuPy and PyTorch."""
    import numpy as np

    sys.path[:0] = [str(ROOT / "tests")]
    from aotcuda.runtime import driver

    folder = Path(os.environ["AOTCUDA_BENCH_STAND_IN"])
    driver.LIBRARY = str(folder / "libcuda.so.1")
    library = ctypes.CDLL(driver.LIBRARY)
    library.fake_allocate.restype = ctypes.c_uint64
    library.fake_reset()
    sys.path[:0] = [str(folder)]
    from support import libraries

    stack.enter_context(libraries.installed())

    class ndarray:  # noqa: N801 (CuPy's name)
        __slots__ = ("_c_contiguous", "data", "dtype", "ndim", "shape", "strides")
        __module__ = "cupy"

        def __init__(self) -> None:
            self.dtype, self.ndim, self.shape, self.strides = np.dtype("f4"), 1, (peers.ELEMENTS,), (4,)
            self.data, self._c_contiguous = _Pointer(library.fake_allocate(ctypes.c_uint64(4096), 0)), True

        def __len__(self) -> int:
            return peers.ELEMENTS

    float32 = libraries.DTYPES["<f4"]

    class Tensor:
        __slots__ = ("_address", "dtype", "is_cuda", "shape")
        __module__ = "torch"

        def __init__(self) -> None:
            self._address, self.dtype = library.fake_allocate(ctypes.c_uint64(4096), 0), float32
            self.is_cuda, self.shape = True, (peers.ELEMENTS,)

        def data_ptr(self) -> int:
            return self._address  # type: ignore[no-any-return]

        def is_contiguous(self) -> bool:
            return True

        def stride(self) -> tuple[int, ...]:
            return (1,)

        def element_size(self) -> int:
            return 4

        def storage_offset(self) -> int:
            return 0

        def is_conj(self) -> bool:
            return False

        def get_device(self) -> int:
            return 0

    class Stream:  # as `cupy.cuda.Stream`
        __slots__ = ("ptr",)
        __module__ = "cupy.cuda.stream"

        def __init__(self, ptr: int) -> None:
            self.ptr = ptr

    class Interface:
        def __init__(self) -> None:
            address = library.fake_allocate(ctypes.c_uint64(4096), 0)
            self.__cuda_array_interface__ = {
                "version": 3, "typestr": "<f4", "shape": (peers.ELEMENTS,), "strides": None, "data": (address, False),
                "stream": None,
            }  # fmt: skip

    sys.modules["cupy"].ndarray = ndarray  # type: ignore[attr-defined]
    sys.modules["cupy"].cuda.MemoryPointer = _Pointer
    streams = [Stream(0x100000 + 64 * at) for at in range(GRIDS)]
    classes = {"default": Interface, "cupy": ndarray, "torch": Tensor}
    return types.SimpleNamespace(
        arrays={name: lambda kind=kind: [kind() for _ in range(3)] for name, kind in classes.items()},
        kernel=importlib.import_module("launched.kernels").axpy,
        streams=lambda library: streams if library == "cupy" else [None],
        synchronize=lambda: None,
    )


def _make_stand_in(folder: Path) -> None:
    sys.path[:0] = [str(ROOT / "tests")]
    from support import manifests

    source = ROOT / "tests" / "support" / "fake_libcuda.c"
    command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(folder / "libcuda.so.1"), str(source), "-lpthread"]
    subprocess.run(command, check=True)
    signature = "void(float32, float32[::1], float32[::1], float32[::1])"
    manifests.write(folder, [manifests.kernel("axpy", signature)], name="launched.kernels")


# ---------------------------------------------------------------------------------------------------- all the processes


def run(arguments: Any) -> int:
    """Start the processes, let them take turns, and report."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stand_in = arguments.stand_in or machine.driver() is None
        if stand_in:
            _make_stand_in(folder)
        installs = {"aotcuda": None, **({"baseline": arguments.baseline} if arguments.baseline else {})}
        ways = {
            f"{install}, {path}": (path_of, extension)
            for install, path_of in installs.items()
            for path, extension in (("C", "1"), ("Python", "0"))
        }
        if not stand_in:
            ways["peers"] = (None, "1")
        processes = {way: _start(way, *given, folder, stand_in=stand_in) for way, given in ways.items()}
        missing = {
            f"{way}: {name}": text for way, process in processes.items() for name, text in _answer(process, way).items()
        }
        samples: dict[str, dict[str, list[float]]] = {}
        for block in range(arguments.blocks + 1):  # the first one warms up
            for way, process in processes.items():
                process.stdin.write("\n")
                process.stdin.flush()
                for launch, value in _answer(process, way).items():
                    if block:
                        samples.setdefault(launch, {}).setdefault(way, []).append(round(value, 3))
        for process in processes.values():
            process.stdin.close()
            process.wait()
    figures = {launch: {way: _spread(values) for way, values in found.items()} for launch, found in samples.items()}
    columns = [*processes]
    machine.table(
        ("us of a call", *columns),
        [
            (
                launch,
                *("{:.2f} ({:.2f}-{:.2f})".format(*found[way].values()) if way in found else "" for way in columns),
            )
            for launch, found in figures.items()
        ],
    )
    return machine.report(
        arguments.out,
        machine.describe(),
        _met(figures),
        missing,
        unit="microseconds of host time of one call: median, first and third quartile over the blocks",
        blocks=arguments.blocks,
        batch=GRIDS * ROUNDS,
        stand_in=stand_in,
        peers=peers.versions(),
        figures=figures,
        samples=samples,
    )


def _spread(values: list[float]) -> dict[str, float]:
    q1, _, q3 = quantiles(values, n=4) if len(values) > 1 else values * 3
    return {"median": round(median(values), 3), "q1": round(q1, 3), "q3": round(q3, 3)}


def _met(figures: dict[str, Any]) -> dict[str, bool]:
    met = {}
    for launch, found in figures.items():
        library, _, name = launch.partition(": ")
        for changing, fixed, most in _AIMS:
            base = figures.get(f"{library}: {fixed}", {})
            if name == changing and "aotcuda, C" in found and "aotcuda, C" in base:
                more = found["aotcuda, C"]["median"] - base["aotcuda, C"]["median"]
                met[f"C, {library}: {changing}: at most {most} us more than {fixed}"] = more <= most
        if library == "cupy" and "peers" in found and "aotcuda, Python" in found:
            ours, theirs = found["aotcuda, Python"]["median"], found["peers"]["median"]
            met[f"Python, {launch}: no more than RawKernel"] = ours <= theirs
        for way in ("C", "Python"):
            if f"baseline, {way}" in found and f"aotcuda, {way}" in found:
                met[f"{way}, {launch}: no slower than the baseline, within the spread"] = (
                    found[f"aotcuda, {way}"]["q1"] <= found[f"baseline, {way}"]["q3"]
                )
    return met


def _start(way: str, install: Path | None, extension: str, folder: Path, *, stand_in: bool) -> Any:
    path = [*([str(install)] if install else []), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "AOTCUDA_EXTENSION": extension, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    if stand_in:
        environment["AOTCUDA_BENCH_STAND_IN"] = str(folder)
    worker = "peers" if way == "peers" else "aotcuda"
    command = [sys.executable, str(Path(__file__).with_name("launch.py")), "--worker", worker]
    command += ["--stand-in"] if stand_in else []
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _answer(process: Any, way: str) -> dict[str, Any]:
    line = process.stdout.readline()
    if not line:
        sys.exit(f"the process of {way} ended with status {process.wait()}")
    return json.loads(line)  # type: ignore[no-any-return]
