"""Compare launches of aotcuda with C, CuPy, Triton, Warp, Numba and apache-tvm-ffi: microseconds of host time.

One scalar and three arrays. Each block is a batch of launches from C and one by each way, in turn, on one stream, with
the GPU idle before each. The figure is the median over the blocks of the time above C in the same block, with the
quartiles of these differences. Inside `with stream`, that stream is the library's current one.

If a stream is given and another one is current, the launch has to wait for the current one, as the protocols of arrays
ask, and CuPy's current stream has to wait for the launch. One row is C that does this by the same calls of the driver;
`over_c_ordered` is the time above that row.

    python -m build -nw bench/kernels -o /tmp/bench && pip install /tmp/bench/*.whl  # on any machine with aotcuda[cu13]
    python bench/launch.py                                                        # on a machine with a GPU
    AOTCUDA_EXTENSION=0 python bench/launch.py --out docs/results/launch_python.json    # the general path

With `--grids`, grids, streams and numbers of elements change instead (see `grids.py`), also without a GPU:

    python bench/launch.py --grids [--baseline FOLDER]    # FOLDER: another aotcuda, by `pip install --target FOLDER`

With `--tvm-ffi`, the library of bench/tvm_ffi/axpy.cc (which says how to make it) is compared too.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import importlib
import sys
import tempfile
import warnings
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import grids
import machine
import peers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BATCH = 256
_LEGACY = 1  # CU_STREAM_LEGACY, the default stream
_TARGETS = {"C": {"default": 0.4, "side": 1.0}, "Python": {"default": 5.0, "side": 7.0}}
_SITUATIONS = ("default", "current", "given", "given, other current")


def main() -> int:
    parser = machine.parser(__doc__, "launch_c")
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--only", nargs="*", default=[], metavar="TEXT", help="ways with one of these in the name")
    parser.add_argument("--tvm-ffi", type=Path, help="the library of bench/tvm_ffi/axpy.cc")
    parser.add_argument("--grids", action="store_true", help="change grids, streams and numbers of elements")
    parser.add_argument("--baseline", type=Path, metavar="FOLDER", help="with --grids: another installed aotcuda")
    parser.add_argument("--stand-in", action="store_true", help="with --grids: launch on the stand-in driver")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return grids.work(arguments)
    if arguments.grids:
        return grids.run(arguments)
    here = machine.describe()
    extension = importlib.import_module("aotcuda.runtime.launch.fast")  # the baseline may have another layout
    path = "C" if extension.in_use() is not None else "Python"
    kernels = importlib.import_module("benchkernels.kernels")
    figures: dict[str, dict[str, dict[str, float]]] = {}
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        case = peers.Case(kernels, Path(folder))
        for library in ("cupy", "torch", "numba"):
            for situation in _SITUATIONS:
                name = f"{library}, {situation}"
                try:
                    with _situation(library, situation) as stream:
                        figures[name] = _compare(case, library, situation, stream, arguments, missing)
                except ImportError as error:
                    missing[library] = str(error)
                    break
                _print(name, figures[name])
    met = {}
    for name, found in figures.items():
        library, _, situation = name.partition(", ")
        limit = _TARGETS[path]["default" if situation == "default" else "side"]
        for way, item in found.items():
            if way.startswith("aotcuda"):
                met[f"{name}: {way}: at most {limit} us over C"] = item["over_c"] <= limit
                if "over_c_ordered" in item:
                    met[f"{name}: {way}: at most {limit} us over C that orders both"] = item["over_c_ordered"] <= limit
                peer = found.get("apache-tvm-ffi")
                if situation == "default" and peer is not None and path == "C":
                    met[f"{name}: {way}: no more than apache-tvm-ffi, within the spread"] = item["q1"] <= peer["q3"]
    return machine.report(
        arguments.out,
        here,
        met,
        missing,
        unit="microseconds of host time a launch; over_c is the median of paired differences, q1, q3 their quartiles; "
        "over_c_ordered, q1_ordered, q3_ordered the same over C whose launches order the two streams, too",
        batch=_BATCH,
        blocks=arguments.blocks,
        fast_path=path,
        peers=peers.versions(),
        figures=figures,
    )


@contextlib.contextmanager
def _situation(library: str, situation: str) -> Iterator[Any]:
    """Yield the stream of the launches, None for the default stream; make it current unless another one is current."""
    if situation == "default":
        yield None
        return
    if library == "torch":
        import torch

        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream) if "other" not in situation else contextlib.nullcontext():
            yield stream
        return
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream if "other" not in situation else contextlib.nullcontext():
        yield stream


def _handle(stream: Any) -> int:
    return 0 if stream is None else int(getattr(stream, "ptr", None) or stream.cuda_stream)


def _compare(
    case: peers.Case, library: str, situation: str, stream: Any, arguments: Any, missing: dict[str, str]
) -> dict[str, dict[str, float]]:
    if library == "numba" and situation == "current":
        return {}  # Numba has no current stream
    arrays = getattr(case, library)()
    other = _ordered_before(library, situation)
    by_c = dict(peers.c_batches(case, arrays, _handle(stream), other, mutual=library == "cupy"))
    base, ordered = next(iter(by_c.values())), by_c.get(peers.ORDERED)
    base(3)
    ways: dict[str, peers.Batch] = {}
    for name, make in _ways(case, library, situation, stream, arrays, arguments.tvm_ffi):
        if arguments.only and not any(text in name for text in arguments.only):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                batch = make()
                batch(3)
        except Exception as error:  # noqa: BLE001 (a fault of one peer must not end the others)
            missing.setdefault(
                f"{name}, {library}, {situation}", f"{type(error).__name__}: {error}".splitlines()[0][:200]
            )
        else:
            ways[name] = batch
    synchronize = machine.synchronize()
    if ordered is not None:
        ordered(3)
        ways = {peers.ORDERED: ordered, **ways}
    differences: dict[str, list[float]] = {name: [] for name in ways}
    bases = []
    gc.collect()
    gc.disable()
    for block in range(arguments.blocks + 3):
        synchronize()
        least = base(_BATCH)
        for name, batch in ways.items():
            synchronize()
            seconds = batch(_BATCH)
            if block >= 3:
                differences[name].append((seconds - least) / _BATCH * 1e6)
        if block >= 3:
            bases.append(least / _BATCH * 1e6)
    gc.enable()
    synchronize()
    figures = {"C": {"median": round(median(bases), 3)}}
    for name, values in differences.items():
        figures[name] = _spread(values, "over_c", "q1", "q3")
        if ordered is not None and name != peers.ORDERED:
            over = [value - more for value, more in zip(values, differences[peers.ORDERED], strict=True)]
            figures[name] |= _spread(over, "over_c_ordered", "q1_ordered", "q3_ordered")
    return figures


def _spread(values: list[float], middle: str, first: str, third: str) -> dict[str, float]:
    q1, _, q3 = quantiles(values, n=4)
    return {middle: round(median(values), 3), first: round(q1, 3), third: round(q3, 3)}


def _ordered_before(library: str, situation: str) -> int | None:
    """Return the stream that a launch has to wait for, or None; Numba's arrays are on no stream here."""
    return _LEGACY if "other" in situation and library != "numba" else None


def _ways(  # noqa: PLR0915 (a few lines for each way)
    case: peers.Case, library: str, situation: str, stream: Any, arrays: list[Any], tvm_ffi: Path | None
) -> Iterator[tuple[str, Callable[[], peers.Batch]]]:
    """Yield every way to launch on a stream with a library's arrays."""
    has_stream = situation.startswith("given")
    brackets = "grid, block, stream" if has_stream else "grid, block"
    values = {"k": case.packaged, "stream": stream, "grid": peers.GRID, "block": peers.BLOCK}

    def kept() -> peers.Batch:
        run = case.packaged[(peers.GRID, peers.BLOCK, stream) if has_stream else (peers.GRID, peers.BLOCK)]
        return peers.loop("f({args})", arrays, f=run)

    def written_out() -> peers.Batch:
        return peers.loop(f"k[{brackets}]({{args}})", arrays, **values)

    def by_handle() -> peers.Batch:
        return peers.loop(f"k[{brackets}]({{args}})", arrays, **{**values, "stream": _handle(stream)})

    yield f"aotcuda, k[{brackets}] kept", kept
    yield f"aotcuda, k[{brackets}](...) each time", written_out
    if has_stream:
        yield "aotcuda, the same with a handle", by_handle

    def numba() -> peers.Batch:
        cuda = peers.numba_cuda()
        module = case.module("numba")
        module.grid = cuda.grid
        kernel = cuda.jit(module.probe)
        where = cuda.external_stream(_handle(stream)) if stream is not None else 0
        return peers.loop("k[grid, block, stream]({args})", arrays, **{**values, "k": kernel, "stream": where})

    yield "numba-cuda, k[grid, block, stream](...)", numba
    if "other" in situation:
        return

    def raw_kernel() -> peers.Batch:
        import cupy

        kernel = cupy.RawKernel(peers.CUDA_SOURCE, "probe")
        values = (cupy.float32(2), *arrays, cupy.int64(peers.ELEMENTS))
        return peers.loop(
            "f(grid, block, values)", [], f=kernel, grid=(peers.GRID,), block=(peers.BLOCK,), values=values
        )

    def triton() -> peers.Batch:
        import triton

        kernel = triton.jit(case.module("triton").probe)
        return peers.loop(
            "k[grid]({args}, n, block)", arrays, **{**values, "k": kernel, "grid": (peers.GRID,), "n": peers.ELEMENTS}
        )

    def through_tvm_ffi() -> peers.Batch:
        import tvm_ffi as ffi

        module = ffi.load_module(str(tvm_ffi))
        driver = ctypes.CDLL("libcuda.so.1")
        plan = case.packaged._images.current.table("axpy").overloads[0]
        kernel = plan.kernels[0].kernel
        address = ctypes.cast(driver.cuLaunchKernel, ctypes.c_void_p).value
        module.setup(address, kernel.value, peers.GRID, peers.BLOCK)
        return peers.loop("f({args})", arrays, f=module.axpy)

    def cuda_core() -> peers.Batch:
        from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

        device = Device()
        device.set_current()
        major, minor = device.compute_capability
        options = ProgramOptions(arch=f"sm_{major}{minor}")
        kernel = Program(peers.CUDA_SOURCE, "c++", options=options).compile("cubin").get_kernel("probe")
        where = device.default_stream if stream is None else Stream.from_handle(_handle(stream))
        pointers = [array.data.ptr for array in arrays]
        config = LaunchConfig(grid=peers.GRID, block=peers.BLOCK)
        values = {f"p{at}": pointer for at, pointer in enumerate(pointers)}
        two, n = ctypes.c_float(2.0), ctypes.c_longlong(peers.ELEMENTS)
        text = f"f(stream, config, kernel, two, {', '.join(values)}, n)"
        return peers.loop(text, [], f=launch, stream=where, config=config, kernel=kernel, two=two, n=n, **values)

    def warp() -> peers.Batch:
        import warp as wp

        wp.config.log_level = wp.LOG_WARNING
        wp.config.kernel_cache_dir = wp.config.kernel_cache_dir or str(case.folder / "warp")
        kernel, device = case.module("warp").probe, wp.get_device("cuda:0")
        own = [wp.zeros(peers.ELEMENTS, dtype=float, device=device) for _ in range(3)]
        where = device.null_stream if stream is None else wp.Stream(device, cuda_stream=_handle(stream))
        text = "f(k, dim=n, inputs=[2.0, a0, a1, a2], stream=stream, block_dim=block)"
        named = {f"a{at}": array for at, array in enumerate(own)}
        return peers.loop(text, [], f=wp.launch, k=kernel, n=peers.ELEMENTS, stream=where, block=peers.BLOCK, **named)

    if library == "cupy":
        yield "CuPy RawKernel (nothing checked)", raw_kernel
        yield "cuda.core.launch (pointers)", cuda_core
        yield "Warp, own arrays", warp
    if library == "torch":
        yield "Triton", triton
        if tvm_ffi is not None:
            yield "apache-tvm-ffi", through_tvm_ffi


def _print(title: str, figures: dict[str, dict[str, float]]) -> None:
    if not figures:
        return
    print(f"\n{title}: C {figures['C']['median']} us a launch")
    rows = [(name, item["over_c"], item["q1"], item["q3"]) for name, item in figures.items() if name != "C"]
    machine.table(("over C, us", "median", "q1", "q3"), rows)
    rows = [(name, *list(item.values())[3:]) for name, item in figures.items() if "over_c_ordered" in item]
    if rows:
        machine.table((f"over {peers.ORDERED}, us", "median", "q1", "q3"), rows)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
