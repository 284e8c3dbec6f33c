"""Measure what `aotcuda inspect` does with inputs that were made to break it: seconds, memory, and how it ends.

Each input of `tests/support/hostile.py`, of at most 16 MB, is given to a process of its own, with a limit of memory and
of time, as a table and as JSON. Then, in processes that do many of them: every flipped bit and every truncation of real
files, and mutated manifests. Nothing may end otherwise than with an answer, or with exit status 1 and one line.

    python bench/hostile_inspect.py                      # all of it: 40 minutes
    python bench/hostile_inspect.py --only 'ptx*'        # the inputs of such names alone, and nothing written
"""

from __future__ import annotations

import fnmatch
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support import hostile

SECONDS, MEBIBYTES = 5, 1024
_TIMEOUT = 60
_ADDRESSES = 8 << 30  # more than may be used, so that what is used can be seen


def main() -> int:
    parser = machine.parser(__doc__, "hostile_inspect")
    parser.add_argument("--only", metavar="PATTERN", help="inputs of these names alone, without fuzzing")
    parser.add_argument("--mutations", type=int, default=15_000)
    arguments = parser.parse_args()
    here = machine.describe()
    empty = _run(["--version"])
    rows = []
    for name in hostile.MAKERS:
        if arguments.only and not fnmatch.fnmatch(name, arguments.only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows += _measure(name, Path(folder), empty["mib"])
    wrong = [row for row in rows if row["wrong"]]
    machine.table(
        ("input", "bytes", "s", "CPU s", "MiB", "exit"),
        [
            (row["input"], row["bytes"], row["seconds"], row["cpu_seconds"], row["mib"], row["exit"])
            for row in rows
            if row["form"] == "table"
        ],
    )
    for row in wrong:
        print(f"WRONG: {row['input']} ({row['form']}): {row['wrong']}: {row['outcome']}")
    slowest, largest = max(rows, key=lambda row: row["cpu_seconds"]), max(rows, key=lambda row: row["mib"])
    print(
        f"\n{len(rows)} runs; slowest: {slowest['input']}, {slowest['cpu_seconds']} s; largest: {largest['input']}, ",
        end="",
    )
    print(f"{largest['mib']} MiB over an empty run")
    if arguments.only:
        return 1 if wrong else 0
    fuzz = _fuzz(arguments.mutations)
    machine.write(arguments.out, here, limits={"seconds": SECONDS, "mib": MEBIBYTES}, inputs=rows, fuzz=fuzz)
    return 1 if wrong or any(part["tracebacks"] for part in fuzz.values()) else 0


def _make(name: str, folder: Path) -> str:
    return hostile.MAKERS[name](folder, hostile.LARGEST)


def _measure(name: str, folder: Path, empty: float) -> list[dict[str, Any]]:
    with ProcessPoolExecutor(max_workers=1) as maker:  # a process is counted as large as the one that started it
        target = maker.submit(_make, name, folder).result()
    size = Path(target).stat().st_size if Path(target).parent == folder and Path(target).is_file() else None
    rows = []
    for form, options in (("table", []), ("summary", ["--summary"]), ("json", ["--json"]), ("header", ["--header"])):
        found = _run(["inspect", *options, target])
        found["outcome"] = found["outcome"].replace(str(Path(target).parent), "...").replace(str(folder), "...")
        row = {"input": name, "form": form, "bytes": size, **found, "mib": round(max(found["mib"] - empty, 0), 1)}
        row["wrong"] = _wrong(row)
        rows.append(row)
    first = rows[0]
    taken = f"{first['seconds']} s ({first['cpu_seconds']} of a core), {first['mib']} MiB"
    print(f"{name}: {taken}, exit {first['exit']}: {first['outcome']}", flush=True)
    return rows


def _wrong(row: dict[str, Any]) -> str:
    if row["exit"] not in (0, 1):
        return f"exit status {row['exit']}"
    if row["exit"] == 1 and (row["lines"] != 1 or not row["outcome"].startswith("aotcuda: ")):
        return "no error of one line"
    if row["exit"] == 0 and row["lines"]:
        return "an answer, and something on standard error"
    if row["escapes"]:
        return "control characters"
    if row["broken"]:
        return "no JSON"
    # On a shared machine only processor time is meaningful.
    if row["cpu_seconds"] > SECONDS or row["seconds"] > _TIMEOUT or row["mib"] > MEBIBYTES:
        return "too large" if row["mib"] > MEBIBYTES else "too slow"
    return ""


def _run(arguments: list[str]) -> dict[str, Any]:
    """One run of the command line in a process of its own."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "aotcuda", *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
            preexec_fn=_limit,  # noqa: PLW1509 (there are no threads)
        )  # fmt: skip
        usage = _wait(process, begin)
        seconds = time.perf_counter() - begin
        out.seek(0)
        errors.seek(0)
        printed, said = out.read(), errors.read().decode(errors="replace")
    lines = said.splitlines()
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "mib": round(usage.ru_maxrss / 1024, 1),
        "exit": process.returncode,
        "lines": len(lines),
        "outcome": (lines[-1] if lines else f"an answer of {len(printed):,} bytes")[:300],
        "escapes": any(character in printed for character in b"\x00\x07\x08\x1b\r\x7f"),
        "broken": "--json" in arguments and process.returncode == 0 and not _is_json(printed),
    }


def _wait(process: subprocess.Popen[bytes], begin: float) -> resource.struct_rusage:
    while True:
        found, status, usage = os.wait4(process.pid, os.WNOHANG)
        if found:
            process.returncode = os.waitstatus_to_exitcode(status)
            return usage
        if time.perf_counter() - begin > _TIMEOUT:
            process.kill()
        time.sleep(0.005)


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def _fuzz(mutations: int) -> dict[str, Any]:
    from support import damage

    jobs = damage.jobs(mutations)
    found: dict[str, dict[str, int]] = {}
    with ProcessPoolExecutor(max_workers=2) as pool:
        for (name, *_), outcome in zip(jobs, pool.map(damage.run, jobs), strict=True):
            part = found.setdefault(name, {"inputs": 0, "answers": 0, "errors": 0, "tracebacks": 0})
            for key, count in outcome.counts.items():
                part[key] += count
            for text in outcome.tracebacks[:3]:
                print(f"TRACEBACK: {name}\n{text}")
    rows = [(name, *part.values()) for name, part in found.items()]
    machine.table(("fuzz", "inputs", "answers", "errors", "tracebacks"), rows)
    return found


if __name__ == "__main__":
    sys.exit(main())
