"""Measure the import of a packaged module with 2 and 200 kernels, in milliseconds over a bare interpreter.

Every statement runs in a fresh interpreter, the statements in turn, so that whatever else the machine does hits all of
them alike. Figures are differences to the bare interpreter of the same round.

    python bench/import_time.py
    python bench/import_time.py --packages DIR     # builds there once, and later measures what is there: a machine
                                                   # with a GPU needs no compiler
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine
import projects

_SIZES = {"two": 2, "two_hundred": 200}
_CUINIT = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"
_NUMBA, _NUMBA_RUNS = "(from numba import cuda)", 5  # for comparison; it takes long
_FIRST_USE_TARGET, _IMPORT_TARGET = 10, 15


def main() -> int:
    parser = machine.parser(__doc__, "import_time")
    parser.add_argument("--packages", type=Path, help="folder of the built packages (default: a temporary one)")
    parser.add_argument("--runs", type=int, default=40)
    arguments = parser.parse_args()
    here = machine.describe()
    with tempfile.TemporaryDirectory() as temporary:
        packages = arguments.packages or Path(temporary, "packages")
        for name, kernels in _SIZES.items():
            _build(name, kernels, packages)
        seconds = _measure(_statements(), packages, arguments.runs)

    bare = seconds.pop("bare interpreter")
    print(f"bare interpreter: {min(bare) * 1e3:.1f} ms; the others over it:\n")
    figures = {
        name: machine.summary([(value - base) * 1e3 for value, base in zip(values, bare, strict=False)])
        | {"difference_of_minima": round((min(values) - min(bare)) * 1e3, 3)}
        for name, values in seconds.items()
    }
    rows: list[tuple[object, ...]] = [
        (name, item["median"], item["difference_of_minima"]) for name, item in figures.items()
    ]
    machine.table(("ms", "median", "of minima"), rows)

    met = all(figures[f"first-use, {kernels} kernels"]["median"] <= _FIRST_USE_TARGET for kernels in _SIZES.values())
    verdicts = {f"first-use: at most {_FIRST_USE_TARGET} ms": met}
    if "cuInit alone" in figures:
        base = figures["cuInit alone"]["median"]
        over = max(figures[f"import, {kernels} kernels"]["median"] - base for kernels in _SIZES.values())
        verdicts[f"import: at most {_IMPORT_TARGET} ms more than cuInit alone"] = over <= _IMPORT_TARGET
        print(f"\nload = import over cuInit alone, at most: {over:.2f} ms")
    print()
    for text, verdict in verdicts.items():
        print(f"{text}: {'met' if verdict else 'MISSED'}")
    machine.write(
        arguments.out,
        here,
        unit="ms over the bare interpreter",
        bare_ms=machine.summary([value * 1e3 for value in bare]),
        figures=figures,
        measures=verdicts,
    )
    return 0 if all(verdicts.values()) else 1


def _build(name: str, kernels: int, packages: Path) -> None:
    if (packages / name).is_dir():
        return
    print(f"building {kernels} kernels ...", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        project = projects.generate(Path(folder), name, kernels, archs=(*projects.ARCHS, "compute_75"))
        command = [sys.executable, "-m", "aotcuda", "build", str(project), "--out", str(packages)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (packages / name / "__init__.py").write_text("", encoding="utf-8")


def _statements() -> dict[str, tuple[str, str]]:
    """By title: a statement, and the value of AOTCUDA_LOAD that it runs with."""
    found = {"bare interpreter": ("pass", "first-use")}
    for load in ("first-use", "import"):
        for name, kernels in _SIZES.items():
            found[f"{load}, {kernels} kernels"] = (f"import {name}.kernels", load)
    found["first-use, 200 kernels, then one looked up"] = ("from two_hundred.kernels import k7", "first-use")
    if machine.driver() is not None:
        found["cuInit alone"] = (_CUINIT, "first-use")
    numba = subprocess.run([sys.executable, "-c", "from numba import cuda"], check=False, capture_output=True)
    if numba.returncode == 0:
        found[_NUMBA] = ("from numba import cuda", "first-use")
    return found


def _measure(statements: dict[str, tuple[str, str]], packages: Path, runs: int) -> dict[str, list[float]]:
    """Wall time, in seconds, of each statement in its own interpreter; the first round, a warm-up, is left out."""
    found: dict[str, list[float]] = {name: [] for name in statements}
    for number in range(runs + 1):
        for name, (statement, load) in statements.items():
            if name == _NUMBA and number > _NUMBA_RUNS:
                continue
            path = os.pathsep.join(filter(None, [str(packages.resolve()), os.environ.get("PYTHONPATH")]))
            environment = machine.environment(PYTHONPATH=path, AOTCUDA_LOAD=load)
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], check=True, env=environment, cwd="/")
            elapsed = time.perf_counter() - started
            if number:
                found[name].append(elapsed)
    return found


if __name__ == "__main__":
    sys.exit(main())
