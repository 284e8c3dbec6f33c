"""Test that the projects of the README and the tutorial build, and that pages show the real output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import zipfile
from typing import TYPE_CHECKING

import pytest

from aotcuda.tools.inspect.collect import collect
from aotcuda.tools.inspect.table import render
from integration.projects import CHECKOUT, build_wheel, refused

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    text = (CHECKOUT / page).read_text(encoding="utf-8")
    return [textwrap.dedent(block) for _, kind, block in BLOCK.findall(text) if kind == language]


def written(folder: Path, page: str, package: str) -> Path:
    """Write the project of a page: its first table, and its first module in Python."""
    project = folder / "project"
    (project / package).mkdir(parents=True)
    (project / package / "__init__.py").write_text("")
    (project / package / "_kernels.py").write_text(blocks(page, "python")[0])
    table = next(text for text in blocks(page, "toml") if "[build-system]" in text)
    (project / "pyproject.toml").write_text(table)
    return project


@pytest.fixture(scope="module")
def readme(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(written(tmp_path_factory.mktemp("readme"), "README.md", "mypkg"))


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(written(tmp_path_factory.mktemp("tutorial"), "docs/tutorial.md", "src/waves"))


def test_readme_project_has_the_module_of_its_last_lines(readme: Path) -> None:
    (module,) = collect(str(readme)).modules
    assert module.name == "mypkg.kernels"
    (kernel,) = module.symbols
    assert (kernel.name, kernel.signature) == ("axpy", "void(float32, float32[::1], float32[::1], float32[::1])")
    assert [image.arch for image in module.images] == ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_75"]
    last = blocks("README.md", "python")[-1]
    assert f"import {module.name} as k" in last
    assert f"k.{kernel.name}.forall(x.size)(2.0, x, y, out)" in last


def test_cpu_fallback_of_the_how_to_works(readme: Path, tmp_path: Path) -> None:
    (recipe,) = (text for text in blocks("docs/testing.md", "python") if "HAS_GPU" in text)
    with zipfile.ZipFile(readme) as archive:
        archive.extractall(tmp_path)
    program = f"{recipe}\nprint(HAS_GPU, axpy(2.0, np.ones(2, 'f4'), np.ones(2, 'f4')))\n"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "False [3. 3.]\n"


def test_tutorial_shows_the_report_of_its_wheel(tutorial: Path) -> None:
    assert f"aotcuda inspect dist/{tutorial.name}" in (CHECKOUT / "docs" / "tutorial.md").read_text()
    shown = next(text for text in blocks("docs/tutorial.md", "") if "registers" in text)
    printed = [re.sub(r"\d+", "N", " ".join(line.split())) for line in render(collect(str(tutorial))).splitlines()]
    # Bytes and registers depend on the compiler's release.
    assert [line for line in shown.splitlines() if re.sub(r"\d+", "N", " ".join(line.split())) not in printed] == []


def test_tutorial_shows_the_error_of_its_mistake(tmp_path: Path) -> None:
    project = written(tmp_path, "docs/tutorial.md", "src/waves")
    config = project / "pyproject.toml"
    config.write_text(config.read_text().replace("float32", "flaot32", 1))
    expected = next(text for text in blocks("docs/tutorial.md", "") if "flaot32" in text)
    assert expected.strip() in refused(project).err
