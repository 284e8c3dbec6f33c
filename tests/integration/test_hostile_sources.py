"""Sources that do what no source should: a build never hangs over one, and says in one line which it was."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from integration.projects import MODULE, refused, write
from integration.running import running

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = 'kernels.f = "void(float32[::1])"'
GOOD = "\ndef f(x):\n    x[0] = 1\n"

EACH = "for n in range(3, 300):\n    try:\n        {}\n    except OSError:\n        pass\n"
HOSTILE = {
    "writes a word": "import os\nos.write(3, b'hello')",
    "writes to all": "import os\n" + EACH.format("os.write(n, b'hello\\n')"),
    "writes a pickle": "import os\n" + EACH.format("os.write(n, b'cbuiltins\\nopen\\n(Vbomb\\nVw\\ntR.')"),
    "closes them": "import os\nos.closerange(3, 4096)",
    "closes them and opens others": (
        "import os\nos.closerange(3, 4096)\nFILES = [open(os.devnull, 'w') for _ in range(8)]"
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_source_that_writes_to_build_descriptors_ends_the_build(name: str, tmp_path: Path) -> None:
    done = refused(write(tmp_path / "project", HOSTILE[name] + GOOD, module=KERNEL))
    last = done.err.splitlines()[-1]
    assert re.match(r"aotcuda: (.*: code of the project wrote to|the build ended while importing pkg\._k )", last)
    assert not (tmp_path / "project" / "bomb").exists()


ENDS = {
    "exits": ("import os\nos._exit(5)", "exit status 5"),
    "goes into the background": ("import os\nif os.fork():\n    os._exit(0)\nos.setsid()", "exit status 0"),
    "kills what is above it": ("import os, signal\nos.kill(os.getppid(), 9)\nsignal.pause()", "killed by SIGKILL"),
    "kills its group": ("import os, signal\nos.kill(0, 15)\nsignal.pause()", "killed by SIGTERM"),
}


@pytest.mark.parametrize("name", ENDS)
def test_source_that_ends_the_worker_gives_one_line(name: str, tmp_path: Path) -> None:
    code, how = ENDS[name]
    done = refused(write(tmp_path / "project", code + GOOD, module=KERNEL))
    assert done.err == f"aotcuda: the build ended while importing pkg._k ({how}); its output is printed above\n"


@pytest.mark.parametrize("code", ["raise KeyboardInterrupt", "class Own(BaseException):\n    pass\nraise Own"])
def test_any_exception_of_a_source_is_reported(code: str, tmp_path: Path) -> None:
    done = refused(write(tmp_path / "project", code + GOOD, module=KERNEL))
    assert done.said.startswith(f"{MODULE}.source: importing pkg._k failed: ")


DAEMON = """
import os, signal

if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.pause()
"""
MULTIPROCESSING = """
import multiprocessing, signal

multiprocessing.get_context("fork").Process(target=signal.pause).start()
"""
HARMLESS = {
    "a thread and a program": (
        "import subprocess, threading\nthreading.Thread(target=threading.Event().wait).start()\n"
        "P = subprocess.Popen(['sleep', '1000'], close_fds=False)"
    ),
    "a daemon and a process of multiprocessing, with no wish to hear of its children": (
        f"import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n{DAEMON}{MULTIPROCESSING}"
    ),
    "a second build, by a fork, with nothing to read": "import os, sys\nassert sys.stdin.read() == ''\nos.fork()",
    "an exit handler that never ends": "import atexit, signal\natexit.register(signal.pause)",
}


@pytest.mark.parametrize(
    "name",
    [
        # A worker that does not end is killed after seconds: one reason for it is enough in CI.
        pytest.param(name, marks=[pytest.mark.matrix] * (name == "an exit handler that never ends"))
        for name in HARMLESS
    ],
)
def test_processes_of_a_source_end_with_the_build(name: str, tmp_path: Path) -> None:
    project = write(tmp_path / "project", HARMLESS[name] + GOOD, module=KERNEL)
    with running(project) as build:
        status, out, err = build.ended()
        assert (status, err) == (0, "")
        assert out.count("\n") == 5
        assert build.is_gone()
