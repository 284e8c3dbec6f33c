"""Compare the time from the start of a process to its first result on the GPU with C and other tools, in parts.

Each run is a fresh process; `bench/cold_ways.py` has the programs and defines the parts. The start of the driver and of
its context is the same for all and takes tenths of a second. So `beyond` is the time without it, without the start of
the process and without the program's data. The context is made before the packaged module is imported, since an import
with `load = "import"` starts the driver.

    python bench/cold_start.py                     # needs a GPU and the wheel of bench/kernels, installed
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import cold_ways
import machine
import peers
from cold_ways import Way

_COMMON = ("start", "context", "data")
_CACHES = ("CUPY_CACHE_DIR", "TRITON_CACHE_DIR", "WARP_CACHE_PATH", "NUMBA_CACHE_DIR")
_LIMIT = 15
_TIMEOUT = 120

Parts = dict[str, float]


def main() -> int:
    parser = machine.parser(__doc__, "cold_start")
    parser.add_argument("--runs", type=int, default=9, help="of C and of this project (%(default)s)")
    parser.add_argument("--peer-runs", type=int, default=3, help="of the others; 0 leaves them out (%(default)s)")
    arguments = parser.parse_args()
    here = machine.describe()
    if machine.driver() is None:
        sys.exit("this needs a GPU and its driver")
    missing: dict[str, str] = {}
    ways = dict(cold_ways.OURS)
    if arguments.peer_runs:
        for name, way in cold_ways.PEERS.items():
            if _installed(way.module):
                ways[name] = way
            else:
                missing[name] = f"{way.module} is not installed"
    runs = {name: arguments.peer_runs if name in cold_ways.PEERS else arguments.runs for name in ways}
    with tempfile.TemporaryDirectory() as folder:
        figures, notes = _measure(ways, runs, Path(folder), missing)

    parts = [part for part in cold_ways.PARTS if any(part in item for item in figures.values())]
    machine.table(
        ("ms", *parts),
        [(name, *(item.get(part, "") for part in parts)) for name, item in figures.items()],
    )
    for name, note in notes.items():
        print(f"{name}: {note}")
    met = {}
    for name in ("aotcuda, first-use", "aotcuda, import"):
        if name in figures:
            met[f"{name}: at most {_LIMIT} ms beyond the driver's own start"] = figures[name]["beyond"] <= _LIMIT
    return machine.report(
        arguments.out, here, met, missing, unit="ms", peers=peers.versions(), figures=figures, notes=notes
    )


def _measure(
    ways: dict[str, Way], runs: dict[str, int], folder: Path, missing: dict[str, str]
) -> tuple[dict[str, Parts], dict[str, Any]]:
    """Return medians of the parts and notes of each way; ways that fail here are added to `missing`."""
    cold_ways.write_probes(folder / "probes")
    program = _compile(folder)
    found: dict[str, list[Parts]] = {name: [] for name in ways}
    notes: dict[str, Any] = {}
    for turn in range(max(runs.values()) + 1):
        for name, way in ways.items():
            if name in missing or turn > runs[name]:
                continue
            try:
                parts, result, remarks = _run(way, program, folder / "probes", folder / name)
            except _FailedError as error:
                missing[name] = str(error)
                continue
            if result != cold_ways.RESULT:
                sys.exit(f"{name} gave {result}")
            parts["beyond"] = sum(value for part, value in parts.items() if part not in _COMMON)
            if remarks:
                notes[name] = remarks
            if turn:  # the first one fills the caches of files and of peers
                found[name].append(parts)
    return {name: _figures(items) for name, items in found.items() if items}, notes


def _figures(items: list[Parts]) -> Parts:
    """Return the median of each part, and the quartiles of `beyond`."""
    spread = machine.summary([item["beyond"] for item in items])
    medians = {part: round(median([item[part] for item in items]), 2) for part in items[0]}
    return {**medians, "beyond_q1": round(spread["q1"], 2), "beyond_q3": round(spread["q3"], 2)}


class _FailedError(Exception):
    """A program failed; the text is its last output."""


def _run(way: Way, program: Path | None, probes: Path, cache: Path) -> tuple[Parts, list[float], dict[str, Any]]:
    """Return the milliseconds of each part, the result, and the notes of one run."""
    if way.code:
        command = [sys.executable, "-c", way.code]
    elif program is not None:
        command = [str(program), str(cold_ways.packaged())]
    else:
        message = "no C compiler"
        raise _FailedError(message)
    path = os.pathsep.join([str(probes), os.environ.get("PYTHONPATH", "")])
    cache.mkdir(exist_ok=True)
    environment = machine.environment(PYTHONPATH=path, **dict.fromkeys(_CACHES, str(cache)), **way.environment)
    begin = time.monotonic()
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        message = f"no result in {_TIMEOUT} s"
        raise _FailedError(message) from None
    if done.returncode:
        raise _FailedError((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:200])
    marks, result, notes = json.loads(done.stdout.splitlines()[-1])
    parts: Parts = {}
    for name, at in marks:
        parts[name] = (at - begin) * 1e3
        begin = at
    return parts, result, notes


def _compile(folder: Path) -> Path | None:
    """Return the program in C, compiled; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source, program = folder / "cold.c", folder / "cold"
    source.write_text(cold_ways.c_program(), encoding="utf-8")
    # Calls through `int (*)()` are not C23.
    subprocess.run([compiler, "-std=gnu11", "-O2", "-o", program, source, "-ldl"], check=True)
    return program


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package above it
        return False


if __name__ == "__main__":
    sys.exit(main())
