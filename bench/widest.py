"""Compare the widest wheel of the quickstart, by two toolkits, with that of one: size, time, and images taken.

    python bench/widest.py          # in an environment with the extra `wide`

It builds with the list of docs/toolkits.md, and with the example's own list by CUDA 13 alone, and runs `aotcuda check`
of the first for each pair of a GPU and a driver that NVIDIA supports, from Turing and 525 on.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import machine

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "quickstart"
NUMBERS = (75, 80, 86, 87, 88, 89, 90, 100, 103, 107, 110, 120, 121)
WIDEST = ";".join([*(f"sm_{number}" for number in NUMBERS), "compute_75"])

_HATCHLING = "import sys; from hatchling.cli import hatchling; sys.argv[1:] = ['build', '-t', 'wheel']; hatchling()"
_CUDA_13 = f"""
from aotcuda.builder import toolkits
found = [one for one in toolkits.installed() if one.cuda >= (13, 0)]
toolkits.installed = lambda *_: tuple(found)
{_HATCHLING}
"""


def build(folder: Path, source: str, **environ: str) -> tuple[Path, dict[str, Any]]:
    """Build a wheel; return it with its size and times."""
    project = folder / "project"
    shutil.copytree(EXAMPLE, project, ignore=shutil.ignore_patterns("dist", "build"))
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", source], cwd=project, env=os.environ | environ, check=True)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    (wheel,) = (project / "dist").glob("*.whl")
    cost = {"wheel_bytes": wheel.stat().st_size, "seconds": round(seconds, 1)}
    return wheel, {**cost, "user_seconds": round(after.ru_utime - before.ru_utime, 1)}


def pairs(wheel: Path) -> dict[str, Any]:
    """Count the pairs of a GPU and a driver by the kind of image that they take; list those that are not exact."""
    command = [sys.executable, "-m", "aotcuda", "check", str(wheel), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (module,) = json.loads(done.stdout)["modules"]
    cells = [cell for cell in module["cells"] if cell["supported"]]
    return {
        "min_driver": module["min_driver"],
        "pairs": len(cells),
        "takes": dict(Counter(cell["takes"] for cell in cells)),
        "others": [
            {name: cell[name] for name in ("gpu", "capability", "driver", "takes", "why")}
            for cell in cells
            if cell["takes"] != "exact"
        ],
    }


def main() -> None:
    """Build, check, and write the results."""
    arguments = machine.parser(__doc__, "widest").parse_args()
    described = machine.describe()
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        wheel, cost = build(Path(first), _HATCHLING, AOTCUDA_ARCH=WIDEST)
        _, by_cuda_13 = build(Path(second), _CUDA_13)
        found = {"arch": WIDEST, **cost, **pairs(wheel)}
    print(json.dumps({"widest": found, "own_list_by_cuda_13": by_cuda_13}, indent=1))
    machine.write(arguments.out, described, widest=found, own_list_by_cuda_13=by_cuda_13)


if __name__ == "__main__":
    main()
