"""The quick paths of a launch in tests: `pytest_plugins = ["support.quick"]` and the fixture `quick`.

Left alone, a test that launches once would never see them: they take the second launch with arguments of some types.
With this fixture they get the first one too, wherever they take it; what they decline goes the general way, as always.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from aotcuda.runtime import accelerate, arrays, launch

SOURCE = Path(__file__).parents[2] / "accelerator" / "launch.c"


@pytest.fixture(scope="session")
def accelerator_module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The accelerator, compiled for this Python."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    headers = Path(sysconfig.get_path("include"))
    if compiler is None or not (headers / "Python.h").is_file():
        pytest.skip("the accelerator needs a C compiler and Python's headers")
    library = tmp_path_factory.mktemp("accelerator") / "aotcuda_accelerator.so"
    stable = [] if sysconfig.get_config_var("Py_GIL_DISABLED") else ["-DPy_LIMITED_API=0x030B0000"]
    strict = ["-Wall", "-Wextra", "-Werror", "-Wno-cast-function-type", "-Wno-missing-field-initializers"]
    command = [compiler, "-shared", "-fPIC", "-O1", *strict, *stable, f"-I{headers}", "-o", library, SOURCE]
    subprocess.run(command, check=True)
    spec = importlib.util.spec_from_file_location("aotcuda_accelerator", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["python", "accelerator"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which quick path launches have: the one in Python, or the compiled one."""
    name: str = request.param
    module = request.getfixturevalue("accelerator_module") if name == "accelerator" else None
    monkeypatch.setattr(accelerate, "_found", [module])
    return name


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> list[launch.Launcher]:
    """The launchers of the launches that went the general way."""
    seen: list[launch.Launcher] = []
    original = launch.Launcher.submit

    def submit(self: launch.Launcher, *args: Any) -> None:
        seen.append(self)
        original(self, *args)

    monkeypatch.setattr(launch.Launcher, "submit", submit)
    return seen


class Quick:
    """What went the quick way in a test.

    Attributes:
        path: The quick path that launches have.
        taken: How many launches it took.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.taken = 0


@pytest.fixture
def quick(path: str, monkeypatch: pytest.MonkeyPatch) -> Quick:
    """Lets the quick path have every launch, the first one with arguments of some types included."""
    state = Quick(path)
    general = launch.Launcher.launch
    busy: list[object] = []

    def launch_eagerly(self: launch.Launcher, args: tuple[object, ...]) -> None:
        if busy or any(arrays.family(arg) == "dlpack" for arg in args):
            general(self, args)
            return
        program = self.kernel.module.ready()
        group = self.kernel.group(args)
        plan, slot, _, pending = self.kernel.select(args, self.stream, group)
        plan.slots.append(slot)
        if group is None or not group.is_of(plan) or self.kernel.module.editable or pending:
            general(self, args)
            return
        program.enter(())
        self._learn(program, group, args)
        before = state.taken
        busy.append(self)
        monkeypatch.setattr(launch.Launcher, "launch", count_general)
        try:
            state.taken += 1
            (self.front or self)(*args)
        finally:
            monkeypatch.setattr(launch.Launcher, "launch", launch_eagerly)
            busy.pop()
        assert state.taken in (before, before + 1)

    def count_general(self: launch.Launcher, args: tuple[object, ...]) -> None:
        state.taken -= 1
        general(self, args)

    monkeypatch.setattr(launch.Launcher, "launch", launch_eagerly)
    return state
