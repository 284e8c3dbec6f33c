"""Test builds after builds that were stopped at random moments, and builds at once: they equal builds without a cache.

Each round starts a build of a small project in its own process, waits a random time, and sends SIGINT, SIGTERM,
SIGHUP or SIGKILL to that process alone. The build cache is empty at first, or lacks half of its entries. Every second
source starts a daemon, and every fourth one ignores the signals that can be ignored. A round fails

- if a process of the build still runs after `LIMIT` seconds,
- if an interrupted build has printed more or less than one line, has changed the project's folder, or has left a
  temporary file,
- if the next build, with the remaining cache, fails, prints a warning, or gives other files than a build without
  a cache.

After the last build there must be no temporary file of a build that was killed, either.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration import projects

if TYPE_CHECKING:
    from slow.conftest import Extent

ROUTES = {
    "aotcuda build": ("-m", "aotcuda", "build", "--quiet"),
    "wheel": ("-m", "hatchling", "build", "-t", "wheel"),
    "editable": ("-m", "hatchling", "build", "-t", "wheel:editable"),
}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
LINE = "aotcuda: build interrupted; nothing was written\n"
LIMIT = 2
"""The seconds after a signal in which all processes must end."""
EMPTY_EACH = 5
"""The number of rounds after which the cache is emptied."""

DAEMON = """
import os, signal
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.pause()
    os._exit(0)
"""
KERNEL = """
@cuda.jit
def k{0}(x):
    x[cuda.grid(1)] = {0}
"""
DEAF = """
import signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
"""


@pytest.mark.matrix  # CI has tests/integration/test_stopped_builds.py
def test_builds_after_killed_builds_are_right(tmp_path: Path, extent: Extent) -> None:
    kills, chance = extent.part(8, 100), random.Random(3)
    state: Counter[str] = Counter()
    problems: list[str] = []
    stopped = Stopped(tmp_path)
    for route in ROUTES:
        stopped.measure(route)
    for number in range(kills):
        stopped.thin_cache(chance, everything=number % EMPTY_EACH == 0)
        route, how = chance.choice([*ROUTES]), SIGNALS[number % len(SIGNALS)]
        stopped.source.write_text(DAEMON * (number % 2) + DEAF * (number % 4 == 3) + stopped.text)
        outcome = stopped.stop(route, how, chance.uniform(0, stopped.seconds[route] * 1.05))
        stopped.source.write_text(stopped.text)
        state["part of an entry left in the cache"] += any(stopped.cache.glob("v*/tmp/*"))
        for found in (outcome, stopped.build_again(route)):
            state[found.partition(":")[0]] += 1
            problems += [f"{number} {route} {how.name} {found}"] if ":" in found else []
    left = [path.name for path in stopped.temporary.iterdir()]
    problems += [f"left after the last build: {name}" for name in left if "aotcuda" in name]
    extent.write(
        "build_kills",
        kills=kills,
        found=dict(state),
        failures=len(problems),
        problems=problems,
        limit_seconds=LIMIT,
        longest_seconds_until_all_are_gone=round(max(stopped.endings), 3),
    )
    assert problems == []


@pytest.mark.matrix
def test_builds_at_once_share_a_cache(tmp_path: Path, extent: Extent) -> None:
    stopped, route = Stopped(tmp_path), "aotcuda build"
    stopped.measure(route)
    copies = [shutil.copytree(stopped.project, tmp_path / f"copy{number}") for number in range(extent.part(3, 8))]
    builds = [stopped._start(route, copy) for copy in copies]
    ended = [(build.communicate()[1], build.returncode) for build in builds]
    assert ended == [("", 0)] * len(copies)
    assert all(stopped._files(copy) == stopped.expected[route] for copy in copies)
    assert stopped.build_again(route) == "next build right"


@dataclass
class Stopped:
    """A project whose builds are stopped.

    Attributes:
        folder: The folder of the project, the build cache and temporary files.
        seconds: The time that a build by each route takes.
        expected: The files that a build by each route gives without a cache.
        endings: The seconds from each signal to the end of the last process.
    """

    folder: Path
    seconds: dict[str, float] = field(default_factory=dict)
    expected: dict[str, dict[str, bytes]] = field(default_factory=dict)
    endings: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.temporary, self.cache = self.folder / "temporary", self.folder / "cache"
        self.temporary.mkdir()
        self.project = self.folder / "project"
        self.source = self.project / "pkg" / "_k.py"
        self.text = "from numba import cuda\n" + "".join(map(KERNEL.format, range(5)))
        table = "\n".join(f'kernels.k{number} = "void(float32[::1])"' for number in range(5))
        rest = '[tool.hatch.build]\ndev-mode-dirs = ["."]'
        projects.write(self.project, self.text, aotcuda='arch = ["sm_80", "sm_90"]', module=table, rest=rest)

    def measure(self, route: str) -> None:
        """Build without a cache and without interruption."""
        begin = time.perf_counter()
        done = self._start(route, AOTCUDA_BUILD_CACHE="0")
        _, err = done.communicate()
        assert done.returncode == 0, err
        self.seconds[route] = time.perf_counter() - begin
        self.expected[route] = self._files()
        self._tidy()

    def thin_cache(self, chance: random.Random, *, everything: bool) -> None:
        """Remove a random half of the cache's entries, or everything, so that the next build has something to do."""
        if everything:
            shutil.rmtree(self.cache, ignore_errors=True)
        entries = sorted(self.cache.glob("v*/??/*.aotcuda"))
        for entry in chance.sample(entries, len(entries) // 2):
            shutil.rmtree(entry)

    def stop(self, route: str, how: signal.Signals, after: float) -> str:
        """Stop one build; return its outcome, and after a colon the fault."""
        before, earlier = self._files(), set(self.temporary.iterdir())
        mark = str(uuid.uuid4())
        build = self._start(route, TEST_MARK=mark)
        with suppress(subprocess.TimeoutExpired):
            build.wait(after)
        build.send_signal(how)
        begin = time.perf_counter()
        _, err = build.communicate()
        while (left := _marked(mark)) and time.perf_counter() - begin < 2 * LIMIT:
            time.sleep(0.005)
        self.endings.append(time.perf_counter() - begin)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        names = [path.name for path in set(self.temporary.iterdir()) - earlier if "aotcuda" in path.name]
        outcome = self._outcome(route, how, build.returncode, err, before, names)
        self._tidy()
        return outcome

    def _outcome(
        self, route: str, how: signal.Signals, status: int, err: str, before: dict[str, bytes], names: list[str]
    ) -> str:
        took, files = self.endings[-1], self._files()
        if status == 0 or err.startswith("dist/"):  # which hatchling prints at its end
            return f"lost:it went on for {took:.1f} s" if took > LIMIT else "ended before the signal"
        if took > LIMIT:
            return f"too slow:{took:.1f} s; {status} {err}"
        if status == -how and not err and files.keys() == self.expected[route].keys():
            return "ended before the signal"  # all is written, and Python has not ended yet
        if how == signal.SIGKILL:
            return f"killed:{err}" if err else "killed"
        if files != before:
            return f"half-written:{err}"
        if (status == -how and not err) or err == "aotcuda: interrupted\n":
            return "stopped before the build began"
        if how == signal.SIGINT and err.endswith("KeyboardInterrupt\n") and "aotcuda/build" not in err:
            return "stopped before the build began"  # Python's own traceback: it was importing hatchling, or itself
        if (status, err) != (128 + how, LINE):
            return f"interrupted, badly:{status} {err}"
        return f"interrupted:{names} left" if names else "interrupted"

    def build_again(self, route: str) -> str:
        """Build with the remaining cache; return the outcome, and after a colon the fault."""
        done = self._start(route)
        _, err = done.communicate()
        files = self._files()
        self._tidy()
        output = "".join(line for line in err.splitlines(keepends=True) if not line.startswith("dist/"))
        if done.returncode or "aotcuda" in output:
            return f"next build failed or warned:{done.returncode} {output[-300:]}"
        odd = sorted(
            name for name in {*files, *self.expected[route]} if files.get(name) != self.expected[route].get(name)
        )
        return f"next build differs:{', '.join(odd)}" if odd else "next build right"

    def _start(self, route: str, project: Path | None = None, **environ: str) -> subprocess.Popen[str]:
        settings = {"TMPDIR": str(self.temporary), "AOTCUDA_BUILD_CACHE": str(self.cache), "AOTCUDA_PROGRESS": "0"}
        return subprocess.Popen(
            [sys.executable, *ROUTES[route]],
            cwd=project or self.project,
            env={**os.environ, **settings, **environ},  # a slow machine would print progress
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _files(self, project: Path | None = None) -> dict[str, bytes]:
        project = project or self.project
        return {
            str(path.relative_to(project)): path.read_bytes()
            for path in project.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts and path.name != self.source.name
        }

    def _tidy(self) -> None:
        generated = [path for path in self.source.parent.iterdir() if path.name.startswith(("k.", ".k"))]
        for path in [self.project / "build", self.project / "dist", *generated]:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _marked(mark: str) -> list[int]:
    """Return the processes whose environment has the mark, and that have not ended."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found
