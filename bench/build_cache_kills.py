"""Kill builds at random moments while they fill the build cache, and see whether anything trips over what they leave.

Each round starts a build whose cache is empty or lacks half of its entries, kills it with SIGKILL after a random time,
and builds again with what is left in the cache. It fails if that build fails or warns, or if it gives other files than
a build without the cache.

    python bench/build_cache_kills.py [--kills 25] [--seed 1]
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import machine
import projects

_EMPTY_EACH = 5
"""After so many rounds the cache is emptied."""

_BUILD = """
import hashlib, pathlib, sys, tomllib
root = pathlib.Path.cwd()
from aotcuda.builder import api
built = api.build(tomllib.loads((root / "pyproject.toml").read_text())["tool"]["aotcuda"], root)
print(hashlib.sha256(repr(sorted(built.files.items())).encode()).hexdigest(), built.summary.reused, built.summary.whole)
print(*built.warnings, *built.notes, sep="\\n", end="")
"""


def main() -> int:
    parser = machine.parser(__doc__, "build_cache_kills")
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    here = machine.describe()
    chance = random.Random(arguments.seed)
    state: Counter[str] = Counter()
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        project = projects.generate(Path(temporary), "killed", 5, archs=("sm_80", "sm_90"))
        cache = Path(temporary, "cache")
        started = time.perf_counter()
        expected, _, _ = _outcome(project, "0")
        longest = time.perf_counter() - started
        for number in range(arguments.kills):
            if number % _EMPTY_EACH == 0:
                shutil.rmtree(cache, ignore_errors=True)
            state["killed before its end"] += _killed(project, cache, chance.uniform(longest / 3, longest * 1.1))
            state["part of an entry left in tmp"] += any(cache.glob("v1/tmp/*"))
            problem, kind = _trips(project, cache, expected)
            state[kind] += 1
            problems += [f"round {number}: {problem}"] if problem else []
            _forget_half(cache, chance)
    rows: list[tuple[object, ...]] = [("kills", arguments.kills), *state.items(), ("failures after one", len(problems))]
    machine.table(("", "count"), rows)
    print(*problems[:10], sep="\n")
    machine.write(arguments.out, here, kills=arguments.kills, found=dict(state), failures=len(problems))
    return 1 if problems else 0


def _environment(cache: str) -> dict[str, str]:
    return {**os.environ, "AOTCUDA_BUILD_CACHE": cache, "AOTCUDA_PROGRESS": "0"}


def _outcome(project: Path, cache: str) -> tuple[str, int, bool]:
    """The digest of what a build made, how many steps it took from the cache, and whether all at once."""
    done = subprocess.run(
        [sys.executable, "-c", _BUILD],
        cwd=project,
        env=_environment(cache),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ValueError(done.stderr.strip()[-300:])
    first, _, said = done.stdout.partition("\n")
    if said:
        raise ValueError(said)
    digest, steps, whole = first.split()
    return digest, int(steps), whole == "True"


def _killed(project: Path, cache: Path, seconds: float) -> bool:
    """Start a build and kill it and all its processes after a while; whether it was still at it."""
    build = subprocess.Popen(
        [sys.executable, "-c", _BUILD],
        cwd=project,
        env=_environment(str(cache)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        build.wait(seconds)
    except subprocess.TimeoutExpired:
        build.send_signal(signal.SIGKILL)  # the kernel ends what it has started
        build.wait()
        return True
    return False


def _trips(project: Path, cache: Path, expected: str) -> tuple[str, str]:
    """What is wrong with the next build, and what that found in the cache."""
    try:
        digest, steps, whole = _outcome(project, str(cache))
    except ValueError as error:
        return str(error), "failed"
    problem = "" if digest == expected else "it gave other files"
    return problem, "found the whole build" if whole else "found some steps" if steps else "found nothing"


def _forget_half(cache: Path, chance: random.Random) -> None:
    """Remove a random half of the entries: the next build has something to do."""
    entries = sorted(cache.glob("v1/??/*.aotcuda"))
    for entry in chance.sample(entries, len(entries) // 2):
        shutil.rmtree(entry)


if __name__ == "__main__":
    sys.exit(main())
