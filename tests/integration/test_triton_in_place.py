"""A Triton package in place: built from its variants file, installed, and launched on the stand-in driver."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

from integration import projects

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("triton", reason="Triton is not installed (extra triton)")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = projects.copy("tritonops", tmp_path_factory.mktemp("triton") / "project")
    projects.back_end(project, AOTCUDA_ARCH="sm_80;sm_90")
    (built,) = (project / "dist").glob("*.whl")
    return built


def test_sources_stay_as_they_are(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in ("ops.py", "cache.py"):
            assert archive.read(f"tritonops/{name}") == (projects.PACKAGES / "tritonops/tritonops" / name).read_bytes()
        assert "tritonops/ops.aotcuda/tuning.json" in archive.namelist()
