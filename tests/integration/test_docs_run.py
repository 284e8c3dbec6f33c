"""The projects of the README and of the tutorial, built as they stand there; what the pages show is what is printed."""

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
    """Return the project that a page has one write: its first table, and its first module in Python."""
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


def test_the_readmes_project_gives_the_module_that_its_last_lines_import(readme: Path) -> None:
    (module,) = collect(str(readme)).modules
    assert module.name == "mypkg.kernels"
    (kernel,) = module.symbols
    assert (kernel.name, kernel.signature) == ("axpy", "void(float32, float32[::1], float32[::1], float32[::1])")
    assert [image.arch for image in module.images] == ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_75"]
    last = blocks("README.md", "python")[-1]
    assert f"import {module.name} as k" in last
    assert f"k.{kernel.name}.forall(x.size)(2.0, x, y, out)" in last


def test_the_how_tos_fallback_computes_on_the_cpu(readme: Path, tmp_path: Path) -> None:
    (recipe,) = (text for text in blocks("docs/howto/cpu-fallback.md", "python") if "HAS_GPU" in text)
    with zipfile.ZipFile(readme) as archive:
        archive.extractall(tmp_path)
    program = f"{recipe}\nprint(HAS_GPU, axpy(2.0, np.ones(2, 'f4'), np.ones(2, 'f4')))\n"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "False [3. 3.]\n"


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_a_first_day_ends_with_a_look_into_the_wheel(page: str) -> None:
    """A forgotten table builds a wheel without kernels."""
    last = [text for text in blocks(page, "") if "aotcuda " in text][-1]
    assert last.strip().splitlines()[-1].startswith("aotcuda inspect dist/*.whl")


def test_the_tutorials_wheel_has_the_name_and_the_kernel_of_the_page(tutorial: Path) -> None:
    assert f"aotcuda inspect dist/{tutorial.name}" in (CHECKOUT / "docs" / "tutorial.md").read_text()
    shown = next(text for text in blocks("docs/tutorial.md", "") if "registers" in text)
    printed = [re.sub(r"\d+", "N", " ".join(line.split())) for line in render(collect(str(tutorial))).splitlines()]
    # Bytes and registers are the compiler's affair, of whichever release.
    assert [line for line in shown.splitlines() if re.sub(r"\d+", "N", " ".join(line.split())) not in printed] == []


def test_the_tutorials_mistake_is_told_as_the_page_says(tmp_path: Path) -> None:
    project = written(tmp_path, "docs/tutorial.md", "src/waves")
    config = project / "pyproject.toml"
    config.write_text(config.read_text().replace("float32", "flaot32", 1))
    expected = next(text for text in blocks("docs/tutorial.md", "") if "flaot32" in text)
    assert expected.strip() in refused(project).err
