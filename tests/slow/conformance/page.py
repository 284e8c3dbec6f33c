"""Make the table of docs/frontends.md that counts the suite's results, from the JSON files of docs/results."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

HEAD = """\
| release | cases run | right | wrong | refused by the build | run on |
|---|---:|---:|---:|---:|---|
"""


def with_table(text: str, results: Path, cases: int) -> str:
    """Return the text of the page with the number of cases, and a new table made from the results in a folder.

    Raises:
        ValueError: The text has no such table.
    """
    before, head, after = text.partition(HEAD)
    if not head:
        message = f"docs/frontends.md: it has no table of results; write its first two lines:\n{HEAD}"
        raise ValueError(message)
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in results.glob("conformance_*.json")]
    reports.sort(key=lambda report: (report["compiler"], [int(part) for part in report["release"].split(".")]))
    before = re.sub(r"(?<=conformance suite\*\* has )[\d,]+(?= small kernels)", f"{cases:,}", before)
    return before + head + "".join(map(_row, reports)) + re.sub(r"\A(?:\|.*\n)*", "", after)


def _row(report: dict[str, Any]) -> str:
    counts = (report["cases"], report["passed"], len(report["failed"]), len(report["refused"]))
    place = report["by"]
    if gpu := re.search(r"\((.+?),", report["machine"].get("gpu", "")):  # GPU 0 (NVIDIA H100 80GB HBM3, compute ...)
        place = gpu[1]
    return f"| {report['compiler']} {report['release']} | {' | '.join(f'{n:,}' for n in counts)} | {place} |\n"
