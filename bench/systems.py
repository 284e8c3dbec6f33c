"""Write the tables of docs/systems.md: runs on systems, from the files in docs/results, and the output of `check`.

    python bench/systems.py

A file of results names its runs: as JSON with a list `runs`, or as text whose first line is a JSON object with that
list. A run has `system`, `python`, `what`, `passed`, `skipped`, `failed`, `date` and `commit`, and may have `gpu` and
`driver`. Benches name their machine; `tools/matrix.py` and `tools/windows.py` have other rows.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda.common import gpu_facts
from aotcuda.tools.check.check import check

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PAGE, RESULTS = ROOT / "docs" / "systems.md", ROOT / "docs" / "results"
CHECKED = ROOT / "tests" / "data" / "wheels" / "quickstart-1.0-py3-none-any.whl"


def main() -> None:
    """Write the page."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    old = PAGE.read_text(encoding="utf-8")
    new = page(old)
    PAGE.write_text(new, encoding="utf-8")


def page(text: str) -> str:
    """Return the text of the page with new tables."""
    for name, table in (("run", run()), ("computed", computed())):
        begin, end = f"<!-- {name}: bench/systems.py -->\n", f"<!-- end of {name} -->"
        head, _, rest = text.partition(begin)
        text = f"{head}{begin}\n{table}\n{end}{rest.partition(end)[2]}"
    return text


def run() -> str:
    """Return the table of runs."""
    rows = [*_tests(), *_windows(), *_matrix(), *_benches()]
    rows.sort(key=lambda row: (not row["gpu"], row["gpu"], _numbers(row["python"]), row["system"], row["what"]))
    header = ("system", "Python", "GPU, driver", "what was run", "result", "date, commit")
    cells = (
        (
            row["system"],
            row["python"],
            row["gpu"] or "none: the stand-in driver",
            f"[{row['what']}](results/{row['file']})",
            row["result"],
            row["when"],
        )
        for row in rows
    )
    return _table(header, cells)


def computed() -> str:
    """Return the table of `aotcuda check` for a wheel that later versions have to read."""
    (module,) = check(str(CHECKED)).modules
    drivers = list(dict.fromkeys(cell.driver for cell in module.cells))
    images = defaultdict(dict)
    for cell in module.cells:
        images[cell.gpu][cell.driver] = (cell.image or "-") if cell.exists else ""
    groups: list[list[Any]] = []
    for driver in drivers:
        if groups and all(row[groups[-1][-1]] == row[driver] for row in images.values()):
            groups[-1].append(driver)
        else:
            groups.append([driver])
    header = ("capability", "GPUs", *map(_span, groups))
    rows = (
        (gpu_facts.dotted(gpu.capability), gpu.name, *(row[group[0]] for group in groups))
        for gpu, row in images.items()
    )
    return _table(header, rows)


def _tests() -> Iterator[dict[str, str]]:
    """Yield the runs that files name."""
    for path in sorted(RESULTS.iterdir()):
        for one in runs(path):
            yield {
                **{key: one[key] for key in ("system", "python", "what")},
                "gpu": ", ".join(filter(None, (one.get("gpu"), one.get("driver")))),
                "file": path.name,
                "result": _counts(one["passed"], one["skipped"], one["failed"]),
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
            "result": _counts(row["passed"], sum(skip["tests"] for skip in row["skipped"]), len(row["failed"])),
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
            "result": _counts(sum(row["passed"] for row in found), sum(row["skipped"] for row in found), failed),
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


def _counts(passed: int, skipped: int, failed: int) -> str:
    return f"{passed:,} passed, {skipped:,} skipped, {failed or 'none'} failed"


def _span(drivers: list[Any]) -> str:
    names = [driver.name.partition(".")[0] for driver in drivers]
    return f"driver {names[0]}" if len(names) == 1 else f"drivers {names[0]} to {names[-1]}"


def _numbers(python: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", python)]


def _table(header: tuple[str, ...], rows: Any) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "".join("|" + "".join(f" {cell} |" if cell else " |" for cell in line) + "\n" for line in lines)


if __name__ == "__main__":
    main()
