"""Test that a stopped build leaves no process and no temporary file."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from integration import projects
from integration.projects import HATCHLING, write
from integration.running import COMMAND, waiting

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = 'kernels.f = "void(float32[::1])"'
GOOD = "\ndef f(x):\n    x[0] = 1\n"
LINE = "aotcuda: build interrupted; nothing was written\n"

IMPORTING = """
import os, signal
open(os.environ["REACHED"], "w").write("x")
signal.pause()
"""
COMPILING = """
from numba.cuda.extending import intrinsic

@intrinsic
def stop(context):
    import os, signal
    open(os.environ["REACHED"], "w").write("x")
    signal.pause()

def f(x):
    stop()
"""
IGNORES_SIGNALS = """
import os, signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    while True:
        signal.pause()
open(os.environ["REACHED"], "w").write("x")
while True:
    try:
        signal.pause()
    except KeyboardInterrupt:
        pass
"""
LATER = """
import os, select
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

class Later(BuildHookInterface):  # runs after aotcuda's hook, before hatchling takes the files
    def initialize(self, version, build_data):
        if "REACHED" in os.environ:
            os.write(os.open(os.environ["REACHED"], os.O_WRONLY), b"x")
            while True:  # a signal just before `pause` would not end it
                select.select([], [], [], 0.05)
"""
POINTS = {
    "importing": IMPORTING + GOOD,
    "compiling": COMPILING,
    "ignored signals": IGNORES_SIGNALS + GOOD,
    "hatchling": GOOD,
}


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Return an empty folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def project(folder: Path, point: str) -> Path:
    rest = "[tool.hatch.build.targets.wheel.hooks.custom]\n" * (point == "hatchling")
    root = write(
        folder / "project", POINTS[point], module=KERNEL, rest=f'{rest}[tool.hatch.build]\ndev-mode-dirs = ["."]'
    )
    (root / "hatch_build.py").write_text(LATER)
    return root


# One handler serves all signals except SIGKILL.
CASES = [
    (COMMAND, "compiling", signal.SIGINT),
    (HATCHLING, "importing", signal.SIGINT),
    (COMMAND, "ignored signals", signal.SIGTERM),
    (COMMAND, "importing", signal.SIGKILL),
]


@pytest.mark.parametrize(("command", "point", "number"), CASES)
def test_signal_to_the_first_process_ends_all(
    command: tuple[str, ...], point: str, number: signal.Signals, tmp_path: Path, temporary: Path
) -> None:
    root = project(tmp_path, point)
    before = projects.tree(root)
    with waiting(root, command, tmp_path / "fifo", TMPDIR=str(temporary)) as build:
        result = build.stop(number)
        assert build.has_ended()
    assert projects.tree(root) == before
    if number == signal.SIGKILL:
        assert result == (-number, "")
    else:
        assert result == (128 + number, LINE)
        assert list(temporary.iterdir()) == []


def test_ctrl_c_gives_one_line(tmp_path: Path) -> None:
    root = project(tmp_path, "compiling")
    code = f"import os; os.setpgid(0, 0); os.execv({sys.executable!r}, {list(COMMAND)})"
    with waiting(root, (sys.executable, "-c", code), tmp_path / "fifo") as build:
        os.killpg(build.process.pid, signal.SIGINT)
        assert build.wait() == (130, "", LINE)
        assert build.has_ended()


def test_next_build_removes_files_of_a_killed_build(tmp_path: Path, temporary: Path) -> None:
    root = project(tmp_path, "hatchling")
    with waiting(root, HATCHLING, tmp_path / "fifo", TMPDIR=str(temporary)) as build:
        build.stop(signal.SIGKILL)
    assert len(list(temporary.iterdir())) == 1
    projects.build_wheel(root, TMPDIR=str(temporary))
    assert list(temporary.iterdir()) == []


def test_killed_worker_ends_the_whole_build(tmp_path: Path) -> None:
    with waiting(project(tmp_path, "importing"), COMMAND, tmp_path / "fifo") as build:
        child_of = {parent: pid for pid, parent in build.processes().items()}
        os.kill(child_of[child_of[build.process.pid]], signal.SIGKILL)
        line = "aotcuda: the build ended while importing pkg._k (killed by SIGKILL); its output is printed above\n"
        assert build.wait() == (1, "", line)
        assert build.has_ended()
