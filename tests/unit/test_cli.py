"""Test the output and the exit codes of the command line."""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import subprocess
import sys
import types
from pathlib import Path

import pytest

from aotcuda import cli
from aotcuda.cli import main
from aotcuda.errors import CompileError
from support import modules


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return modules.write_wheel(tmp_path)


def fake_build(monkeypatch: pytest.MonkeyPatch, build_project: object) -> None:
    module = types.ModuleType("aotcuda.builder.entry.build_command")
    module.build_project = build_project
    monkeypatch.setitem(sys.modules, "aotcuda.builder.entry.build_command", module)


def test_inspect_takes_several_targets(wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(wheel), str(wheel), "--json"]) == 0
    assert [module["name"] for module in json.loads(capsys.readouterr().out)["modules"]] == ["mypkg.kernels"] * 2
    assert main(["inspect", str(wheel), str(wheel), "--summary"]) == 0
    assert capsys.readouterr().out.count("mypkg.kernels.axpy") == 2
    assert main(["inspect", str(wheel), "nothing.at.all"]) == 1
    assert capsys.readouterr() == ("", "aotcuda: there is no file, folder or importable module nothing.at.all\n")


def test_problem_is_one_line_on_standard_error(wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel.write_bytes(wheel.read_bytes()[:1000])
    assert main(["inspect", str(wheel), "--json"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == f"aotcuda: {wheel} is no readable wheel; it was truncated or altered\n"


@pytest.mark.parametrize(
    "arguments", [[], ["inspect"], ["inspect", "a", "--json", "--summary"], ["unknown"], ["inspect", "a", "--yaml"]]
)
def test_wrong_usage_gives_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("usage: aotcuda")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["build"], (Path(), None, {})),
        (["build", "project", "--out", "there"], (Path("project"), Path("there"), {})),
        (["build", "--sbom", "bom.json"], (Path(), None, {"bill": Path("bom.json")})),
        (
            ["build", "--depfile", "k.d", "--stamp", "k.s"],
            (Path(), None, {"depfile": Path("k.d"), "stamp": Path("k.s")}),
        ),
    ],
)
def test_build_lists_the_files_that_it_wrote(arguments, expected, monkeypatch, capsys):
    calls = []

    def build_project(project: Path, out: Path | None, warn: object, **others: object) -> list[Path]:
        calls.append((project, out, {name: value for name, value in others.items() if value and name != "quiet"}))
        return [Path("there/kernels.py"), Path("there/kernels.pyi")]

    fake_build(monkeypatch, build_project)
    assert main(arguments) == 0
    assert calls.pop() == expected
    assert capsys.readouterr().out.splitlines() == ["there/kernels.py", "there/kernels.pyi"]
    assert main([*arguments, "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_failed_build_gives_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def build_project(project: Path, out: Path | None, warn: object, **_: object) -> list[Path]:
        message = "_kernels.py:7: no such attribute"
        raise CompileError(message)

    fake_build(monkeypatch, build_project)
    assert main(["build"]) == 1
    assert capsys.readouterr() == ("", "aotcuda: _kernels.py:7: no such attribute\n")


def test_build_without_its_extra_names_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "aotcuda.builder.entry.build_command", None)
    assert main(["build"]) == 1
    error = capsys.readouterr().err
    assert error.endswith("; run: pip install 'aotcuda[cu13]'\n")
    assert error.count("\n") == 1


def test_process_without_standard_streams_works(wheel: Path) -> None:
    command = ["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', sys.executable, "-m", "aotcuda", "inspect"]
    assert subprocess.run([*command, str(wheel)], check=False).returncode == 0
    assert subprocess.run([*command, "nothing.at.all"], check=False).returncode == 1


def test_closed_pipe_gives_no_traceback(wheel: Path) -> None:
    command = [sys.executable, "-m", "aotcuda", "inspect", "--json", str(wheel)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


def test_cmakedir_needs_no_module_and_other_options_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--cmakedir"]) == 0
    assert (Path(capsys.readouterr().out.strip()) / "aotcuda-config.cmake").is_file()
    for arguments in (["config", "--libs"], ["config", "--cmakedir", "pkg.k"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 2
        assert "name MODULE, or pass --cmakedir" in capsys.readouterr().err


def test_full_disk_is_reported_in_one_line(wheel: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "aotcuda", "inspect", str(wheel)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    message = "aotcuda: writing failed (No space left on device); free some space, or write to another folder\n"
    assert (done.returncode, done.stderr) == (1, message)


def parsers(parser, name="aotcuda"):
    """Yield the names and parsers of a command and of its own commands."""
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command, child in action.choices.items():
                yield from parsers(child, f"{name} {command}")


def test_each_help_ends_with_an_example_of_the_command():
    for name, parser in parsers(cli._parser()):
        *_, heading, example = parser.format_help().rstrip().splitlines()
        assert heading == "example:", name
        assert example.startswith(f"  {name}"), name
        cli._parser().parse_args(shlex.split(example)[1:])


def test_help_lists_each_command_once_under_a_heading():
    text = cli._parser().format_help()
    commands = [line.split()[0] for line in text.splitlines() if line.startswith("  ") and "example" not in line]
    (action,) = (item for item in cli._parser()._actions if isinstance(item, argparse._SubParsersAction))
    assert [name for name in commands if name in action.choices] == list(itertools.chain(*cli._GROUPS.values()))
    assert set(action.choices) == set(commands) - {"-h,", "--version", "aotcuda"}
