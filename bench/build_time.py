"""How long wheels take to build in an environment that exists: the quickstart, and 50 kernels for five GPU generations.

python bench/build_time.py
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine
import projects

_QUICKSTART = Path(__file__).resolve().parent.parent / "examples" / "quickstart"
_TARGETS = {"quickstart": 5, "fifty": 60}


def main() -> int:
    parser = machine.parser(__doc__, "build_time")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    here = machine.describe()
    seconds: dict[str, list[float]] = {"quickstart": [], "fifty": []}
    sizes: dict[str, int] = {}
    for _ in range(arguments.runs):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            ignored = shutil.ignore_patterns("dist", "kernels.aotcuda", "kernels.py*", "__pycache__")
            shutil.copytree(_QUICKSTART, folder / "quickstart", ignore=ignored)
            projects.generate(folder, "fifty", 50)
            for name, values in seconds.items():
                elapsed, sizes[name] = _build(folder / name)
                values.append(elapsed)

    titles = {"quickstart": "quickstart: 2 + 2 signatures, 5 archs and PTX", "fifty": "50 kernels, 5 archs"}
    figures = {
        name: machine.summary(values) | {"target": _TARGETS[name], "wheel_bytes": sizes[name]}
        for name, values in seconds.items()
    }
    rows: list[tuple[object, ...]] = [
        (titles[name], item["median"], item["min"], item["target"], item["wheel_bytes"])
        for name, item in figures.items()
    ]
    machine.table(("seconds", "median", "min", "target", "wheel bytes"), rows)
    met = {f"{name}: under {target} s": figures[name]["median"] < target for name, target in _TARGETS.items()}
    print()
    for text, verdict in met.items():
        print(f"{text}: {'met' if verdict else 'MISSED'}")
    machine.write(arguments.out, here, unit="seconds", figures=figures, measures=met)
    return 0 if all(met.values()) else 1


def _build(project: Path) -> tuple[float, int]:
    """Wall time of one build, and the size of its wheel."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(project / "dist")]
    started = time.perf_counter()
    subprocess.run([*command, str(project)], check=True, capture_output=True)
    elapsed = time.perf_counter() - started
    (wheel,) = (project / "dist").glob("*.whl")
    return elapsed, wheel.stat().st_size


if __name__ == "__main__":
    sys.exit(main())
