"""Make the table of docs/systems.md for `results.py`: runs on systems, from the files in docs/results.

A file of results names its runs: as JSON with a list `runs`, or as text whose first line is a JSON object with that
list. A run has `system`, `python`, `what`, `passed`, `skipped`, `failed`, `date` and `commit`, and may have `gpu` and
`driver`. Benches name their machine; `tools/matrix.py` and `tools/windows.py` have other rows.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"


def run() -> Iterator[str]:
    """Yield the table of runs, with a row for all runs on one system, Python and GPU."""
    rows = [*_tests(), *_windows(), *_matrix(), *_benches()]
    rows.sort(key=lambda row: (not row["gpu"], row["gpu"], _numbers(row["python"]), row["system"], row["what"]))
    groups = defaultdict(list)
    for row in rows:
        groups[row["system"], row["python"], row["gpu"]].append(
            f"[{row['what']}](results/{row['file']}): {row['result']} ({row['when']})"
        )
    lines = [("system", "Python", "GPU, driver", "what was run"), ("---",) * 4]
    lines += [(*key, "; ".join(runs)) for key, runs in groups.items()]
    for line in lines:
        yield "|" + "".join(f" {cell} |" if cell else " |" for cell in line)


def _tests() -> Iterator[dict[str, str]]:
    """Yield the runs that files name."""
    for path in sorted(RESULTS.iterdir()):
        for one in runs(path):
            yield {
                **{key: one[key] for key in ("system", "python", "what")},
                "gpu": ", ".join(filter(None, (one.get("gpu"), one.get("driver")))),
                "file": path.name,
                "result": _counts(one["passed"], one["failed"]),
                "when": f"{one['date']}, {one['commit']}",
            }


def runs(path: Path) -> list[dict[str, Any]]:
    """Return the runs that a file of results names; none for files without a list of runs."""
    if path.suffix not in (".json", ".txt"):
        return []
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".txt":
        text = text.partition("\n")[0]
        if not text.startswith("{"):
            return []
    content = json.loads(text)
    return content.get("runs", []) if isinstance(content, dict) else []


def _windows() -> Iterator[dict[str, str]]:
    """Yield the runs with Python for Windows."""
    path = RESULTS / "windows.json"
    for row in json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else ():
        yield {
            "system": f"Windows x86_64 ({row['system']})",
            "python": row["python"],
            "what": f"unit tests of the run time, launches in {row['path']}",
            "gpu": "",
            "file": path.name,
            "result": _counts(row["passed"], len(row["failed"])),
            "when": row.get("date", ""),
        }


def _matrix() -> Iterator[dict[str, str]]:
    """Yield the runs of the compilers' releases, one for each compiler and Python."""
    report = json.loads((RESULTS / "matrix.json").read_text(encoding="utf-8"))
    rows = defaultdict(list)
    for row in report["rows"]:
        rows[row["compiler"], row["python"]].append(row)
    for (compiler, python), found in rows.items():
        releases = ", ".join(row["release"] for row in found)
        failed = sum(one["tests"] for row in found for one in row["failed"])
        yield {
            "system": "Linux x86_64",
            "python": python,
            "what": f"builds with {compiler} {releases}",
            "gpu": "",
            "file": "matrix.json",
            "result": _counts(sum(row["passed"] for row in found), failed),
            "when": report["date"],
        }


def _benches() -> Iterator[dict[str, str]]:
    """Yield the machines with a GPU that benches ran on."""
    machines = defaultdict(list)
    for path in sorted(RESULTS.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        parts = [found, *found.values()] if isinstance(found, dict) else []
        machine = next((part["machine"] for part in parts if isinstance(part, dict) and "machine" in part), found)
        if isinstance(machine, dict) and machine.keys() >= {"gpu", "driver", "date", "system", "python"}:
            gpu = re.sub(r"^GPU \d+ \((.*), compute capability .*\)$", r"\1", machine["gpu"])
            machines[machine["system"], machine["python"], f"{gpu}, {machine['driver']}"].append(machine["date"])
    for (system, python, gpu), dates in machines.items():
        yield {
            "system": system,
            "python": python,
            "what": "benches",
            "gpu": gpu,
            "file": "README.md",
            "result": f"{len(dates)} files",
            "when": " to ".join(dict.fromkeys((min(dates), max(dates)))),
        }


def _counts(passed: int, failed: int) -> str:
    return f"{passed:,} passed" + f", {failed:,} failed" * bool(failed)


def _numbers(python: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", python)]
