"""Test that equal inputs give a wheel with equal bytes in another folder and another environment."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

from integration import projects
from integration.projects import build_wheel, content
from support.images import cuobjdump

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("front_end")

# Run Python on one core, so units are compiled in sequence, with a umask that gives permissions to the user only.
ALONE = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.umask(0o077)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""

OTHER_ENVIRONMENT = {
    "PYTHONHASHSEED": "4711",
    "TZ": "Asia/Tokyo",
    "LC_ALL": "C",
    "USER": "somebody",
    "NUMBA_OPT": "0",
    "NUMBA_CUDA_DEBUGINFO": "1",
    "NUMBA_FORCE_CUDA_CC": "8.9",
    "NUMBA_DEBUG": "1",
    "NUMBA_DISABLE_JIT": "1",
    "NUMBA_ENABLE_CUDASIM": "1",
}


def somewhere_else(name: str, folder: Path) -> Path:
    """Return a copy of a project with older files, in a folder whose name needs quoting."""
    folder = folder / "a project's folder, ü" / "deep" / "down"
    folder.parent.mkdir(parents=True)
    project = projects.copy(name, folder)
    for path in project.rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    return project


def test_line_information_has_no_path_of_the_project(tmp_path: Path) -> None:
    wheels = []
    for project in (projects.copy("flat", tmp_path / "flat"), somewhere_else("flat", tmp_path)):
        config = project / "pyproject.toml"
        config.write_text(config.read_text() + "\n[tool.aotcuda.options]\nlineinfo = true\n")
        wheels.append(build_wheel(project))
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    ptx = cuobjdump(content(wheels[0])["flat/kernels.aotcuda/kernels.fatbin"], "--dump-ptx")
    assert re.findall(r'\.file\s+\d+ "(.*)"', ptx) == ["flat/_kernels.py"]
