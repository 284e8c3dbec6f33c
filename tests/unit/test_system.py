"""Systems that are not Linux, by the name that Python has for them; none was here."""

from __future__ import annotations

import importlib.util
import os
import sys

import pytest

from aotcuda.common import system
from aotcuda.errors import AotcudaError, NoDriverError
from aotcuda.runtime import driver
from support import manifests

LINE = "aotcuda launches kernels on Linux alone, and this is win32; docs/systems.md says what is known to run where"


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> object:
    """The module as Windows imports it."""
    monkeypatch.setattr(sys, "platform", "win32")
    spec = importlib.util.spec_from_file_location("system_of_windows", system.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_this_system_is_linux() -> None:
    assert system.why_not("launches kernels") is None


def test_another_one_is_refused_in_a_line(windows: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert windows.why_not("launches kernels") == LINE
    monkeypatch.setattr(driver, "_driver", None)
    with pytest.raises(NoDriverError) as caught:
        driver.get()
    assert str(caught.value) == LINE


def test_what_only_linux_has_is_refused_likewise_and_not_missing(windows: object) -> None:
    with pytest.raises(AotcudaError, match=r"^aotcuda launches kernels and keeps what it compiled on Linux alone"):
        windows.machine()


def test_what_is_to_be_called_after_forks_is_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of drivers are started in a run of these tests, and each fork would call what each has asked for."""
    noted = []
    monkeypatch.setattr(os, "register_at_fork", lambda *, after_in_child: noted.append(after_in_child))
    here = [].clear
    for _ in range(3):
        driver.after_fork(here)
    assert noted == [here]


def test_a_process_is_told_from_a_later_one_of_its_number() -> None:
    assert not system.is_gone(1)
    assert system.started(1).isdigit()
    assert system.is_gone(2**22 + 1)  # above the largest number that Linux gives


# What Python lacks on Windows, and no extension module: in a process of its own, before aotcuda is imported.
ON_WINDOWS = """
import ctypes, hashlib, json, os, sys
for name in "register_at_fork fork geteuid uname sched_yield O_NONBLOCK O_CLOEXEC pread".split():
    vars(os).pop(name, None)
vars(sys).pop("abiflags", None)
sys.platform = "win32"
sys.modules["aotcuda.runtime.fast._launch"] = None
"""


@pytest.mark.parametrize("load", ["import", "first-use"])
@pytest.mark.parametrize("editable", [False, True])
@pytest.mark.parametrize(
    ("use", "shown"),
    [
        ("print(sorted(k.__all__), k.__aotcuda__.name)", "['add', 'k'] mypkg.kernels"),
        ("print(k.k.signatures, k.add.__name__)", "['void(int32)'] add"),
        ("k.k[1, 32](1)", f"NoDriverError {LINE}"),
        ("k.k.forall(8)(1)", f"NoDriverError {LINE}"),
        ("k.__aotcuda__.preload()", f"NoDriverError {LINE}"),
        ("print(k.__aotcuda__.choice_for('sm_90').arch)", "sm_90"),
        ("k.__aotcuda__.unload()", ""),
    ],
)
def test_a_packaged_module_is_imported_and_a_launch_is_refused_in_a_line(cuda, load, editable, use, shown) -> None:
    kernels = [manifests.kernel("k", "void(int32)")]
    manifests.write(cuda.packages, kernels, load=load, functions=("add",), editable=editable)
    code = f"{ON_WINDOWS}import mypkg.kernels as k\ntry:\n    {use}\nexcept Exception as error:\n"
    assert cuda.run(f"{code}    print(type(error).__name__, error)") == (f"{shown}\n" if shown else "")
    assert cuda.calls() == []
