"""Compare aotcuda with C and other tools: the time from the start of a process to its first result on the GPU.

Each run is a fresh process. `bench/cold_programs.py` has the programs and defines the parts of the time. `total` is
the time from the start of the process, imports included. All programs need tenths of a second to start the process and
the driver and to make the data; the part `beyond` is the time without these. The context is made before the packaged
module is imported, because an import with `load = "import"` starts the driver.

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

import cold_programs
import machine
from cold_programs import Program

_COMMON = ("start", "context", "data")
_CACHES = ("CUPY_CACHE_DIR", "TRITON_CACHE_DIR", "WARP_CACHE_PATH", "NUMBA_CACHE_DIR")
_LIMIT_MS = 15
_TIMEOUT_S = 120

Parts = dict[str, float]


def main() -> int:
    parser = machine.parser(__doc__, "cold_start")
    parser.add_argument("--runs", type=int, default=9, help="runs of C and of aotcuda (%(default)s)")
    parser.add_argument("--peer-runs", type=int, default=5, help="runs of the other tools; 0 skips them (%(default)s)")
    arguments = parser.parse_args()
    here = machine.describe()
    if machine.driver() is None:
        sys.exit("this needs a GPU and its driver")
    missing: dict[str, str] = {}
    programs = {}
    for name, program in {**cold_programs.OURS, **(cold_programs.PEERS if arguments.peer_runs else {})}.items():
        if not program.module or _installed(program.module):
            programs[name] = program
        else:
            missing[name] = f"{program.module} is not installed"
    runs = {name: arguments.peer_runs if name in cold_programs.PEERS else arguments.runs for name in programs}
    with tempfile.TemporaryDirectory() as folder:
        samples, notes = _measure(programs, runs, Path(folder), missing)
    figures = {name: _figures(items) for name, items in samples.items()}

    parts = [part for part in cold_programs.PARTS if any(part in item for item in figures.values())]
    machine.table(
        ("ms", *parts),
        [(name, *(item.get(part, "") for part in parts)) for name, item in figures.items()],
    )
    for name, note in notes.items():
        print(f"{name}: {note}")
    limits = {}
    for name in ("aotcuda, first-use", "aotcuda, import"):
        if name in figures:
            limits[f"{name}: at most {_LIMIT_MS} ms beyond the driver's own start"] = (
                figures[name]["beyond"] <= _LIMIT_MS
            )
    return machine.report(
        arguments.out,
        here,
        limits,
        missing,
        unit="ms",
        peers=machine.peers(),
        figures=figures,
        notes=notes,
        samples=samples,
    )


def _measure(
    programs: dict[str, Program], runs: dict[str, int], folder: Path, missing: dict[str, str]
) -> tuple[dict[str, list[Parts]], dict[str, Any]]:
    """Return the parts of each program's runs, and its notes. Add programs that fail to `missing`."""
    cold_programs.write_probes(folder / "probes")
    c_program = _compile(folder)
    found: dict[str, list[Parts]] = {name: [] for name in programs}
    notes: dict[str, Any] = {}
    for turn in range(max(runs.values()) + 1):
        for name, program in programs.items():
            if name in missing or turn > runs[name]:
                continue
            try:
                parts, result, remarks = _run(program, c_program, folder / "probes", folder / name)
            except _ProgramError as error:
                missing[name] = str(error)
                continue
            if result != cold_programs.RESULT:
                sys.exit(f"{name} gave {result}")
            common = sum(parts[part] for part in _COMMON)
            parts["total"] = sum(parts.values())
            parts["beyond"] = parts["total"] - common
            if remarks:
                notes[name] = remarks
            if turn:  # the first run fills the caches of files and of other tools
                found[name].append({part: round(value, 3) for part, value in parts.items()})
    return {name: items for name, items in found.items() if items}, notes


def _figures(items: list[Parts]) -> Parts:
    """Return the median of each part, and the quartiles of `beyond` and `total`."""
    found = {part: round(median([item[part] for item in items]), 2) for part in items[0]}
    for part in ("beyond", "total"):
        spread = machine.summary([item[part] for item in items])
        found |= {f"{part}_{end}": round(spread[end], 2) for end in ("q1", "q3")}
    return found


class _ProgramError(Exception):
    """A program failed. The message is the last line of its output."""


def _run(
    program: Program, c_program: Path | None, probes: Path, cache: Path
) -> tuple[Parts, list[float], dict[str, Any]]:
    """Run a program; return the milliseconds of its parts, its result and its notes."""
    if program.code:
        command = [sys.executable, "-c", program.code]
    elif c_program is not None:
        command = [str(c_program), str(cold_programs.packaged())]
    else:
        message = "no C compiler"
        raise _ProgramError(message)
    path = os.pathsep.join([str(probes), os.environ.get("PYTHONPATH", "")])
    cache.mkdir(exist_ok=True)
    environment = machine.environment(PYTHONPATH=path, **dict.fromkeys(_CACHES, str(cache)), **program.environment)
    begin = time.monotonic()
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        message = f"no result in {_TIMEOUT_S} s"
        raise _ProgramError(message) from None
    if done.returncode:
        raise _ProgramError((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:200])
    marks, result, notes = json.loads(done.stdout.splitlines()[-1])
    parts: Parts = {}
    for name, at in marks:
        parts[name] = parts.get(name, 0) + (at - begin) * 1e3
        begin = at
    return parts, result, notes


def _compile(folder: Path) -> Path | None:
    """Compile the program in C; return its path, or None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source, program = folder / "cold.c", folder / "cold"
    source.write_text(cold_programs.c_program(), encoding="utf-8")
    # Calls through `int (*)()` are not C23.
    subprocess.run([compiler, "-std=gnu11", "-O2", "-o", program, source, "-ldl"], check=True)
    return program


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package is not installed
        return False


if __name__ == "__main__":
    sys.exit(main())
