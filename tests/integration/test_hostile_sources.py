"""Test sources that interfere with the processes of a build: the build ends."""

from __future__ import annotations

import json
import re
import zipfile
from typing import TYPE_CHECKING

import pytest

from integration.projects import MODULE, back_end, refused, write
from integration.running import running

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = 'kernels.f = "void(float32[::1])"'
GOOD = "\ndef f(x):\n    x[0] = 1\n"
HELPER = "\nV = 2\n\ndef helper(x):\n    return x + V\n"

EACH = "for n in range(3, 300):\n    try:\n        {}\n    except OSError:\n        pass\n"
HOSTILE = {
    "writes a pickle": "import os\n" + EACH.format("os.write(n, b'cbuiltins\\nopen\\n(Vbomb\\nVw\\ntR.')"),
    "closes them": "import os\nos.closerange(3, 4096)",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_source_that_writes_to_build_descriptors_ends_the_build(name: str, tmp_path: Path) -> None:
    done = refused(write(tmp_path / "project", HOSTILE[name] + GOOD, module=KERNEL))
    last = done.err.splitlines()[-1]
    assert re.match(r"aotcuda: (.*: code of the project wrote to|the build ended while importing pkg\._k )", last)
    assert not (tmp_path / "project" / "bomb").exists()


NAMES = {
    "renamed": '__name__ = "pkg.public"',
    "nameless": "del __name__",
    "specless": "__spec__ = None",
    "without_spec": "del __spec__",
    "odd_spec": "__spec__ = 5",
    "without_both": "del __name__\n__spec__ = None",
    "without_package": "__package__ = None\n__name__ = ''",
    "without_file": "del __file__",
}


def test_sources_may_change_the_names_of_their_modules(tmp_path: Path) -> None:
    tables = [f"[tool.aotcuda.modules.'pkg.{name}']\nsource = 'pkg._{name}'\n{KERNEL}" for name in NAMES]
    project = write(tmp_path / "project", GOOD, module=KERNEL, rest="\n".join(tables))
    for name, code in NAMES.items():
        (project / "pkg" / f"_{name}.py").write_text(code + GOOD.replace("1\n", "helper(1)\n") + HELPER)
    back_end(project)
    (wheel,) = (project / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        manifests = {name: json.loads(content.read(f"pkg/{name}.aotcuda/manifest.json")) for name in NAMES}
    for name in NAMES:
        assert manifests[name]["kernels"][0]["origin"] == f"pkg._{name}:f"


ENDS = {
    "goes into the background": ("import os\nif os.fork():\n    os._exit(0)\nos.setsid()", "exit status 0"),
    "kills its parent": ("import os, signal\nos.kill(os.getppid(), 9)\nsignal.pause()", "killed by SIGKILL"),
}


@pytest.mark.parametrize("name", ENDS)
def test_source_that_ends_the_worker_gives_one_line(name: str, tmp_path: Path) -> None:
    code, how = ENDS[name]
    done = refused(write(tmp_path / "project", code + GOOD, module=KERNEL))
    assert done.err == f"aotcuda: the build ended while importing pkg._k ({how}); its output is printed above\n"


def test_any_exception_of_a_source_is_reported(tmp_path: Path) -> None:
    code = "class Own(BaseException):\n    pass\nraise Own"
    done = refused(write(tmp_path / "project", code + GOOD, module=KERNEL))
    assert done.message.startswith(f"{MODULE}.source: importing pkg._k failed: ")


PROCESSES = """
import multiprocessing, os, signal, subprocess, sys, threading

assert sys.stdin.read() == ""
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
threading.Thread(target=threading.Event().wait).start()
P = subprocess.Popen(["sleep", "1000"], close_fds=False)
multiprocessing.get_context("fork").Process(target=signal.pause).start()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.pause()
"""
HARMLESS = {
    "processes and threads": PROCESSES,
    "an exit handler that never ends": "import atexit, signal\natexit.register(signal.pause)",
}


@pytest.mark.parametrize(
    "name", ["processes and threads", pytest.param("an exit handler that never ends", marks=pytest.mark.matrix)]
)
def test_processes_of_a_source_end_with_the_build(name: str, tmp_path: Path) -> None:
    project = write(tmp_path / "project", HARMLESS[name] + GOOD, module=KERNEL)
    with running(project) as build:
        status, out, err = build.wait()
        assert (status, err) == (0, "")
        assert out.count("\n") == 5
        assert build.has_ended()
