"""Test that the projects of the README and the tutorial build, and that pages show the real output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import zipfile
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from aotcuda.tools.inspect.collect import collect
from aotcuda.tools.inspect.table import render
from integration.projects import CHECKOUT, build_wheel, refused

if TYPE_CHECKING:
    from pathlib import Path

    from support.stand_in import DeviceArray, StandIn

BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def cupy_of(cuda: StandIn) -> SimpleNamespace:
    """Return the functions of CuPy that the README calls, with arrays of the stand-in driver."""

    def array(size: int, dtype: str = "<f8") -> DeviceArray:
        made = cuda.array(np.zeros(size, dtype))
        made.size, made.dtype = size, dtype
        return made

    def like(x: Any) -> DeviceArray:
        return array(x.size, x.dtype)

    return SimpleNamespace(float32="<f4", arange=array, ones=array, ones_like=like, empty_like=like)


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
    """Return the wheel of the README's project of Numba, to which its kernel in CUDA C++ is added."""
    project = written(tmp_path_factory.mktemp("readme"), "README.md", "mypkg")
    (project / "csrc").mkdir()
    (project / "csrc" / "scale.cu").write_text(blocks("README.md", "cpp")[0])
    (raw,) = (text for text in blocks("README.md", "toml") if 'modules."mypkg.raw"' in text)
    with (project / "pyproject.toml").open("a") as config:
        config.write(raw)
    return build_wheel(project)


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(written(tmp_path_factory.mktemp("tutorial"), "docs/tutorial.md", "src/waves"))


def test_readme_projects_have_the_modules_that_it_launches(readme: Path) -> None:
    modules = {module.name: module for module in collect(str(readme)).modules}
    kernels, raw = modules["mypkg.kernels"], modules["mypkg.raw"]
    (kernel,) = kernels.symbols
    assert (kernel.name, kernel.signature) == ("axpy", "void(float32, float32[::1], float32[::1], float32[::1])")
    assert [image.arch for image in kernels.images] == ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_75"]
    assert {(kernel.name, kernel.signature) for kernel in raw.symbols} == {
        ("scale", "void(double, double *)"),
        ("scale", "void(float, float *)"),
    }


def test_readme_launches_packaged_kernels(readme: Path, cuda: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda.set(devices="9.0")
    cuda.install(readme)
    monkeypatch.setitem(sys.modules, "cupy", cupy_of(cuda))
    launches = [text for text in blocks("README.md", "python") if "import mypkg." in text]
    for text in launches:
        exec(text, {})
    assert [(call["kernel"], call["block"][0] * call["grid"][0] >= 1000) for call in cuda.launches()] == [
        ("axpy", True),
        ("_Z5scaleIdEvT_PS0_i", True),
    ]


EXCERPT = re.compile(r"`(examples/[^`]*)`(?:(?!`examples/)[^#])*?\n\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_excerpts_of_examples_equal_their_files() -> None:
    excerpts = EXCERPT.findall((CHECKOUT / "README.md").read_text())
    assert len(excerpts) == 4
    assert [path for path, text in excerpts if text not in (CHECKOUT / path).read_text()] == []


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
