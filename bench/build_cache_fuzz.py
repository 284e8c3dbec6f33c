"""Holds builds with the build cache against builds without it, over projects and edits that are made up.

    python bench/build_cache_fuzz.py --each             # each way by which a number reaches a kernel, alone
    python bench/build_cache_fuzz.py --seeds 40         # projects of several ways, with random edits
    python bench/build_cache_fuzz.py --seed 17 --seeds 1
    python bench/build_cache_fuzz.py --front-ends triton cuda-cpp

`tests/support/cache_fuzz.py` says what is made up. A seed is one project of six modules, edited so many times. The
report has the differences, how many edits changed an image, and projects that the compiler refuses.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

import machine

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support import cache_fuzz  # noqa: E402


def main() -> int:
    parser = machine.parser(__doc__, "build_cache_fuzz")
    parser.add_argument("--each", action="store_true", help="each way alone, every number of it")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--edits", type=int, default=6, help="rounds of edits of each project")
    parser.add_argument("--modules", type=int, default=6)
    parser.add_argument("--front-ends", nargs="+", choices=cache_fuzz.HEADS, default=[*cache_fuzz.HEADS])
    arguments = parser.parse_args()
    here, begin = machine.describe(), time.monotonic()
    total = cache_fuzz.Outcome()
    refused = []
    unheard = []
    projects = 0

    def one(name: str, project: cache_fuzz.Project, rounds: object) -> None:
        nonlocal projects
        with tempfile.TemporaryDirectory() as folder:
            outcome = cache_fuzz.hold(project, Path(folder), rounds)
        projects += 1
        total.edits += outcome.edits
        total.told += outcome.told
        if outcome.refused:
            refused.append(f"{name}: {outcome.refused}")
        if not outcome.told:
            unheard.append(name)
        for difference in outcome.differences:
            total.differences.append(f"{name}: {difference}")
        for text in [*outcome.differences, *filter(None, [outcome.refused])]:
            print(f"{name}: {text}", flush=True)

    if arguments.each:
        for name, project in cache_fuzz.each(arguments.front_ends):
            one(name, project, project.every_number())
    else:
        for seed in range(arguments.seed, arguments.seed + arguments.seeds):
            rng = random.Random(seed)
            project = cache_fuzz.drawn(rng, arguments.modules, front_ends=arguments.front_ends)
            one(f"seed {seed}", project, (project.edits(rng, rng.randint(1, 3)) for _ in range(arguments.edits)))
    print(
        f"{projects} projects, {total.edits} edits, {total.told} changed an image; {len(total.differences)} differences"
    )
    machine.write(
        arguments.out,
        here,
        each=arguments.each,
        seeds=None if arguments.each else {"first": arguments.seed, "number": arguments.seeds},
        seconds=round(time.monotonic() - begin),
        projects=projects,
        front_ends=arguments.front_ends,
        ways=len(cache_fuzz.WAYS) + sum(len(cache_fuzz.USES[name]) for name in arguments.front_ends),
        edits=total.edits,
        told=total.told,
        without_effect=unheard,
        refused=refused,
        differences=total.differences,
    )
    return 1 if total.differences else 0


if __name__ == "__main__":
    sys.exit(main())
