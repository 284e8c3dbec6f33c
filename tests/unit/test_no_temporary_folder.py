"""Test commands on a machine without a temporary folder that can be written: one line, and no traceback."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from aotcuda.builder.write import temporary
from aotcuda.cli import main
from aotcuda.errors import BuildError

WHEEL = str(next((Path(__file__).parents[1] / "data" / "wheels").glob("quickstart-*.whl")))
FOLDERS = {
    "TMPDIR is missing": "/nowhere/a",
    "TMPDIR is a file": __file__,
    "TMPDIR is below a file": "/dev/null/a",
    "all is read-only": "/proc",
}
"""Folders of which Python finds none to be usable, also for root."""

COMMANDS = [
    ["record", "--dry", "--", sys.executable, "-c", "pass"],
    pytest.param(["inspect", WHEEL], marks=pytest.mark.needs("lz4")),
    ["check", WHEEL],
    pytest.param(["diff", WHEEL, WHEEL], marks=pytest.mark.needs("lz4")),
    pytest.param(["split", WHEEL, "--out", "parts"], marks=pytest.mark.needs("lz4")),
    ["doctor"],
    ["cache", "list"],
]


@pytest.fixture(params=FOLDERS)
def project(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of an empty project, on a machine without a temporary folder."""
    folders = ["/nowhere/b", FOLDERS[request.param]]
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: folders)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mypkg"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_command_works_or_names_the_variable(
    command: list[str], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(project.iterdir())
    status = main(command)
    lines = capsys.readouterr().err.splitlines()
    assert "Traceback" not in "".join(lines)
    if status:
        assert status in (1, 127)
        assert "set TMPDIR to a folder" in lines[-1]
        assert sorted(project.iterdir()) == before


@pytest.mark.usefixtures("project")
def test_builds_name_the_variable() -> None:
    with pytest.raises(BuildError, match=r"no temporary folder can be made .*; set TMPDIR to a folder with free space"):
        temporary.make_folder()
