"""Wheels and environments that several tests use; each is made once, in each process that runs tests."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from integration import projects
from support import front_ends
from support.stand_in import cuda, stand_in_library

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["cuda", "environment", "features", "from_checkout", "mlir", "stand_in_library", "wheelhouse"]


@pytest.fixture(scope="session")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheelhouse")
    projects.succeed(projects.CHECKOUT, *projects.BUILD, "--wheel", "--outdir", folder, ".")
    return folder


@pytest.fixture
def from_checkout(wheelhouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools that install `aotcuda` get this checkout's, and everything else from the index."""
    monkeypatch.setenv("PIP_FIND_LINKS", f"{os.environ.get('PIP_FIND_LINKS', '')} {wheelhouse}".strip())
    monkeypatch.setenv("UV_FIND_LINKS", str(wheelhouse))


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The Python of a new virtual environment with nothing in it, not even pip."""
    folder = tmp_path / "environment"
    projects.succeed(tmp_path, sys.executable, "-m", "venv", "--without-pip", folder)
    return folder / "bin" / "python"


@pytest.fixture(scope="session")
def features(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The content of a wheel of `tests/packages/features`, for targets of every kind."""
    project = projects.copy("features", tmp_path_factory.mktemp("features") / "project")
    environ = {"AOTCUDA_ARCH": "sm_75;sm_90;sm_90a;sm_100f;compute_75;compute_90a"}
    files = projects.content(projects.build_wheel(project, **environ))
    shutil.rmtree(project)
    return files


@pytest.fixture(scope="module")
def mlir() -> Iterator[None]:
    """Projects are made for the second front end."""
    if not front_ends.installed():
        pytest.skip("numba-cuda-mlir is not installed (extra mlir-cu13)")
    before, projects.FrontEnd.name = projects.FrontEnd.name, front_ends.MLIR
    yield
    projects.FrontEnd.name = before
