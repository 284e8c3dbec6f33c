"""`aotcuda init` lists files with kernels in CUDA C++, and the missing parts of a build."""

from __future__ import annotations

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


def test_init_lists_unpackaged_cuda_cpp_files(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("csrc/raw.cu", "build/raw.cu", "tests/raw.cu", "env/lib/raw.cu", ".hidden/raw.cu"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("__global__ void k() {}\n")
    (project / "env" / "pyvenv.cfg").touch()
    table = '[tool.aotcuda.modules."pkg.c"]\nfrontend = "cuda-cpp"\nsource = "packaged.cu"\n'
    (project / "packaged.cu").write_text("__global__ void k() {}\n")
    (project / "pyproject.toml").write_text(HATCHLING + table)
    (project / "csrc" / "none.cu").write_text("// __global__ is not here /* \n__device__ int f();\n")
    output = init_output(project, capsys)
    assert output.pop().startswith("the build hook is off, so wheels will have no kernels: ")
    assert output == [
        "1 file with kernels in CUDA C++, for a table:",
        "  csrc/raw.cu",
        'to do: their compiler: add "aotcuda[cpp-cu13]" to build-system.requires',
        'to do: the run time: add "aotcuda" to project.dependencies',
    ]


@pytest.mark.parametrize("requires", ["aotcuda[cpp-cu12]", "AOTCUDA [triton, cu13]>=0.1 ; python_version > '3'"])
def test_compilers_of_any_toolkit_are_accepted(
    requires: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "raw.cu").write_text("__global__ void k() {}\n")
    (project / "pyproject.toml").write_text(HATCHLING.replace('"hatchling"]', f'"hatchling", "{requires}"]'))
    assert not [line for line in init_output(project, capsys) if "their compiler" in line]


@pytest.mark.parametrize(
    ("metadata", "is_named"),
    [
        ('dependencies = ["numpy", "aotcuda-extra", "aotcuda.x"]', True),
        ('dependencies = ["numpy", "Aotcuda[numpy] >= 0.1"]', False),
        ('dynamic = ["dependencies"]', False),
    ],
)
def test_a_missing_run_time_is_named(
    metadata: str, is_named: bool, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "raw.cu").write_text("__global__ void k() {}\n")
    (project / "pyproject.toml").write_text(HATCHLING + metadata)
    assert is_named == any("the run time" in line for line in init_output(project, capsys))
