"""Test that everything in `aotcuda.common.removed` is refused by one line that names what replaces it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aotcuda.cli import _parser, main
from aotcuda.common import removed
from aotcuda.errors import LaunchError
from support.manifests import kernel

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = {("AOTCUDA_BUILD_CACHE", "://"): ["s3://name:secret@bucket/x", "https://host/x?key=secret", "file:///tmp/x"]}
"""For each row of `removed.VALUES`, values of earlier versions."""

PROJECT = """\
[project]
name = "pkg"
version = "1"

[tool.aotcuda]
arch = ["sm_90"]

[tool.aotcuda.modules."pkg.k"]
frontend = "cuda-cpp"
source = "pkg/k.cu"
kernels.first = {}
"""


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must fail; return its only line of output."""
    try:
        status = main(arguments)
    except SystemExit as stop:
        status = stop.code  # type: ignore[assignment]
    output = capsys.readouterr()
    assert (status, output.out) == (2, "")
    assert output.err.count("\n") == 1
    return output.err


@pytest.mark.parametrize("command", removed.COMMANDS)
def test_removed_command_names_its_replacement(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([command], [command, "x", "--out", "y"]):
        assert refusal(arguments, capsys) == f"aotcuda: {command} was removed; {removed.COMMANDS[command]}\n"
    assert command not in _parser().format_help()


@pytest.mark.parametrize(("command", "option"), removed.OPTIONS)
def test_removed_option_names_its_replacement(command: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = f"aotcuda {command}: {option} was removed; {removed.OPTIONS[command, option]}\n"
    words_after = (
        [["project", option, "value"]] if command not in ("record", "run") else []
    )  # they belong to the program
    for words in ([option], [option, "value"], [f"{option}=value"], *words_after):
        assert refusal([command, *words], capsys) == expected
    with pytest.raises(SystemExit):
        _parser().parse_args([command, "--help"])
    assert option not in capsys.readouterr().out


def test_options_of_recorded_programs_are_not_refused() -> None:
    for command, option in removed.OPTIONS:
        if command in ("record", "run"):
            words = [command, "--", "python", "program.py", option]
            assert _parser().parse_args(words).command[-1] == option


@pytest.mark.parametrize(("row", "value"), [(row, value) for row in removed.VALUES for value in EXAMPLES[row]])
def test_removed_value_names_its_replacement(
    row: tuple[str, str],
    value: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "k.cu").write_text('extern "C" __global__ void first(int *x) { x[0] = 1; }\n')
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    monkeypatch.setenv(row[0], value)
    monkeypatch.chdir(tmp_path)
    assert main(["build", str(tmp_path)]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == f"aotcuda: {row[0]}: values with {row[1]} were removed; {removed.VALUES[row]}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pkg", "pyproject.toml"]


ORIGINS = {"python": "mypkg._kernels", "cuda-cpp": "csrc/raw.cu"}
"""For each row of `removed.SIMULATED`, the source of a module."""


@pytest.mark.parametrize("row", removed.SIMULATED)
def test_generated_module_in_simulator_names_its_replacement(
    row: str, cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    module = cuda.package({**kernel("k", "void(int32)"), "origin": f"{ORIGINS[row]}:k"})
    with pytest.raises(LaunchError) as caught:
        module.k  # noqa: B018 (an attribute raises)
    message = str(caught.value)
    assert message.endswith(removed.SIMULATED[row].format(origins=ORIGINS[row]))
    assert "\n" not in message


def test_removed_names_do_not_exist() -> None:
    commands = next(action for action in _parser()._actions if action.dest != "help" and action.choices).choices
    assert not {*removed.COMMANDS} & {*commands}
    assert {command for command, _ in removed.OPTIONS} <= {*commands}
