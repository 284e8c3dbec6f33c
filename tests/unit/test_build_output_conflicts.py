"""Test what `aotcuda build` refuses to write over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aotcuda import cli
from aotcuda.builder import output_conflicts, wheel_files
from aotcuda.errors import BuildError

if TYPE_CHECKING:
    from pathlib import Path

FILES = ["pkg/k.py", "pkg/k.pyi", "pkg/k.aotcuda/manifest.json", "pkg/k.aotcuda/sources/_prelude.py"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "_k.py").write_text("try:\n    pass\nfinally: pass\n")
    (tmp_path / "out").mkdir()
    return tmp_path


def why_refused(project: Path, **options: str) -> str | None:
    """Return the error of a build with these options, which writes nothing; None if the build succeeds."""
    named = {f"--{name}": project / path for name, path in options.items()}
    read = [project / "pkg" / "__init__.py", project / "pkg" / "_k.py", project / "pkg"]
    try:
        output_conflicts.check_options(named, project / "pyproject.toml")
        output_conflicts.check_files(named, project / "out", FILES, read)
    except BuildError as error:
        return str(error).replace(f"{project}/", "")
    return None


@pytest.mark.parametrize("option", ["stamp", "depfile", "sbom"])
@pytest.mark.parametrize(
    "path",
    ["pyproject.toml", "pkg/_k.py", "pkg/__init__.py", "pkg/../pkg/_k.py", "out/pkg/k.py", "out/pkg/k.aotcuda/d"],
)
def test_no_option_names_what_the_build_reads_or_writes(project: Path, option: str, path: str) -> None:
    (project / "out" / "pkg").mkdir()
    said = why_refused(project, **{option: path})
    assert said is not None
    assert said.startswith(f"--{option} {path} ")
    assert "\n" not in said


def test_no_two_options_name_one_file(project: Path) -> None:
    assert why_refused(project, depfile="out/x", stamp="out/../out/x") == (
        "--stamp out/../out/x would overwrite the file of --depfile; name another file"
    )


def test_a_stamp_replaces_stamps_alone(project: Path) -> None:
    (project / "notes.txt").write_text("mine")
    assert why_refused(project, stamp="notes.txt") == (
        "--stamp notes.txt would overwrite a file that no such build wrote; name another one, or remove it"
    )


def test_files_of_an_earlier_build_may_be_replaced(project: Path) -> None:
    (project / "k.d").write_bytes(b"k.s: \\\n  /p/a.py\n/p/a.py:\n")
    (project / "k.s").write_text('{"folder": "."}')
    (project / "touched").touch()
    options = {"--depfile": project / "k.d", "--stamp": project / "k.s", "--sbom": project / "touched"}
    output_conflicts.check_options(options, project / "pyproject.toml")
    del options["--sbom"]
    output_conflicts.check_files(options, project / "out", FILES, options.values())
    assert why_refused(project, depfile="k.d", stamp="k.s", sbom="touched") is None


@pytest.mark.parametrize("name", ["k.py", "k.pyi"])
def test_another_module_in_the_folder_is_not_replaced(name: str, project: Path) -> None:
    path = project / "out" / "pkg" / name
    path.parent.mkdir()
    path.write_text("mine = True\n")
    assert why_refused(project) == (
        f"out/pkg/{name} is there, and aotcuda did not write it; name another folder, or remove it"
    )
    path.write_text(f"{wheel_files.MARK} 1.0\n")
    assert why_refused(project) is None


def test_a_build_refuses_before_it_builds(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = project / "pyproject.toml"
    config.write_text('[tool.aotcuda]\narch = ["sm_80"]\n')
    assert cli.main(["build", str(project), "--stamp", str(config)]) == 1
    assert capsys.readouterr().err == (
        f"aotcuda: --stamp {config} would overwrite the project's pyproject.toml; name another file\n"
    )
