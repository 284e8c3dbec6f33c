"""Read any pyproject.toml, or report its fault in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aotcuda.cli import main
from aotcuda.common import project_file, stamp
from aotcuda.runtime.jit import build_inputs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TABLE = '[tool.aotcuda]\narch = ["sm_90"]\nmodules."pkg.k".source = "pkg.source"\n'
QUOTED = '. "a"' * 30_000


def text(content: str | bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content.encode() if isinstance(content, str) else content)


UNREADABLE = {
    "no TOML": (text("[tool"), "is not valid TOML: "),
    "a byte order mark": (
        text(f"\ufeff{TABLE}"),
        "begins with a byte order mark, which TOML does not allow; save it without one",
    ),
    "a table 30,000 deep": (text(f"{TABLE}[tool.x{'.a' * 30_000}]\nb = 1\n"), "is nested more than 100 tables deep"),
    "a quoted key of 30,000 parts": (text(f"{TABLE}[x]\ny{QUOTED} = 1\n"), "is nested more than 100"),
    "a folder": (lambda path: path.mkdir(), "is a folder, not a regular file"),
    "a link in a circle": (
        lambda path: path.symlink_to(path.name),
        "cannot be read (Too many levels of symbolic links)",
    ),
}
OF_ANOTHER_SHAPE = {
    "an empty file": text(""),
    "tables that are numbers": text("[tool]\naotcuda = 3\nhatch = 4\nsetuptools = 5\n"),
    "a build system that is a list": text(f"build-system = []\n{TABLE}"),
    "requirements that are numbers": text(f"build-system = {{ requires = 5 }}\nproject = {{ dynamic = 7 }}\n{TABLE}"),
    "folders that are numbers": text(
        f"{TABLE}[tool.setuptools]\npackages.find.where = 3\n[tool.hatch.build.targets.wheel]\npackages = 7\n"
    ),
}
COMMANDS = {
    "build": ["build", "{}"],
    "init": ["init", "{}"],
    "inspect": ["inspect", "{}/pkg"],
    "check": ["check", "{}"],
    "diff": ["diff", "{}", "{}"],
    "config": ["config", "--libs", "{}"],
    "warm": ["cache", "warm", "{}"],
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project without the file."""
    folder = tmp_path / "project"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "__init__.py").write_text("")
    (folder / "pkg" / "source.py").write_text("from numba import cuda\n@cuda.jit\ndef k(x): pass\n")
    return folder


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", [*UNREADABLE, *OF_ANOTHER_SHAPE])
def test_command_reports_one_line(project: Path, name: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    make = UNREADABLE[name][0] if name in UNREADABLE else OF_ANOTHER_SHAPE[name]
    make(project / "pyproject.toml")
    status = main([part.format(project) for part in COMMANDS[command]])
    output = capsys.readouterr()
    assert "Traceback" not in output.err
    if status:
        assert output.err.startswith("aotcuda: ")
        assert output.err.count("\n") == 1
    else:
        assert command == "init"
        assert output.out
    if name in UNREADABLE and command in ("build", "init"):
        assert f"{project}/pyproject.toml {UNREADABLE[name][1]}" in output.err


@pytest.mark.parametrize("name", [*UNREADABLE, *OF_ANOTHER_SHAPE])
def test_launch_reads_the_table_or_none(project: Path, name: str) -> None:
    make = UNREADABLE[name][0] if name in UNREADABLE else OF_ANOTHER_SHAPE[name]
    path = project / "pyproject.toml"
    make(path)
    table, digest = build_inputs.table_of(str(path)), stamp._table(str(path))
    assert (digest is None) == (name in UNREADABLE)
    assert table is None or table == project_file.table(project_file.content(path), "tool", "aotcuda")


def test_tables_and_strings_of_other_types_are_empty() -> None:
    data = {"a": {"b": {"c": 1}}, "d": [1, "x", None]}
    assert project_file.table(data, "a", "b") == {"c": 1}
    assert project_file.table(data, "a", "b", "c") == project_file.table(data, "d") == project_file.table(3) == {}
    assert project_file.strings(data["d"]) == ["x"]
    assert project_file.strings("x") == project_file.strings(None) == []


def test_missing_file_gives_none(tmp_path: Path) -> None:
    assert project_file.read(tmp_path / "none.toml") is project_file.read("/dev/null/none.toml") is None
