"""Compare launches of aotcuda with those of other tools: microseconds of host time of one call.

One scalar and three arrays of 1,000 elements. Each way has a process of its own: aotcuda with and without its C
extension, the same for another installed aotcuda (`--baseline`), and the peers. The processes take turns: in each
block, every process measures each of its launches once, in a batch that begins with an idle GPU.

    python -m build -nw bench/kernels -o /tmp/bench && pip install /tmp/bench/*.whl  # on any machine with aotcuda[cu13]
    python bench/launch.py                                                        # on a machine with a GPU

`--tvm-ffi` takes the library of bench/tvm_ffi/axpy.cc (which says how to make it), `--baseline` a folder of
`pip install --target`. Without a GPU, or with `--stand-in`, launches go to the stand-in driver of the tests, with
stand-ins for the arrays; then the processor time of the thread is measured, and there are no peers.
"""

from __future__ import annotations

import argparse
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
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Batches = Iterator[tuple[str, Callable[[], float]]]

ROOT = Path(__file__).resolve().parents[1]
GRIDS = 300
ROUNDS = 4
"""A batch has `GRIDS * ROUNDS` launches, fewer than fill the queue of a stream twice."""

ELEMENTS = 1000
ARGUMENTS = "2.0, a0, a1, a2"
LAUNCHES = {
    "stored launcher": f"f({ARGUMENTS})",
    "one grid": f"k[8, 128]({ARGUMENTS})",
    "300 grids": f"k[item, 128]({ARGUMENTS})",
    "300 grids, tuples": f"k[(item, 2), (32, 4)]({ARGUMENTS})",
    "one stream object": f"k[8, 128, stream]({ARGUMENTS})",
    "300 stream objects": f"k[8, 128, item]({ARGUMENTS})",
    "forall, one n": f"k.forall(1000)({ARGUMENTS})",
    "forall, 300 n": f"k.forall(item)({ARGUMENTS})",
    "cooperative, 300 grids": f"k.configure(item, 128, cooperative=True)({ARGUMENTS})",
}
_AIMS = (
    ("300 grids", "one grid", 0.5),
    ("300 stream objects", "one stream object", 0.5),
    ("forall, one n", "one grid", 1.0),
)

ORDERED_BY_HAND = (
    "event.record(null); item.wait_event(event); item.use(); k((8,), (128,), (f32(2.0), a0, a1, a2, i64(1000))); "
    "null.use(); event.record(item); null.wait_event(event)"
)
"""The launch of RawKernel on a stream, with the order of streams that aotcuda's launches have."""

_CUDA = """
extern "C" __global__ void probe(float a, float *x0, float *x1, float *x2, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        x0[i] = a * x0[i] + x1[i] + x2[i];
}
"""
_SOURCES = {
    "numba": """
from numba import cuda

@cuda.jit
def probe(a, x0, x1, x2):
    i = cuda.grid(1)
    if i < x0.size:
        x0[i] = a * x0[i] + x1[i] + x2[i]
""",
    "triton": """
import triton
import triton.language as tl

@triton.jit
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
"""Kernels of peers that read their source from a file."""


# ---------------------------------------------------------------------------------------------- one process of launches


def work(arguments: Any) -> int:
    """Answer each line of standard input with one JSON line of samples; the first line names what is missing."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        setup = _stand_in(stack) if arguments.stand_in else _gpu()
        missing: dict[str, str] = {}
        batches = {}
        ways = PEERS.get(arguments.worker, _own)
        try:
            batches = dict(ways(setup, folder, missing, arguments))
        except Exception as error:  # noqa: BLE001 (a fault of one peer must not end the others)
            missing["all"] = _line(error)
        for name in [*batches]:
            try:
                for _ in range(3):
                    batches[name]()
            except Exception as error:  # noqa: BLE001 (as above)
                missing[name] = _line(error)
                del batches[name]
        print(json.dumps(missing), flush=True)
        gc.collect()
        gc.disable()
        for _ in sys.stdin:
            samples = {}
            for name, batch in batches.items():
                setup.synchronize()
                samples[name] = batch() / (GRIDS * ROUNDS) * 1e6
            setup.synchronize()
            print(json.dumps(samples), flush=True)
    return 0


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def _own(setup: Any, _: Path, missing: dict[str, str], __: Any) -> Batches:
    """Yield the launches of aotcuda by libraries of arrays."""
    for library, make in setup.arrays.items():
        try:
            values = _named(make())
        except ImportError as error:
            missing[library] = str(error)
            continue
        k = setup.kernel
        streams = setup.streams(library)
        for name, text in LAUNCHES.items():
            items = streams if "stream" in name else [*range(1, GRIDS + 1)]
            if items is not None:
                given = {**values, "k": k, "stream": items[0], "f": k[8, 128]}
                yield f"{library}: {name}", _loop(text, items, given)


def _named(arrays: list[Any]) -> dict[str, Any]:
    return {f"a{at}": array for at, array in enumerate(arrays)}


def _raw_kernel(setup: Any, _: Path, __: dict[str, str], ___: Any) -> Batches:
    import cupy

    k = cupy.RawKernel(_CUDA, "probe")
    values = {**_named(setup.arrays["cupy"]()), "k": k, "f32": cupy.float32, "i64": cupy.int64}
    for name, grid in (("one grid", "8"), ("300 grids", "item")):
        yield f"cupy: {name}", _loop(f"k(({grid},), (128,), (f32(2.0), a0, a1, a2, i64(1000)))", _numbers(), values)
    streams = setup.streams("cupy")
    values |= {"event": cupy.cuda.Event(disable_timing=True), "null": cupy.cuda.Stream.null}
    for name, items in (("one stream object", streams[:1]), ("300 stream objects", streams)):
        yield f"cupy: {name}", _loop(ORDERED_BY_HAND, items, values)


def _triton(setup: Any, folder: Path, _: dict[str, str], __: Any) -> Batches:
    values = {**_named(setup.arrays["torch"]()), "k": _module(folder, "triton").probe}
    for name, grid in (("one grid", "8"), ("300 grids", "item")):
        yield f"torch: {name}", _loop(f"k[({grid},)]({ARGUMENTS}, 1000, 128)", _numbers(), values)


def _tvm_ffi(setup: Any, _: Path, __: dict[str, str], arguments: Any) -> Batches:
    import tvm_ffi as ffi

    module = ffi.load_module(str(arguments.tvm_ffi))
    arrays = setup.arrays["torch"]()
    setup.kernel[8, 128](2.0, *arrays)  # loads it
    kernel = setup.kernel._images.current.table("axpy").overloads[0].kernels[0].kernel
    launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
    module.setup(ctypes.cast(launch, ctypes.c_void_p).value, kernel.value, 8, 128)
    yield "torch: one grid", _loop(f"f({ARGUMENTS})", [0], {**_named(arrays), "f": module.axpy})


def _numba(setup: Any, folder: Path, _: dict[str, str], __: Any) -> Batches:
    k = _module(folder, "numba").probe
    for library in ("numba", "cupy"):
        values = {**_named(setup.arrays[library]()), "k": k}
        for name in ("one grid", "300 grids", "forall, 300 n"):
            yield f"{library}: {name}", _loop(LAUNCHES[name], _numbers(), values)


def _warp(_: Any, folder: Path, __: dict[str, str], ___: Any) -> Batches:
    import warp as wp

    wp.config.log_level = wp.LOG_WARNING
    wp.config.kernel_cache_dir = str(folder / "warp")
    arrays = [wp.zeros(ELEMENTS, dtype=float, device="cuda:0") for _ in range(3)]
    values = {**_named(arrays), "launch": wp.launch, "k": _module(folder, "warp").probe}
    for name, n in (("one grid", "1000"), ("forall, 300 n", "item")):
        yield f"warp: {name}", _loop(f"launch(k, dim={n}, inputs=[{ARGUMENTS}], block_dim=128)", _numbers(), values)


PEERS: dict[str, Callable[..., Batches]] = {
    "RawKernel": _raw_kernel,
    "Triton": _triton,
    "apache-tvm-ffi": _tvm_ffi,
    "numba-cuda": _numba,
    "Warp": _warp,
}


def _numbers() -> list[int]:
    return [*range(1, GRIDS + 1)]


def _module(folder: Path, peer: str) -> Any:
    """Import the kernel's source for a peer from a file."""
    (folder / f"probe_{peer}.py").write_text(_SOURCES[peer], encoding="utf-8")
    sys.path.insert(0, str(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(f"probe_{peer}")


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

        return [cupy.zeros(ELEMENTS, "float32") for _ in range(3)]

    def torch_arrays() -> list[Any]:
        import torch

        return [torch.zeros(ELEMENTS, device="cuda") for _ in range(3)]

    def numba_arrays() -> list[Any]:
        from numba import config, cuda

        config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
        return [cuda.device_array(ELEMENTS, "float32") for _ in range(3)]

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
        arrays={"default": interface_arrays, "cupy": cupy_arrays, "torch": torch_arrays, "numba": numba_arrays},
        kernel=importlib.import_module("benchkernels.kernels").axpy,
        streams=streams,
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
            self.dtype, self.ndim, self.shape, self.strides = np.dtype("f4"), 1, (ELEMENTS,), (4,)
            self.data, self._c_contiguous = _Pointer(library.fake_allocate(ctypes.c_uint64(4096), 0)), True

        def __len__(self) -> int:
            return ELEMENTS

    float32 = libraries.DTYPES["<f4"]

    class Tensor:
        __slots__ = ("_address", "dtype", "is_cuda", "shape")
        __module__ = "torch"

        def __init__(self) -> None:
            self._address, self.dtype = library.fake_allocate(ctypes.c_uint64(4096), 0), float32
            self.is_cuda, self.shape = True, (ELEMENTS,)

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
                "version": 3, "typestr": "<f4", "shape": (ELEMENTS,), "strides": None, "data": (address, False),
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
    here = machine.describe()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stand_in = arguments.stand_in or machine.driver() is None
        if stand_in:
            _make_stand_in(folder)
        installs = {"aotcuda": None, **({"baseline": arguments.baseline} if arguments.baseline else {})}
        ways = {
            f"{install}, {path}": (place, extension)
            for install, place in installs.items()
            for path, extension in (("C", "1"), ("Python", "0"))
        }
        ways |= (
            {} if stand_in else {peer: (None, "1") for peer in PEERS if peer != "apache-tvm-ffi" or arguments.tvm_ffi}
        )
        processes = {way: _start(way, *given, folder, arguments, stand_in=stand_in) for way, given in ways.items()}
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
                        samples.setdefault(launch, {}).setdefault(way, []).append(value)
        for process in processes.values():
            process.stdin.close()
            process.wait()
    figures = {
        launch: {way: machine.summary(values) for way, values in found.items()} for launch, found in samples.items()
    }
    rows = [
        (
            launch,
            *("{median:.2f} ({q1:.2f}-{q3:.2f})".format(**found[way]) if way in found else "" for way in processes),
        )
        for launch, found in figures.items()
    ]
    machine.table(("us of a call", *processes), rows)
    return machine.report(
        arguments.out,
        here,
        _met(figures),
        missing,
        unit="microseconds of host time of one call: median, first and third quartile over the blocks",
        blocks=arguments.blocks,
        batch=GRIDS * ROUNDS,
        stand_in=stand_in,
        peers=machine.peers(),
        figures=figures,
    )


def _met(figures: dict[str, Any]) -> dict[str, bool]:
    met = {}
    for launch, found in figures.items():
        library, _, name = launch.partition(": ")
        for changing, fixed, most in _AIMS:
            base = figures.get(f"{library}: {fixed}", {})
            if name == changing and "aotcuda, C" in found and "aotcuda, C" in base:
                more = found["aotcuda, C"]["median"] - base["aotcuda, C"]["median"]
                met[f"C, {library}: {changing}: at most {most} us more than {fixed}"] = more <= most
                if "RawKernel" in found and "RawKernel" in base:  # what the driver takes for the change
                    more -= found["RawKernel"]["median"] - base["RawKernel"]["median"]
                    met[f"C, {library}: {changing}: at most {most} us more than for RawKernel"] = more <= most
        if "RawKernel" in found and "aotcuda, Python" in found:
            ours, theirs = found["aotcuda, Python"]["median"], found["RawKernel"]["median"]
            met[f"Python, {launch}: no more than RawKernel"] = ours <= theirs
        for way in ("C", "Python"):
            if f"baseline, {way}" in found and f"aotcuda, {way}" in found:
                met[f"{way}, {launch}: no slower than the baseline, within the spread"] = (
                    found[f"aotcuda, {way}"]["q1"] <= found[f"baseline, {way}"]["q3"]
                )
    return met


def _start(
    way: str, install: Path | None, extension: str, folder: Path, arguments: argparse.Namespace, *, stand_in: bool
) -> Any:
    path = [*([str(install)] if install else []), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "AOTCUDA_EXTENSION": extension, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    if stand_in:
        environment["AOTCUDA_BENCH_STAND_IN"] = str(folder)
    command = [sys.executable, __file__, "--worker", way]
    command += ["--stand-in"] if stand_in else []
    command += ["--tvm-ffi", str(arguments.tvm_ffi)] if arguments.tvm_ffi else []
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _answer(process: Any, way: str) -> dict[str, Any]:
    line = process.stdout.readline()
    if not line:
        sys.exit(f"the process of {way} ended with status {process.wait()}")
    return json.loads(line)  # type: ignore[no-any-return]


def main() -> int:
    parser = machine.parser(__doc__, "launch")
    parser.add_argument("--blocks", type=int, default=9)
    parser.add_argument("--tvm-ffi", type=Path, metavar="LIBRARY", help="the library of bench/tvm_ffi/axpy.cc")
    parser.add_argument("--baseline", type=Path, metavar="FOLDER", help="another installed aotcuda")
    parser.add_argument("--stand-in", action="store_true", help="launch on the stand-in driver")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    return work(arguments) if arguments.worker else run(arguments)


if __name__ == "__main__":
    sys.exit(main())
