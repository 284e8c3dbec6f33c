"""Test that forked builds and workers behave like builds and workers that Python starts."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from integration import projects

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = 'kernels.k = "void(float32[::1])"'
SOURCE = "import helpers, sys, warnings\nprint(helpers.NAME, *sys.argv, sys.path)\nwarnings.warn('a word')\n"
OBSERVES = """
import json, gc, os, pathlib, resource, signal, sys, tempfile, threading

above = int(pathlib.Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
seen = {
    "above the reaper": pathlib.Path(f"/proc/{above}/cmdline").read_text().split("\\0"),
    "modules": sorted(sys.modules.keys() - {"socket", "_socket"}),  # which servers import
    "path": sys.path,
    "argv": sys.argv,
    "main": sorted(vars(sys.modules["__main__"])),
    "environ": {name: text for name, text in os.environ.items() if name not in ("PYTEST_CURRENT_TEST", "_")},
    "folder": os.getcwd(),
    "temporary": tempfile.gettempdir(),
    "files": sorted(os.listdir("/proc/self/fd")),
    "own group": os.getpgrp() == os.getpid() and os.getsid(0) == os.getppid(),
    "hash": hash("a word"),
    "garbage": [gc.isenabled(), gc.get_threshold()],
    "flags": repr(sys.flags),
    "limits": [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")],
    "signals": [repr(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "threads": threading.active_count(),
    "standard": [os.fstat(0).st_rdev, os.path.samestat(os.fstat(1), os.fstat(2))],
}
pathlib.Path(os.environ["SEEN"]).write_text(json.dumps(seen))
"""
KILLS_ITSELF = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\nsignal.pause()\n"
FUNCTION = "\ndef k(x):\n    x[0] = 1\n"


@pytest.mark.usefixtures("back_end")
def test_forked_build_gives_the_same_wheel_and_output(tmp_path: Path) -> None:
    for name in ("other", "another"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "helpers.py").write_text(f"NAME = {name!r}\n")
    path = [os.environ.get("PYTHONPATH", ""), str(tmp_path / "other"), str(tmp_path / "another")]
    environ = {"PYTHONPATH": os.pathsep.join(filter(None, path))}
    project = projects.write(tmp_path / "project", SOURCE + FUNCTION, aotcuda='fallback = "error"', module=KERNEL)
    wheels = []
    for command in (projects.run, projects.forked_run):
        done = command(project, *projects.command(), **environ)
        (wheel,) = (project / "dist").glob("*.whl")
        wheels.append((projects.content(wheel), done))
        wheel.unlink()
    assert wheels[0] == wheels[1]
    assert "other -c" in done.out + done.err
    assert "UserWarning: a word" in done.out + done.err


def observe(project: Path, how: str) -> dict[str, Any]:
    """Return the observations of a source about its process, which is `started` or `forked`."""
    environ = {"SEEN": str(project.parent / "seen.json"), "TMPDIR": str(project.parent)}
    run = projects.run if how == "started" else projects.forked_run
    assert run(project, *projects.command(), **environ).status == 0
    return json.loads((project.parent / "seen.json").read_text())


@pytest.mark.usefixtures("back_end")
@pytest.mark.back_end("hatchling")
def test_source_sees_no_difference_in_a_forked_worker(front_end: str, tmp_path: Path) -> None:
    project = projects.write(tmp_path / "project", projects.source(OBSERVES + FUNCTION), module=KERNEL)
    started, forked = observe(project, "started"), observe(project, "forked")
    assert [name for name in started if forked[name] != started[name]] == ["above the reaper"]
    assert forked["above the reaper"][-2] == front_end
    (project / "nvidia").mkdir()  # the project may have its own compiler
    assert observe(project, "forked")["above the reaper"][-2] == "-m", "the build started Python"


@pytest.mark.usefixtures("back_end")
@pytest.mark.back_end("hatchling")
@pytest.mark.parametrize(("source", "file"), [(FUNCTION, "packaging.py"), (KILLS_ITSELF + FUNCTION, "other.py")])
def test_forked_build_fails_like_a_started_build(source: str, file: str, tmp_path: Path) -> None:
    """A project's module may hide one that a server has imported; a source may kill the worker."""
    project = projects.write(tmp_path / "project", source, module=KERNEL)
    (project / file).touch()
    started = projects.run(project, *projects.command(), PYTHONPATH=str(project))
    assert started.status != 0
    assert projects.forked_run(project, *projects.command(), PYTHONPATH=str(project)) == started
