"""Measure the host time of a launch in microseconds, and compare aotcuda with C and every installed peer.

All ways launch the same kernel in the same process, in turns, in batches that the driver's queue can hold, with the GPU
idle before each; a figure is the median over the turns. Those that matter are the differences to C.

    python bench/prepare.py /tmp/bench && pip install /tmp/bench/*.whl     # on any machine with aotcuda[cu13]
    python bench/launch.py                                                 # on a machine with a GPU
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import machine
import peers

if TYPE_CHECKING:
    from collections.abc import Callable

_BATCH = 256  # the queue of a stream holds about a thousand
_BASE = "C, one buffer"
_LIMITS = {"aotcuda, C": 1.0, "aotcuda, Python": 5.0}
_ROUND = 1000  # launches with the same arrays, when many are made to see whether the memory grows
# What the memory may grow by: a byte for each of a million launches, and less than an object for each round of them.
_FLAT = {"kilobytes": 1024, "objects": 999}


def main() -> int:
    parser = machine.parser(__doc__, "launch")
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--counts", type=int, nargs="*", default=[0, 1, 4, 8, 16], help="numbers of arrays")
    parser.add_argument("--only", nargs="*", metavar="TEXT", help="only C, and ways with one of these in the name")
    parser.add_argument("--launches", type=int, default=1_000_000, help="after which the memory's growth is looked at")
    arguments = parser.parse_args()
    here = machine.describe()
    synchronize = machine.synchronize()
    kernels = importlib.import_module("benchkernels.kernels")
    cases = {"axpy": ("axpy", 3)} | {f"{count} arrays": (f"arrays{count}", count) for count in arguments.counts}
    figures: dict[str, dict[str, dict[str, float]]] = {}
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for title, (name, count) in cases.items():
            case = peers.Case(kernels, name, count, Path(folder))
            batches = _batches(case, missing, arguments.only)
            figures[title] = _measure(batches, arguments.turns, synchronize)
            _print(title, figures[title])
    overloads = _overloads(kernels, arguments.turns, synchronize)
    growth = _growth(kernels, arguments.launches // _ROUND, synchronize)

    met = {}
    for way, limit in _LIMITS.items():
        for library in ("cupy", "torch"):
            found = figures["axpy"].get(f"{way}, {library}")
            if found is not None:
                met[f"{way}, {library}: at most {limit} us over C"] = found["over_c"] <= limit
    for way, grown in growth.items():
        flat = all(grown[what] <= most for what, most in _FLAT.items())
        met[f"{way}: memory flat over {grown['launches']:,} launches"] = flat
    machine.verdicts(met, missing)
    machine.write(
        arguments.out,
        here,
        unit="microseconds of host time a launch",
        batch=_BATCH,
        peers=peers.versions(),
        figures=figures,
        overloads=overloads,
        memory=growth,
        missing=missing,
        measures=met,
    )
    return 0 if all(met.values()) else 1


def _batches(case: peers.Case, missing: dict[str, str], only: list[str] | None) -> dict[str, peers.Batch]:
    """Every way to launch this kernel that works here, each as a function from a number of launches to seconds."""
    found: dict[str, peers.Batch] = {}
    arrays = case.cupy() if _has("cupy") else case.torch() if _has("torch") else case.numba()
    for name, batch in peers.c_batches(case, arrays):
        try:
            batch(3)
        except peers.MissingError as error:
            missing.setdefault(name, str(error))
        else:
            found[name] = batch
    for make_all in (peers.aotcuda_launches, peers.others, peers.warps):
        for name, make in make_all(case):
            if only and not any(text in name for text in only):
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    function, args = make()
                    batch = peers.called(function, args)
                    batch(3)
            except Exception as error:  # noqa: BLE001 (whatever is wrong with a peer must not end the others)
                missing.setdefault(name, f"{type(error).__name__}: {error}".splitlines()[0][:200])
            else:
                found[name] = batch
    return found


def _measure(
    batches: dict[str, peers.Batch], turns: int, synchronize: Callable[[], object]
) -> dict[str, dict[str, float]]:
    """By way: median and least microseconds a launch, and what it takes more than C."""
    times: dict[str, list[float]] = {name: [] for name in batches}
    for turn in range(turns + 2):
        for name, batch in batches.items():
            synchronize()
            seconds = batch(_BATCH)
            if turn >= 2:
                times[name].append(seconds / _BATCH * 1e6)
    synchronize()
    base = median(times[_BASE])
    return {
        name: {
            "median": round(median(values), 3),
            "min": round(min(values), 3),
            "over_c": round(median(values) - base, 3),
            "ratio": round(median(values) / base, 2),
        }
        for name, values in times.items()
    }


def _overloads(kernels: Any, turns: int, synchronize: Callable[[], object]) -> dict[str, float]:
    """One overload against twelve, and against twelve whose types change from launch to launch."""
    if not _has("cupy"):
        return {}
    import cupy

    single = [cupy.zeros(peers.ELEMENTS, "float32") for _ in range(3)]
    double = [cupy.zeros(peers.ELEMENTS, "float64") for _ in range(3)]
    one, many = kernels.axpy[peers.GRID, peers.BLOCK], kernels.axpy_many[peers.GRID, peers.BLOCK]

    def alternate() -> None:
        many(2.0, *single)
        many(2.0, *double)

    batches = {
        "one overload": peers.called(one, (2.0, *single)),
        "the last of twelve": peers.called(many, (2.0, *single)),
        "two of twelve in turn, each": lambda count: peers.called(alternate, ())(count // 2),
    }
    times: dict[str, list[float]] = {name: [] for name in batches}
    for _ in range(turns):
        for name, batch in batches.items():
            synchronize()
            times[name].append(batch(_BATCH) / _BATCH * 1e6)
    found = {name: round(median(values), 3) for name, values in times.items()}
    print("\nOverloads, us a launch")
    machine.table(("", "us"), list(found.items()))
    return found


def _growth(kernels: Any, rounds: int, synchronize: Callable[[], object]) -> dict[str, dict[str, int]]:
    """Return the growth of the process in many launches, in kilobytes and in blocks of Python's allocator.

    Each round has arrays and a launcher of its own, of CuPy and PyTorch in turn, so that what a launch keeps of its
    arguments shows too.
    """
    libraries = [name for name in ("cupy", "torch") if _has(name)]
    if not libraries or not rounds:
        return {}
    case = peers.Case(kernels, "axpy", 3, Path())
    found: dict[str, dict[str, int]] = {}
    for way, make in peers.launchers(case).items():

        def launch(count: int, make: Callable[[], Callable[..., object]] = make) -> None:
            for number in range(count):
                peers.called(make(), (2.0, *getattr(case, libraries[number % len(libraries)])()))(_ROUND)
                synchronize()

        try:
            launch(20)  # pools and caches have what they keep
        except peers.MissingError:
            continue
        gc.collect()
        kilobytes, objects = machine.resident(), sys.getallocatedblocks()
        begin = time.perf_counter()
        launch(rounds)
        seconds = time.perf_counter() - begin
        gc.collect()
        found[way] = {
            "launches": rounds * _ROUND,
            "kilobytes": machine.resident() - kilobytes,
            "objects": sys.getallocatedblocks() - objects,
        }
        grown = f"{found[way]['kilobytes']:+d} kB, {found[way]['objects']:+d} objects"
        print(f"\n{way}, memory after {rounds * _ROUND:,} launches ({seconds:.1f} s): {grown}")
    return found


def _print(title: str, figures: dict[str, dict[str, float]]) -> None:
    print(f"\n{title}, us a launch")
    rows: list[tuple[object, ...]] = [
        (name, item["median"], item["min"], item["over_c"], item["ratio"]) for name, item in figures.items()
    ]
    machine.table(("", "median", "min", "over C", "times C"), rows)
    sys.stdout.flush()


def _has(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


if __name__ == "__main__":
    sys.exit(main())
