"""`aotcuda init` lists kernels in CUDA C++, and adds the missing parts of a build."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from aotcuda import cli

if TYPE_CHECKING:
    from pathlib import Path

HATCHLING = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n[project]\nname = "pkg"\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(HATCHLING)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    return tmp_path


def init_output(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the output of `aotcuda init` without the first line, which is about kernels in Python."""
    assert cli.main(["init", str(folder)]) == 0
    return capsys.readouterr().out.splitlines()[1:]


@pytest.mark.needs("tomlkit")
def test_init_lists_unpackaged_cuda_cpp_files(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("csrc/raw.cu", "build/raw.cu", "tests/raw.cu", "env/lib/raw.cu", ".hidden/raw.cu"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("__global__ void k() {}\n")
    (project / "env" / "pyvenv.cfg").touch()
    table = '[tool.aotcuda.modules."pkg.c"]\nfrontend = "cuda-cpp"\nsource = "packaged.cu"\n'
    (project / "packaged.cu").write_text("__global__ void k() {}\n")
    (project / "pyproject.toml").write_text(HATCHLING + table)
    (project / "csrc" / "none.cu").write_text("// __global__ is not here /* \n__device__ int f();\n")
    assert init_output(project, capsys) == [
        "1 file with kernels in CUDA C++, for a table:",
        "  csrc/raw.cu",
        "the build hook is on: [tool.hatch.build.targets.wheel.hooks.aotcuda]",
    ]
    written = tomllib.loads((project / "pyproject.toml").read_text())
    assert written["build-system"]["requires"] == ["hatchling", "aotcuda[cpp-cu13]"]
    assert written["project"]["dependencies"] == ["aotcuda"]
    assert init_output(project, capsys)[0] == "1 file with kernels in CUDA C++, for a table:"


@pytest.mark.needs("tomlkit")
@pytest.mark.parametrize(
    ("imported", "call", "is_found"),
    [
        ("import cupy as cp", 'cp.RawKernel("text", "k")', True),
        ("from cupy import ElementwiseKernel as E, RawModule", "RawModule(code=TEXT)", True),
        ("from cuda.core.experimental import Program", "Program(TEXT, 'c++')", True),
        ("import cupy", "cupy.zeros(3)", False),
        ("from mylib import Program", "Program(TEXT)", False),
    ],
)
def test_init_prepares_builds_of_texts_that_programs_compile(
    imported: str, call: str, is_found: bool, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "pkg/a.py").write_text(f"{imported}\n\n\ndef f():\n    return {call}\n")
    output = init_output(project, capsys)
    assert (
        output[:2]
        == ["1 place where CUDA C++ is compiled while the program runs:", f"  pkg/a.py:5: {call.partition('(')[0]}"]
    ) is is_found
    requires = tomllib.loads((project / "pyproject.toml").read_text())["build-system"]["requires"]
    assert ("aotcuda[cpp-cu13]" in requires) is is_found
