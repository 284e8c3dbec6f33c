"""Simulate other systems by their name in `sys.platform`; tools/windows.py runs tests with Python for Windows."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from aotcuda import cli
from aotcuda.common import system
from aotcuda.errors import NoDriverError
from aotcuda.runtime import driver
from support import manifests

LAUNCHES = "aotcuda launches kernels on Linux and Windows alone, and this is darwin; use one of these systems"
BUILDS = "aotcuda builds on Linux alone, and this is {}; use one of these systems"


@pytest.fixture
def as_on(monkeypatch):
    """Return a function that imports the module as another system does."""

    def imported(name: str) -> object:
        monkeypatch.setattr(sys, "platform", name)
        spec = importlib.util.spec_from_file_location("system_elsewhere", system.__file__)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return imported


@pytest.mark.parametrize(
    ("name", "launches", "builds"),
    [
        ("linux", None, None),
        ("win32", None, BUILDS.format("win32")),
        ("darwin", LAUNCHES, BUILDS.format("darwin")),
    ],
)
def test_unsupported_system_is_named_in_the_error(as_on, monkeypatch, name, launches, builds) -> None:
    elsewhere = as_on(name)
    assert (elsewhere.why_no_launches(), elsewhere.why_not("builds")) == (launches, builds)
    if launches is not None:
        monkeypatch.setattr(driver, "_driver", None)
        with pytest.raises(NoDriverError) as caught:
            driver.get()
        assert str(caught.value) == launches


def test_windows_trusts_folders(as_on) -> None:
    windows = as_on("win32")
    assert not windows.is_other_user(0)
    assert not windows.others_may_write(0o777)


# Remove what Python lacks on Windows, in a process of its own, before aotcuda is imported.
ELSEWHERE = """
import ctypes, hashlib, json, os, sys
for name in "register_at_fork fork geteuid uname sched_yield O_NONBLOCK O_CLOEXEC pread".split():
    vars(os).pop(name, None)
vars(sys).pop("abiflags", None)
sys.platform = "{}"
sys.modules["aotcuda.runtime.launch.fast._launch"] = None
"""


USES = {
    "print(sorted(k.__all__), k.__aotcuda__.name)": "['add', 'k'] mypkg.kernels",
    "print(k.k.signatures, k.add.__name__)": "['void(int32)'] add",
    "k.k[1, 32](1)": f"NoDriverError {LAUNCHES}",
    "k.k.forall(8)(1)": f"NoDriverError {LAUNCHES}",
    "k.__aotcuda__.preload()": f"NoDriverError {LAUNCHES}",
    "print(k.__aotcuda__.choice_for('sm_90').arch)": "sm_90",
    "k.__aotcuda__.unload()": None,
}
"""By use of a module, the printed text or the error."""


@pytest.mark.parametrize(("load", "editable"), [("import", False), ("first-use", True)])
def test_module_imports_and_refuses_launches_elsewhere(cuda, load, editable) -> None:
    kernels = [manifests.kernel("k", "void(int32)")]
    manifests.write(cuda.packages, kernels, load=load, functions=("add",), editable=editable)
    lines = [ELSEWHERE.format("darwin"), "import mypkg.kernels as k"]
    for use in USES:
        lines += ["try:", f"    {use}", "except Exception as error:", "    print(type(error).__name__, error)"]
    assert cuda.run("\n".join(lines)).splitlines() == [output for output in USES.values() if output is not None]
    assert cuda.calls() == []


def test_windows_launches_with_its_driver_library(cuda, stand_in_library, tmp_path) -> None:
    (tmp_path / "nvcuda.dll").symlink_to(stand_in_library)
    manifests.write(cuda.packages, [manifests.kernel("k", "void(int32)")])
    code = f"{ELSEWHERE.format('win32')}import mypkg.kernels as k\nk.k[1, 32](1)\nk.__aotcuda__.unload()"
    assert cuda.run(code, LD_LIBRARY_PATH=str(tmp_path)) == ""
    assert len(cuda.launches()) == 1


RUN = """
import signal
for name in ("SIGHUP", "SIGKILL", "SIGCHLD", "SIGALRM", "pthread_sigmask", "sigwait"):
    vars(signal).pop(name, None)
sys.modules.update(fcntl=None, resource=None, pwd=None)
from aotcuda import cli
print(cli.main(["run", "--packs", "json", "--", sys.executable, "-c", "raise SystemExit(3)"]))
"""


def test_run_passes_the_exit_status_on_windows(cuda) -> None:
    assert cuda.run(ELSEWHERE.format("win32") + RUN) == "3\n"


@pytest.mark.parametrize(("command", "does"), [(["record", "--", "python"], "records launches"), (["build"], "builds")])
def test_windows_refuses_commands_that_compile(monkeypatch, capsys, tmp_path, command, does) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.aotcuda.modules."mypkg.kernels"]\nsource = "mypkg._kernels"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "platform", "win32")
    assert cli.main(command) == 1
    assert capsys.readouterr().err.startswith(f"aotcuda: aotcuda {does} on Linux alone, and this is win32; ")
