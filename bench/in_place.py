"""Measure the import of an in-place module, in milliseconds over the same module with an empty `cuda`.

The module defines kernels and host code. The empty `cuda` has decorators that return the function, and nothing
else; so the difference is `aotcuda.numba` with all that it imports, and what its decorators make. Every import runs in
a fresh interpreter, the two in turn, and its processor time is taken: what else the machine does is not counted. For
comparison, importing Numba's own `cuda`.

    python bench/in_place.py [--runs 40] [--kernels 2 33]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import machine

_TARGET = 3.0
_EMPTY = """
class cuda:
    @staticmethod
    def jit(function):
        return function

float32 = None
"""
_KERNEL = """

@cuda.jit
def kernel_{number}(values, factor):
    i = cuda.grid(1)
    if i < values.size:
        values[i] *= float32(factor)
"""
_PYPROJECT = """
[project]
name = "{name}"
version = "1"

[tool.aotcuda]
arch = ["sm_90"]

[tool.aotcuda.modules."{name}.solver"]
source = "{name}.solver"

[tool.aotcuda.modules."{name}.solver".kernels]
"""
_TIMED = """
import time
begin = time.process_time()
{statement}
print(time.process_time() - begin)
"""
_NUMBA, _NUMBA_RUNS = "from numba import cuda, float32", 5


def main() -> int:
    parser = machine.parser(__doc__, "in_place")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--kernels", type=int, nargs="+", default=[2, 33])
    arguments = parser.parse_args()
    here = machine.describe()
    with tempfile.TemporaryDirectory() as folder:
        statements = {}
        for kernels in arguments.kernels:
            name = f"of_{kernels}"
            _build(Path(folder), name, kernels)
            statements[f"empty cuda, {kernels} kernels"] = f"import {name}_empty.solver"
            statements[f"in place, {kernels} kernels"] = f"import {name}.solver"
        statements["Numba's own"] = _NUMBA
        seconds = _measure(statements, Path(folder, "site"), arguments.runs)
    figures = {}
    for kernels in arguments.kernels:
        pairs = zip(seconds[f"in place, {kernels} kernels"], seconds[f"empty cuda, {kernels} kernels"], strict=True)
        figures[f"in place, {kernels} kernels"] = machine.summary([(ours - empty) * 1e3 for ours, empty in pairs])
    numba = [value * 1e3 for value in seconds["Numba's own"]]
    figures["Numba's own, an interpreter with nothing else"] = machine.summary(numba)
    machine.table(("ms", "median"), [(name, item["median"]) for name, item in figures.items()])
    met = all(figures[f"in place, {kernels} kernels"]["median"] <= _TARGET for kernels in arguments.kernels)
    verdicts = {f"at most {_TARGET:g} ms over an empty cuda": met}
    print(f"\nat most {_TARGET:g} ms: {'met' if met else 'MISSED'}")
    machine.write(arguments.out, here, unit="ms of processor time", figures=figures, measures=verdicts)
    return 0 if met else 1


def _build(folder: Path, name: str, kernels: int) -> None:
    """Return the package, built and laid out as a wheel would, and the same with an empty `cuda`."""
    project, site = folder / name, folder / "site"
    functions = "".join(_KERNEL.format(number=number) for number in range(kernels))
    source = f"import math\nfrom aotcuda.numba import cuda, float32\n{functions}"
    for root, text in ((project / name, source), (site / name, source), (site / f"{name}_empty", _EMPTY + functions)):
        root.mkdir(parents=True)
        (root / "__init__.py").write_text("", encoding="utf-8")
        (root / "solver.py").write_text(text, encoding="utf-8")
    table = _PYPROJECT.format(name=name)
    table += "".join(f'kernel_{number} = "void(float32[:], float64)"\n' for number in range(kernels))
    (project / "pyproject.toml").write_text(table, encoding="utf-8")
    command = [sys.executable, "-m", "aotcuda", "build", str(project), "--out", str(site)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _measure(statements: dict[str, str], site: Path, runs: int) -> dict[str, list[float]]:
    """Processor time, in seconds, of each statement in its own interpreter; the first round, a warm-up, is left out."""
    found: dict[str, list[float]] = {name: [] for name in statements}
    path = os.pathsep.join(filter(None, [str(site.resolve()), os.environ.get("PYTHONPATH")]))
    environment = machine.environment(PYTHONPATH=path)
    for number in range(runs + 1):
        for name, statement in statements.items():
            if statement == _NUMBA and number > _NUMBA_RUNS:
                continue
            command = [sys.executable, "-c", _TIMED.format(statement=statement)]
            done = subprocess.run(command, check=True, env=environment, cwd="/", capture_output=True, text=True)
            if number:
                found[name].append(float(done.stdout))
    return found


if __name__ == "__main__":
    sys.exit(main())
