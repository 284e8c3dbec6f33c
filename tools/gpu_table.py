#!/usr/bin/env python3
"""Write the table of GPUs into docs/targets.md, from `aotcuda/gpus.py`.

python tools/gpu_table.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from aotcuda.common.gpu_facts import dotted  # noqa: E402 (the checkout comes before an installed aotcuda)
from aotcuda.gpus import CAPABILITIES  # noqa: E402

PAGE = ROOT / "docs" / "targets.md"
_HEAD = "| capability | architecture | GPUs | built by | drivers |\n|---|---|---|---|---|\n"


def insert(page: str) -> str:
    """Return the page with the current table."""
    rows = []
    for row in CAPABILITIES:
        if row.renamed is None:
            last = f"to {dotted(row.last_cuda)}" if row.last_cuda else "or newer"
            cells = (
                dotted(row.number),
                row.architecture,
                ", ".join(row.examples) or "none that NVIDIA names",
                f"CUDA {dotted(row.first_cuda)} {last}",
                f"up to {row.last_driver}" if row.last_driver else "no last one",
            )
            rows.append(f"| {' | '.join(cells)} |\n")
    table = _HEAD + "".join(rows)
    return re.sub(rf"{re.escape(_HEAD)}(?:\|.*\n)*", lambda _: table, page)


if __name__ == "__main__":
    PAGE.write_text(insert(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
