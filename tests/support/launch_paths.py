"""Fixtures for the two paths of a launch: the general path in Python and the fast path in C."""

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
from aotcuda.runtime.launch import execute
from aotcuda.runtime.launch import fast as extension
from aotcuda.runtime.launch.arguments import arrays, packing
from aotcuda.runtime.launch.execute import Launcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCES = sorted((Path(__file__).parents[2] / "aotcuda" / "runtime" / "launch" / "fast").glob("*.c"))
NAME = "aotcuda.runtime.launch.fast._launch"

needs_extension = pytest.mark.skipif(os.environ.get("AOTCUDA_EXTENSION") == "0", reason="AOTCUDA_EXTENSION is 0")
"""Marks tests that need the installed extension, for example in other processes."""


def compile_extension(library: Path, *options: str) -> None:
    """Compile the fast path in C for this Python, with more options and CFLAGS; skip the test if that is impossible."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    headers = Path(sysconfig.get_path("include"))
    if compiler is None or not (headers / "Python.h").is_file():
        pytest.skip("the fast path in C needs a C compiler and Python's headers")
    stable = [] if sysconfig.get_config_var("Py_GIL_DISABLED") else ["-DPy_LIMITED_API=0x030B0000"]
    strict = ["-Wall", "-Wextra", "-Werror", "-Wno-cast-function-type", "-Wno-missing-field-initializers"]
    command = [compiler, "-shared", "-fPIC", "-O1", *strict, *stable, f"-I{headers}", *SOURCES]
    subprocess.run([*command, *options, *os.environ.get("CFLAGS", "").split(), "-o", library], check=True)


@pytest.fixture(scope="session")
def extension_module(once: Callable[[str, Callable[[Path], object]], Path]) -> Any:
    """Return the fast path in C, compiled for this Python; on Windows by tools/windows.py."""
    if sys.platform == "win32":
        return extension.in_use() or pytest.skip(extension.why_not())
    # Every Python can import this file's name.
    library = once("extension", lambda folder: compile_extension(folder / "_launch.so")) / "_launch.so"
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


def record_launches(patch: pytest.MonkeyPatch, record: Callable[[], object]) -> None:
    """Call `record` before each launch that Python submits, with all checks or by a plan."""
    submit, make_launch = Launcher.submit, packing.make_launch

    def record_and_submit(self: Launcher, *args: Any) -> None:
        record()
        submit(self, *args)

    def make_recorded(*made: Any) -> Any:
        *others, launch = made

        def record_and_launch(*args: Any) -> int:
            record()
            return launch(*args)  # type: ignore[no-any-return]

        return make_launch(*others, record_and_launch)

    patch.setattr(Launcher, "submit", record_and_submit)
    patch.setattr(packing, "make_launch", make_recorded)


@pytest.fixture
def general(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list that gets the launches on the general path; skip the test without the fast path."""
    if "path" in request.fixturenames and request.getfixturevalue("path") == "general":
        pytest.skip("without the fast path all launches take the general path")
    launches: list[None] = []
    record_launches(monkeypatch, lambda: launches.append(None))
    return launches


@pytest.fixture
def both_paths(path: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the test on both paths; the fast path takes every launch, also the first one with its argument types.

    The test fails if the fast path declines an accepted launch. A test with the mark `general(reason)` fails if the
    fast path takes all launches.
    """
    if path == "general":
        yield
        return
    launch = Launcher.launch
    submitted: list[None] = []
    declined: list[tuple[object, ...]] = []
    nested: list[Launcher] = []

    def launch_on_fast_path(self: Launcher, args: tuple[object, ...]) -> None:
        submitted.clear()
        if nested:
            launch(self, args)
            return
        # Tests may count the exports of DLPack, so these arrays are not read twice.
        is_for_all = bool(self.configuration.elements)  # C has made it
        if any(arrays.family(arg) == "dlpack" for arg in args) or self._specializations is None or is_for_all:
            launch(self, args)
        else:
            _add_specialization(self, args)
            nested.append(self)
            try:
                extension.wrap(self, self.configuration, self._specializations)(*args)
            finally:
                nested.pop()
        declined.extend([args] if submitted else [])

    monkeypatch.setattr(Launcher, "launch", launch_on_fast_path)
    record_launches(monkeypatch, lambda: submitted.append(None))
    yield
    if request.node.get_closest_marker("general") is None:
        assert declined == [], "the fast path declined accepted launches"
    else:
        assert declined, "the test has the mark `general`, and the fast path took all launches"


def _add_specialization(launcher: Launcher, args: tuple[object, ...]) -> None:
    """Add a specialization for arguments to the fast path, as after two launches, if an overload accepts them."""
    loaded = launcher._images.ready()
    try:
        selection = loaded.select_or_refuse(launcher.name, args, launcher.stream)
    except ArgumentError:
        return  # the launch raises it, too
    selection[0].slots.append(selection[1])
    loaded.library.enter(())
    for _ in range(execute.SPECIALIZE_AT):
        launcher.settle(loaded, selection, args)
