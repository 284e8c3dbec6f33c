"""Builds that are forked, and workers that are, from processes that have imported what they need, are as if started."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from integration import forked, projects

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = "import sys, warnings\nprint('imported', *sys.argv)\nwarnings.warn('a word')\ndef k(x):\n    x[0] = 1\n"
KERNEL = 'kernels.k = "void(float32[::1])"'


@pytest.mark.usefixtures("back_end")
def test_forked_build_gives_the_same_wheel_and_output(tmp_path: Path) -> None:
    project = projects.write(tmp_path / "project", SOURCE, module=KERNEL)
    started = projects.run(project, *projects.command())
    (wheel,) = (project / "dist").glob("*.whl")
    content = projects.content(wheel)
    wheel.unlink()
    done = forked.run(project, projects.command(), projects.environment({}))
    assert done == (started.status, started.out, started.err)
    assert projects.content(wheel) == content
    assert "UserWarning: a word" in started.out + started.err


def test_start_variables_start_a_new_interpreter() -> None:
    assert forked.serves(projects.environment({"AOTCUDA_ARCH": "sm_90"}))
    assert not forked.serves(projects.environment({"PYTHONHASHSEED": "3"}))


@pytest.mark.usefixtures("back_end")
def test_forked_build_searches_its_own_path_first(tmp_path: Path) -> None:
    path = [os.environ.get("PYTHONPATH", ""), str(tmp_path / "other"), str(tmp_path / "another")]
    for name in ("other", "another"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "helpers.py").write_text(f"NAME = {name!r}\n")
    source = f"import helpers, sys\nprint(helpers.NAME, sys.path)\n{SOURCE}"
    project = projects.write(tmp_path / "project", source, aotcuda='fallback = "error"', module=KERNEL)
    environ = {"PYTHONPATH": os.pathsep.join(filter(None, path))}
    started = projects.run(project, *projects.command(), **environ)
    assert "other ['" in started.out + started.err
    done = forked.run(project, projects.command(), projects.environment(environ))
    assert done == (started.status, started.out, started.err)
    (tmp_path / "other" / "packaging.py").touch()
    assert forked.run(project, projects.command(), projects.environment(environ)) is None
    if path[0]:
        assert forked.run(project, projects.command(), projects.environment({"PYTHONPATH": path[1]})) is None


LOOKS_AROUND = """
import json, gc, os, pathlib, resource, signal, sys, tempfile, threading

above = int(pathlib.Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
seen = {
    "above the reaper": pathlib.Path(f"/proc/{above}/cmdline").read_text().split("\\0"),
    "modules": sorted(sys.modules.keys() - {"socket", "_socket"}),  # which one that forks talks over
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
    "umask": os.umask(0o22),
    "flags": repr(sys.flags),
    "limits": [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")],
    "signals": [repr(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "threads": threading.active_count(),
    "standard": [os.fstat(0).st_rdev, os.path.samestat(os.fstat(1), os.fstat(2))],
}
pathlib.Path(os.environ["SEEN"]).write_text(json.dumps(seen))


def k(x):
    x[0] = 1
"""


def seen(project: Path, how: str, **environ: str) -> dict[str, Any]:
    """Return what a source sees of the process that it is imported in."""
    environ = {"SEEN": str(project.parent / "seen.json"), "TMPDIR": str(project.parent), **environ}
    if how == "started":
        projects.succeed(project, *projects.command(), **environ)
    else:
        assert forked.run(project, projects.command(), projects.environment(environ))[0] == 0
    return json.loads((project.parent / "seen.json").read_text())


def by_zygote(looked: dict[str, Any]) -> bool:
    return any("zygotes.py" in word for word in looked["above the reaper"])


@pytest.mark.usefixtures("back_end")
@pytest.mark.back_end("hatchling")
def test_source_sees_no_difference_in_a_forked_worker(front_end: str, tmp_path: Path) -> None:
    project = projects.write(tmp_path / "project", projects.source(LOOKS_AROUND), module=KERNEL)
    started, found = seen(project, "started"), seen(project, "forked")
    assert by_zygote(found)
    assert not by_zygote(started)
    assert [name for name in started if found[name] != started[name]] == ["above the reaper"]


@pytest.mark.usefixtures("back_end")
@pytest.mark.back_end("hatchling")
def test_other_compiler_on_the_path_starts_a_worker(tmp_path: Path) -> None:
    project = projects.write(tmp_path / "project", LOOKS_AROUND, module=KERNEL)
    assert by_zygote(seen(project, "forked"))
    (project / "nvidia").mkdir()
    assert not by_zygote(seen(project, "forked"))
    (project / "numpy.py").touch()
    started = projects.run(project, *projects.command())
    assert forked.run(project, projects.command(), projects.environment({})) == (
        started.status,
        started.out,
        started.err,
    )
    assert "numpy" in started.err


DIES = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\nsignal.pause()\ndef k(x):\n    x[0] = 1\n"


@pytest.mark.usefixtures("back_end")
@pytest.mark.back_end("hatchling")
def test_killed_forked_worker_is_reported(tmp_path: Path) -> None:
    project = projects.write(tmp_path / "project", DIES, module=KERNEL)
    started = projects.run(project, *projects.command())
    assert "killed by SIGKILL" in started.err
    assert forked.run(project, projects.command(), projects.environment({}))[2] == started.err
