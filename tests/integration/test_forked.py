"""Builds that are forked from a process that has imported the back end are those that start Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from integration import forked, projects

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = "import sys, warnings\nprint('imported', *sys.argv)\nwarnings.warn('a word')\ndef k(x):\n    x[0] = 1\n"
KERNEL = 'kernels.k = "void(float32[::1])"'


@pytest.mark.usefixtures("back_end")
def test_the_same_is_made_and_said(tmp_path: Path) -> None:
    project = projects.write(tmp_path / "project", SOURCE, module=KERNEL)
    started = projects.run(project, *projects.command())
    (wheel,) = (project / "dist").glob("*.whl")
    content = projects.content(wheel)
    wheel.unlink()
    done = forked.run(project, projects.command(), projects.environment({}))
    assert done == (started.status, started.out, started.err)
    assert projects.content(wheel) == content
    assert "UserWarning: a word" in started.out + started.err


@pytest.mark.usefixtures("back_end")
def test_the_same_is_refused(tmp_path: Path) -> None:
    project = projects.write(tmp_path / "project", SOURCE, module="kernels.k = 1")
    started = projects.run(project, *projects.command())
    assert forked.run(project, projects.command(), projects.environment({})) == (
        started.status,
        started.out,
        started.err,
    )
    assert started.status == 1


def test_what_python_reads_when_it_starts_starts_one() -> None:
    assert forked.serves(projects.environment({"AOTCUDA_ARCH": "sm_90"}))
    assert not forked.serves(projects.environment({"PYTHONHASHSEED": "3"}))
    assert not forked.serves(projects.environment({"PYTHONPATH": "/elsewhere"}))
