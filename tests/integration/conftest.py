"""Fixtures: wheels and environments that several tests use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aotcuda.builder.compile import process
from integration import forked, projects
from support import front_ends
from support.stand_in import cuda, stand_in_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Once = Callable[[str, Callable[[Path], object]], Path]

__all__ = [
    "back_end",
    "build_cache",
    "cuda",
    "cuda12",
    "environment",
    "features",
    "from_checkout",
    "front_end",
    "no_build_cache",
    "setuptools",
    "stand_in_library",
    "wheelhouse",
]


@pytest.fixture(scope="session", autouse=True)
def _workers(session_folder: Path) -> Iterator[None]:
    """Fork workers from servers; see `forked`."""
    owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    forked.install(session_folder / "servers", owner)
    command = process._command

    def forked_command(*arguments: str) -> list[str]:
        return [forked.Session.python, *command(*arguments)[1:]]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "_command", forked_command)  # for builds in this process
        yield


@pytest.fixture(scope="session")
def _build_cache_folder(session_folder: Path) -> Path:
    """Return the folder of a build cache for all processes of this run."""
    folder = session_folder / "build-cache"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def build_cache(_build_cache_folder: Path) -> Iterator[Path]:
    """Return a build cache, for tests that need the result of a build."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTCUDA_BUILD_CACHE", str(_build_cache_folder))
        yield _build_cache_folder


@pytest.fixture
def no_build_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use no build cache in a test of how builds run."""
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", "0")


@pytest.fixture(scope="session")
def wheelhouse(once: Once) -> Path:
    """Return a folder with a pure wheel of this checkout."""
    command = (*projects.BUILD, "--wheel", "--outdir")
    pure = {"AOTCUDA_EXTENSION": "0"}
    return once("wheelhouse", lambda folder: projects.succeed(projects.CHECKOUT, *command, folder, ".", **pure))


@pytest.fixture(scope="session")
def cuda12() -> str:
    """Return a folder with CUDA 12.9's compilers; on PYTHONPATH, builds use them together with those of CUDA 13."""
    folder = Path(sys.prefix, "cuda12")
    if not (folder / "nvidia").is_dir():
        pytest.skip(f"the compilers of CUDA 12.9 are not in {folder}; tools/test.py puts them there")
    return str(folder)


@pytest.fixture
def from_checkout(wheelhouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let installers find this checkout's aotcuda, and all other packages in the index."""
    monkeypatch.setenv("PIP_FIND_LINKS", f"{os.environ.get('PIP_FIND_LINKS', '')} {wheelhouse}".strip())
    monkeypatch.setenv("UV_FIND_LINKS", str(wheelhouse))


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Return the Python of a new virtual environment with nothing in it, not even pip."""
    folder = tmp_path / "environment"
    projects.succeed(tmp_path, sys.executable, "-m", "venv", "--without-pip", folder)
    return folder / "bin" / "python"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with the front ends or back ends of its mark; without a mark CI runs it with the first one alone."""
    is_marked = metafunc.definition.get_closest_marker("front_end") is not None
    front_ends.parametrize(metafunc, front_ends.ALL, {} if is_marked else {front_ends.MLIR: pytest.mark.matrix})
    if "back_end" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("back_end")
        names = marker.args if marker else ("hatchling", pytest.param("setuptools", marks=pytest.mark.matrix))
        metafunc.parametrize("back_end", names, indirect=True, scope="module")


@pytest.fixture(scope="session")
def setuptools(once: Once, wheelhouse: Path) -> Callable[[str], Path]:
    """Return a function that installs a version of setuptools and this checkout into a folder."""

    def install(version: str) -> Path:
        (archive,) = wheelhouse.glob("*.whl")
        packages = (f"setuptools{version}", "wheel", archive)  # setuptools before 70.1 has no `bdist_wheel`
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")

        def fill(folder: Path) -> None:
            projects.succeed(folder, *pip, "--no-deps", "--target", folder, *packages)

        return once(f"setuptools{version}", fill)

    return install


@pytest.fixture(scope="module")
def back_end(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the back end of new projects."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projects.BackEnd, "name", request.param)
        if request.param == "setuptools":
            patch.setenv("PYTHONPATH", str(request.getfixturevalue("setuptools")("")))
        yield request.param


@pytest.fixture(scope="module")
def front_end(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the front end of new projects.

    A module's fixture that builds uses this fixture, so it builds for each front end.
    """
    if request.param == front_ends.MLIR and not front_ends.is_mlir_installed():
        pytest.skip("numba-cuda-mlir is not installed (extra mlir-cu13)")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projects.FrontEnd, "name", request.param)
        yield request.param


@pytest.fixture(scope="session")
def wheel_of(once: Once) -> Callable[..., Path]:
    """Return a function that returns the wheel of a project under `tests/packages`, for the front end of the test."""

    def build(name: str, **environ: str) -> Path:
        def fill(folder: Path) -> None:
            projects.build_wheel(projects.copy(name, folder / "project"), **environ)

        (wheel,) = once(f"{name}-{projects.FrontEnd.name}-{projects.BackEnd.name}", fill).glob("project/dist/*.whl")
        return wheel

    return build


@pytest.fixture(scope="session")
def wheel_of_example(once: Once, _build_cache_folder: Path) -> Callable[[str], Path]:
    """Return a function that returns the wheel of a project under `examples`, for two targets."""
    environ = {"AOTCUDA_ARCH": "sm_80;compute_80", "AOTCUDA_BUILD_CACHE": str(_build_cache_folder)}

    def build(name: str) -> Path:
        def fill(folder: Path) -> None:
            projects.build_wheel(projects.example(name, folder / "project"), **environ)

        (wheel,) = once(f"example-{name}", fill).glob("project/dist/*.whl")
        return wheel

    return build


@pytest.fixture(scope="module")
def features(front_end: str, wheel_of: Callable[..., Path]) -> dict[str, bytes]:
    """Return the content of a wheel of `tests/packages/features`, for targets of every kind."""
    return projects.content(wheel_of("features", **projects.ARCH_OF_FEATURES))


@pytest.fixture(scope="session")
def driver(once: Once) -> Path:
    """Return the folder of a stand-in driver for the compilers' own launches."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.fail("the stand-in driver needs a C compiler: install gcc")
    source = projects.CHECKOUT / "tests" / "support" / "fake_libcuda_compilers.c"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-o", "libcuda.so.1", source, "-lpthread", "-ldl"]
    return once("driver-of-compilers", lambda folder: subprocess.run(command, cwd=folder, check=True))
