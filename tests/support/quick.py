"""Fixtures for the two paths of a launch.

The fast path takes launches from the third one on with the same argument types. The fixture `quick` makes it take the
first one, so that tests that launch once test both paths, and fails a test if the fast path declines.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda.errors import ArgumentError
from aotcuda.runtime import fast as extension
from aotcuda.runtime.arguments import arrays
from aotcuda.runtime.general_path import GeneralPath
from aotcuda.runtime.launcher import Launcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCES = sorted((Path(__file__).parents[2] / "aotcuda" / "runtime" / "fast").glob("*.c"))
NAME = "aotcuda.runtime.fast._launch"

needs_extension = pytest.mark.skipif(os.environ.get("AOTCUDA_EXTENSION") == "0", reason="AOTCUDA_EXTENSION is 0")
"""Marks tests that need the installed extension, for example in other processes."""


@pytest.fixture(scope="session")
def extension_module(once: Callable[[str, Callable[[Path], object]], Path]) -> Any:
    """Return the fast path in C, compiled for this Python; on Windows by tools/windows.py."""
    if sys.platform == "win32":
        return extension.in_use() or pytest.skip(extension.why_not())
    compiler = shutil.which("cc") or shutil.which("gcc")
    headers = Path(sysconfig.get_path("include"))
    if compiler is None or not (headers / "Python.h").is_file():
        pytest.skip("the fast path in C needs a C compiler and Python's headers")
    stable = [] if sysconfig.get_config_var("Py_GIL_DISABLED") else ["-DPy_LIMITED_API=0x030B0000"]
    strict = ["-Wall", "-Wextra", "-Werror", "-Wno-cast-function-type", "-Wno-missing-field-initializers"]
    command = [compiler, "-shared", "-fPIC", "-O1", *strict, *stable, f"-I{headers}", *SOURCES]
    command += ["-o", "_launch.so"]  # a name that every Python can import
    library = once("extension", lambda folder: subprocess.run(command, cwd=folder, check=True)) / "_launch.so"
    spec = importlib.util.spec_from_file_location(NAME, library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["general", "extension"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test without the fast path, and with it."""
    name: str = request.param
    module = request.getfixturevalue("extension_module") if name == "extension" else None
    monkeypatch.setattr(extension, "_module", [module])
    return name


@pytest.fixture
def general(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[GeneralPath]:
    """Return a list of the launches that took the general path; skip the test on the general path."""
    if "path" in request.fixturenames and request.getfixturevalue("path") == "general":
        pytest.skip("without the fast path all launches take the general path")
    seen: list[GeneralPath] = []
    original = GeneralPath.submit

    def submit(self: GeneralPath, *args: Any) -> None:
        seen.append(self)
        original(self, *args)

    monkeypatch.setattr(GeneralPath, "submit", submit)
    return seen


class Quick:
    """The launches that took the fast path in a test.

    Attributes:
        path: The path that launches take.
        taken: The number of launches by the fast path.
        declined: The arguments of accepted launches that the fast path declined.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.taken = 0
        self.declined: list[tuple[object, ...]] = []


@pytest.fixture
def quick(path: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Quick]:
    """Let the fast path take every launch, also the first one with its argument types.

    The test fails if the fast path declines an accepted launch. A test with the mark `general(reason)` fails if no
    launch took the general path.
    """
    state = Quick(path)
    if path == "general":
        yield state
        return
    general, submit = Launcher.launch, GeneralPath.submit
    submitted: list[GeneralPath] = []
    busy: list[Launcher] = []

    def noted(self: GeneralPath, *args: Any) -> None:
        submitted.append(self)
        submit(self, *args)

    def launch_eagerly(self: Launcher, args: tuple[object, ...]) -> None:
        submitted.clear()
        if busy:
            general(self, args)
            return
        if (
            any(arrays.family(arg) == "dlpack" for arg in args) or self._specializations is None
        ):  # tests may count exports
            general(self, args)
        else:
            _teach(self, args)
            busy.append(self)
            try:
                extension.wrap(self, self.configuration, self._specializations)(*args)
            finally:
                busy.pop()
        state.taken += not submitted
        state.declined += [args] if submitted else []

    monkeypatch.setattr(Launcher, "launch", launch_eagerly)
    monkeypatch.setattr(GeneralPath, "submit", noted)
    yield state
    if request.node.get_closest_marker("general") is None:
        assert state.declined == [], "the fast path did not take what was accepted"
    else:
        assert state.declined, "marked as taking the general path, and nothing did"


def _teach(launcher: Launcher, args: tuple[object, ...]) -> None:
    """Add a specialization for arguments to the fast path, as after a launch, if they are accepted."""
    loaded = launcher._loader.ready()
    try:
        selection = loaded.select_or_refuse(launcher.name, args, launcher.stream)
    except ArgumentError:
        return  # the launch raises it too
    selection[0].slots.append(selection[1])
    loaded.library.enter(())
    launcher.settle(loaded, selection, args)
