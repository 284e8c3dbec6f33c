"""Kill writers of the fallback's cache at random moments, and see whether anything trips over what they leave.

Each round forks a process that takes the lock, writes an entry and gives the lock back, over and over; kills it after
a random time with SIGKILL; and then does the same itself, once, as the next process would. It fails if that raises or
warns, or if an entry is read back otherwise than it was written.

    python bench/cache_kills.py [--kills 1000]
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NoReturn

import machine

from aotcuda import manifest as manifests
from aotcuda.common.jit_build import Result
from aotcuda.runtime.jit.cache import Cache

KEYS = [f"{number:02x}" + "0" * 62 for number in range(4)]
IMAGE = random.Random(1).randbytes(200_000)


def main() -> int:
    parser = machine.parser(__doc__, "cache_kills")
    parser.add_argument("--kills", type=int, default=1000)
    arguments = parser.parse_args()
    here = machine.describe()
    chance = random.Random(2)
    state: Counter[str] = Counter()
    problems: list[str] = []
    longest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        root = str(Path(folder, "cache"))
        for number in range(arguments.kills):
            key = KEYS[number % len(KEYS)]
            child = os.fork()
            if child == 0:
                _write_for_ever(root, key)
            time.sleep(chance.uniform(0.0005, 0.02))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            state["lock left behind"] += Path(root, "v1", "locks", f"{key}.lock").exists()
            state["part of an entry left in tmp"] += any(Path(root, "v1").glob("tmp/*"))
            begin = time.perf_counter()
            try:
                _use(root, key, problems.append, state)
            except Exception as error:  # noqa: BLE001 (whatever it is, it must not happen)
                problems.append(repr(error))
            longest = max(longest, time.perf_counter() - begin)
    rows: list[tuple[object, ...]] = [("kills", arguments.kills), *state.items(), ("failures after one", len(problems))]
    machine.table(("", "count"), rows)
    print(f"\nlongest use after a kill: {longest * 1e3:.1f} ms")
    print(*problems[:10], sep="\n")
    machine.write(
        arguments.out,
        here,
        kills=arguments.kills,
        found=dict(state),
        failures=len(problems),
        longest_use_after_a_kill_ms=round(longest * 1e3, 1),
    )
    return 1 if problems else 0


def _result() -> Result:
    file = {"path": "kernels.cubin", "bytes": len(IMAGE), "sha256": manifests.digest(IMAGE)}
    keys = ("generator", "module", "frontend", "toolchain", "min_driver", "load", "fallback", "options", "images")
    keys += ("ltoir", "kernels", "functions", "sources")
    manifest = {"format": manifests.FORMAT, "files": {"kernels": file}, **dict.fromkeys(keys)}
    return Result(manifest, IMAGE)  # type: ignore[arg-type]


def _write_for_ever(root: str, key: str) -> NoReturn:
    cache = Cache(root, lambda _: None)
    while True:
        lock = cache.lock(key)
        cache.discard(key)
        cache.put(key, _result(), {})
        if lock is not None:
            lock.release()


def _use(root: str, key: str, problem: object, state: Counter[str]) -> None:
    """Return what the next process does: look, and if it is not there, lock and write."""
    cache = Cache(root, problem)  # type: ignore[arg-type]
    found = cache.get(key)
    state["entry there, whole"] += found is not None
    if found is None:
        lock = cache.lock(key)
        cache.put(key, _result(), {})
        if lock is not None:
            lock.release()
        found = Cache(root, problem).get(key)  # type: ignore[arg-type]
    if found is None or found.image != IMAGE or found.manifest != _result().manifest:
        message = f"{key} is not what was written"
        raise ValueError(message)


if __name__ == "__main__":
    sys.exit(main())
