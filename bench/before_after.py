"""Two states of this project in one run: what a launch costs over C, and a cold start beyond the driver's own.

Each state is a folder with a checkout's `bench` and, in `site`, what pip installed of it; both launch the same packaged
kernels, so the newer one also shows that it reads the older one's wheels. Processes of the two take turns; a figure is
the median over them, and its spread the distance between the quartiles.

    python bench/before_after.py OLDER NEWER       # needs a GPU; each folder has bench/ and site/
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles

import machine

# What each script is asked for; the bench scripts of a state print and write what they measured.
_SCRIPTS = {
    "launch": ["--only", "aotcuda", "--counts", "--launches", "0", "--turns", "15"],
    "cold_start": ["--runs", "3", "--peer-runs", "0"],
    "import_time": [],
}


def main() -> int:
    parser = machine.parser(__doc__, "before_after")
    parser.add_argument("older", type=Path)
    parser.add_argument("newer", type=Path)
    parser.add_argument("--turns", type=int, default=5, help="processes of each state and script (%(default)s)")
    parser.add_argument("--scripts", nargs="*", default=["launch", "cold_start"], choices=[*_SCRIPTS])
    arguments = parser.parse_args()
    here = machine.describe()
    states = {"before": arguments.older.resolve(), "after": arguments.newer.resolve()}
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.turns):
            for script in arguments.scripts:
                for state, place in states.items():
                    for name, value in _run(place, script, Path(folder)).items():
                        of_script = found.setdefault(script, {}).setdefault(name, {"before": [], "after": []})
                        of_script[state].append(value)
    figures = {script: {name: _summary(values) for name, values in rows.items()} for script, rows in found.items()}
    for script, rows in figures.items():
        print(f"\n{script}")
        machine.table(
            ("", "before", "spread", "after", "spread"), [(name, *row.values()) for name, row in rows.items()]
        )
    machine.write(arguments.out, here, turns=arguments.turns, figures=figures)
    return 0


def _run(place: Path, script: str, folder: Path) -> dict[str, float]:
    """One process of one state: microseconds over C by way of launching, or milliseconds beyond the driver's start."""
    out = folder / "result.json"
    path = os.pathsep.join([str(place / "site"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(place / "bench" / f"{script}.py"), "--out", str(out), *_SCRIPTS[script]]
    done = subprocess.run(
        command, env=machine.environment(PYTHONPATH=path), capture_output=True, text=True, check=False
    )
    if not out.is_file():
        sys.exit(f"{' '.join(command)} wrote nothing: {done.stderr[-2000:]}")
    measured = json.loads(out.read_text(encoding="utf-8"))["figures"]
    out.unlink()
    if script == "launch":
        rows = {name: row["over_c"] for name, row in measured["axpy"].items() if name.startswith("aotcuda")}
        return {**rows, "C itself": measured["axpy"]["C, one buffer"]["median"]}
    return {name: row["beyond"] for name, row in measured.items() if name.startswith("aotcuda")}


def _summary(values: dict[str, list[float]]) -> dict[str, float | None]:
    row: dict[str, float | None] = {}
    for state, numbers in values.items():
        row[state] = round(median(numbers), 3) if numbers else None
        low, _, high = quantiles(numbers, n=4) if len(numbers) > 1 else (0.0, 0.0, 0.0)
        row[f"{state} spread"] = round(high - low, 3)
    return row


if __name__ == "__main__":
    sys.exit(main())
