"""Measure the time and memory of `aotcuda inspect` for inputs that are made to break it.

Each input of `tests/support/hostile.py`, of at most 16 MB, is inspected in a process of its own, as a table and
as JSON. Then real files are damaged at random and inspected. Each must end in a report, or in exit status 1
and one line.

    python bench/hostile_inspect.py                      # about ten minutes
    python bench/hostile_inspect.py --only 'ptx*'        # the inputs with these names; writes nothing
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
_ADDRESSES = 8 << 30  # more than allowed, so that the use can be measured


def main() -> int:
    parser = machine.parser(__doc__, "hostile_inspect")
    parser.add_argument("--only", metavar="PATTERN", help="inputs with these names, without damaged files")
    parser.add_argument("--damaged", type=int, default=5_000, help="damaged files of each kind")
    arguments = parser.parse_args()
    here = machine.describe()
    empty = _run(["--version"])["mib"]
    names = [name for name in hostile.ALL if fnmatch.fnmatch(name, arguments.only or "*")]
    rows = [row for name in names for row in _measure(name, empty)]
    columns = ("input", "form", "bytes", "cpu_seconds", "mib", "exit", "fault")
    machine.table(columns, [tuple(row[column] for column in columns) for row in rows])
    faults = any(row["fault"] for row in rows)
    if not arguments.only:
        damaged = _damage(arguments.damaged)
        machine.write(arguments.out, here, limits={"seconds": SECONDS, "mib": MEBIBYTES}, inputs=rows, damaged=damaged)
        faults = faults or any(counts.get("faults") for counts in damaged.values())
    return 1 if faults else 0


def _make(name: str, folder: Path) -> str:
    return hostile.make(name, folder, hostile.LARGEST)[0]


def _measure(name: str, empty: float) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with ProcessPoolExecutor(max_workers=1) as maker:  # a child counts its parent's memory as its own
            target = maker.submit(_make, name, folder).result()
        size = Path(target).stat().st_size if name in hostile.INPUTS else None
        rows = []
        for form, options in (("table", []), ("json", ["--json"])):
            found = _run(["inspect", *options, target])
            found["outcome"] = found["outcome"].replace(str(folder), "...")
            row = {"input": ascii(name)[1:50], "form": form, "bytes": size, **found}
            row["mib"] = round(max(found["mib"] - empty, 0), 1)
            rows.append(row | {"fault": _fault(row)})
    return rows


def _fault(row: dict[str, Any]) -> str:
    if row["exit"] not in (0, 1):
        return f"exit status {row['exit']}"
    if row["lines"] != row["exit"] or row["escapes"] or row["broken"]:
        return "no report and no error of one line"
    # The machine may be shared, so only the processor time is compared.
    if row["cpu_seconds"] > SECONDS or row["seconds"] > _TIMEOUT or row["mib"] > MEBIBYTES:
        return "too large" if row["mib"] > MEBIBYTES else "too slow"
    return ""


def _run(arguments: list[str]) -> dict[str, Any]:
    """Run the command line in a process of its own."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "aotcuda", *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
            preexec_fn=_limit,  # noqa: PLW1509 (there are no threads)
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
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
        "outcome": (lines[-1] if lines else f"a report of {len(printed):,} bytes")[:300],
        "escapes": any(character in printed for character in b"\x00\x07\x08\x1b\r\x7f"),
        "broken": "--json" in arguments and process.returncode == 0 and not _is_json(printed),
    }


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CPU, (_TIMEOUT, _TIMEOUT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def _damage(count: int) -> dict[str, dict[str, int]]:
    """Inspect `count` damaged files of each kind. Return the counts of results, errors and faults."""
    from support import damage

    found: dict[str, dict[str, int]] = {}
    for suffix in damage.sources():
        with tempfile.TemporaryDirectory() as folder:
            counts, tracebacks = damage.outcomes(suffix, range(count), Path(folder))
        found[suffix] = dict(counts)
        print(f"damaged {suffix}: {found[suffix]}", *tracebacks[:3], sep="\n", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
