"""The fast paths of a launch, as fixtures; `quick` is the one that most tests ask for.

Left alone, a test that launches once would never see them: they take the second launch with arguments of some types.
With this fixture they get the first one too, and a test fails if they do not take it.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
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
    from collections.abc import Iterator

SOURCES = sorted((Path(__file__).parents[2] / "aotcuda" / "runtime" / "fast").glob("*.c"))
NAME = "aotcuda.runtime.fast._launch"


@pytest.fixture(scope="session")
def extension_module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The fast path in C, compiled for this Python."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    headers = Path(sysconfig.get_path("include"))
    if compiler is None or not (headers / "Python.h").is_file():
        pytest.skip("the fast path in C needs a C compiler and Python's headers")
    library = tmp_path_factory.mktemp("extension") / "_launch.so"  # a name that any Python takes
    stable = [] if sysconfig.get_config_var("Py_GIL_DISABLED") else ["-DPy_LIMITED_API=0x030B0000"]
    strict = ["-Wall", "-Wextra", "-Werror", "-Wno-cast-function-type", "-Wno-missing-field-initializers"]
    command = [compiler, "-shared", "-fPIC", "-O1", *strict, *stable, f"-I{headers}", "-o", library, *SOURCES]
    subprocess.run(command, check=True)
    spec = importlib.util.spec_from_file_location(NAME, library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["python", "extension"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which quick path launches have: the one in Python, or the compiled one."""
    name: str = request.param
    module = request.getfixturevalue("extension_module") if name == "extension" else None
    monkeypatch.setattr(extension, "_found", [module])
    return name


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> list[GeneralPath]:
    """What launched that went the general way."""
    seen: list[GeneralPath] = []
    original = GeneralPath.submit

    def submit(self: GeneralPath, *args: Any) -> None:
        seen.append(self)
        original(self, *args)

    monkeypatch.setattr(GeneralPath, "submit", submit)
    return seen


class Quick:
    """What went the fast way in a test.

    Attributes:
        path: The fast path that launches have.
        taken: How many launches it took.
        declined: The arguments of those that were accepted, and that it did not take.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.taken = 0
        self.declined: list[tuple[object, ...]] = []


@pytest.fixture
def quick(path: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Quick]:
    """Lets the fast path have every launch, the first one with arguments of some types included, and holds it to that.

    A launch that is accepted and that the fast path does not take fails the test, unless the test is marked as
    `general(reason)`, for some of the paths perhaps (`paths=`); then it fails if none of its launches went the general
    way.
    """
    state = Quick(path)
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
        if any(arrays.family(arg) == "dlpack" for arg in args):  # the test may count how often it is exported
            general(self, args)
        else:
            _teach(self, args)
            busy.append(self)
            try:
                if self._records is None:
                    self(*args)
                else:
                    extension.in_front(self, self.configuration, self._records)(*args)
            finally:
                busy.pop()
        state.taken += not submitted
        state.declined += [args] if submitted else []

    monkeypatch.setattr(Launcher, "launch", launch_eagerly)
    monkeypatch.setattr(GeneralPath, "submit", noted)
    yield state
    marker = request.node.get_closest_marker("general")
    if marker is None or path not in marker.kwargs.get("paths", [path]):
        assert state.declined == [], f"the {path} path did not take what was accepted"
    else:
        assert state.declined, "marked as going the general way, and nothing did"


def _teach(launcher: Launcher, args: tuple[object, ...]) -> None:
    """Let a launcher learn from arguments, as it would after a launch, if they are accepted."""
    loaded = launcher._loader.ready()
    group = loaded.table(launcher.name).group(args)
    try:
        overload, slot, *_ = loaded.select(launcher.name, args, launcher.stream)
    except ArgumentError:
        return  # which the launch will say too
    overload.slots.append(slot)
    loaded.library.enter(())
    if group is not None:
        launcher.settle(loaded, group, overload, args)
