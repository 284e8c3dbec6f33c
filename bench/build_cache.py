"""What the build cache saves: a build with an empty cache, one after which nothing, one line, or a target has changed.

And whether it gives what a build without it gives: for this project, and for those of the packages of the tests that
need nothing made beforehand.

    python bench/build_cache.py [--kernels 50] [--runs 3]
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import machine
import projects

_PACKAGES = Path(__file__).resolve().parent.parent / "tests" / "packages"
_CHECKED = ("checked", "devicefunctions", "features", "gpufeatures", "inplace", "mixed")
_CASES = ("without", "empty", "nothing changed", "one kernel edited", "one more target")

_BUILD = """
import hashlib, pathlib, sys, time, tomllib
root = pathlib.Path.cwd()
started = time.perf_counter()
from aotcuda.builder import api
built = api.build(tomllib.loads((root / "pyproject.toml").read_text())["tool"]["aotcuda"], root)
print(time.perf_counter() - started, built.summary.whole, built.summary.reused, built.summary.made)
print(hashlib.sha256(repr((sorted(built.files.items()), built.warnings, built.notes)).encode()).hexdigest())
"""


def main() -> int:
    parser = machine.parser(__doc__, "build_cache")
    parser.add_argument("--kernels", type=int, default=50)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    here = machine.describe()
    seconds: dict[str, list[float]] = {case: [] for case in _CASES}
    reused: dict[str, str] = {}
    equal: dict[str, bool] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for number in range(arguments.runs):
            folder = Path(temporary, str(number))
            project = projects.generate(folder, "many", arguments.kernels)
            for case in _CASES:
                _change(project, case)
                cache = "0" if case == "without" else str(folder / "cache")
                elapsed, reused[case], digest = _build(project, cache)
                seconds[case].append(elapsed)
                if case != "without":
                    equal[case] = equal.get(case, True) and digest == _build(project, "0")[2]
        for name in _CHECKED:
            project = Path(shutil.copytree(_PACKAGES / name, Path(temporary, name)))
            digests = {_build(project, cache)[2] for cache in ("0", f"{project}.cache", f"{project}.cache")}
            equal[name] = len(digests) == 1
    figures = {case: machine.summary(values) for case, values in seconds.items()}
    rows: list[tuple[object, ...]] = [
        (case, item["median"], item["min"], reused[case]) for case, item in figures.items()
    ]
    machine.table(("seconds", "median", "min", "whole, steps reused, made"), rows)
    met = {f"{name}: as without the cache": same for name, same in equal.items()}
    machine.verdicts(met, {})
    machine.write(arguments.out, here, unit="seconds", kernels=arguments.kernels, figures=figures, measures=met)
    return 0 if all(met.values()) else 1


def _change(project: Path, case: str) -> None:
    """What happens to the project before a build."""
    if case == "one kernel edited":
        (source,) = [path for path in project.rglob("*.py") if "cuda.jit" in path.read_text(encoding="utf-8")]
        text = source.read_text(encoding="utf-8")
        source.write_text(re.sub(r"out\[i\] = ", "out[i] = 3 + ", text, count=1), encoding="utf-8")
    elif case == "one more target":
        config = project / "pyproject.toml"
        text = config.read_text(encoding="utf-8")
        config.write_text(text.replace("arch = [", 'arch = ["sm_89", '), encoding="utf-8")


def _build(project: Path, cache: str) -> tuple[float, str, str]:
    """Seconds of a build in a new process, what it took from the cache, and a digest of what came out."""
    environ = {**os.environ, "AOTCUDA_BUILD_CACHE": cache}
    command = [sys.executable, "-c", _BUILD]
    done = subprocess.run(command, cwd=project, env=environ, check=True, stdout=subprocess.PIPE, text=True)
    elapsed, reused = done.stdout.splitlines()[0].split(" ", 1)
    return float(elapsed), reused, done.stdout.splitlines()[1]


if __name__ == "__main__":
    sys.exit(main())
