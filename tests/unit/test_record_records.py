"""The file that accumulates the launches of several runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aotcuda.errors import ConfigError
from aotcuda.tools.record import command, records


def launches(count: int, **more: object) -> records.Record:
    facts: dict = {"frontend": "numba-cuda", "kind": "kernel", "module": "m", "function": "k", "signature": "void()"}
    return records.Record(**{**facts, "file": "m.py", "line": 1, "launches": {"A": count} if count else {}, **more})


def run(*items: records.Record) -> records.Recorded:
    return records.Recorded().plus(items, ())


def test_launches_add_up_and_other_values_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    records.add(path, run(launches(2, path="k", site="x.py:1", declared=True)))
    recorded = records.add(path, run(launches(3, line=7), launches(1, options={"fastmath": True})))
    merged = recorded.records
    assert recorded.runs == 2
    assert [item.launches for item in merged] == [{"A": 1}, {"A": 5}]
    assert (merged[1].line, merged[1].path, merged[1].site, merged[1].declared) == (7, "k", "x.py:1", True)
    assert records.load(path) == recorded


def choice(count: int, block: int) -> records.Choice:
    config = {"BLOCK": block}
    return records.Choice(module="m", function="k", keys=["n"], key=[1], config=config, launches={"A": count})


def test_choices_of_autotuners_add_up(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    records.add(path, records.Recorded(choices=[choice(2, 64)], runs=1))
    recorded = records.add(path, records.Recorded(choices=[choice(3, 64), choice(1, 128)], runs=2))
    assert {item.config["BLOCK"]: item.launches for item in recorded.choices} == {64: {"A": 5}, 128: {"A": 1}}
    assert recorded.runs == 3
    assert records.load_given(path) == recorded


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.json"
    before = records.add(path, run(launches(2)))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ConfigError, match=r"cannot be written \(No space left on device\)"):
        records.add(path, run(launches(1)))
    assert records.load(path) == before
    assert [item.name for item in tmp_path.iterdir()] == ["record.json"]


UNREADABLE = r"cannot be read as a record \(.*\); remove it, or name another file"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, UNREADABLE) for text in ("", "[]", "[" * 100_000, '{"version": 1}')),
        ('{"version": 1, "runs": 1, "functions": [{}]}', UNREADABLE),
        ('{"version": 1, "runs": 1, "functions": [3]}', UNREADABLE),
        ('{"version": 2}', "is of version 2, which this aotcuda cannot read"),
    ],
)
def test_a_file_of_another_kind_is_left_alone(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        records.add(path, run(launches(1)))
    assert path.read_text() == text
    assert [item.name for item in tmp_path.iterdir()] == ["record.json"]


@pytest.mark.parametrize("name", ["pipe", "folder", "/dev/zero"])
def test_special_files_are_refused_without_waiting(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match=f"^{tmp_path / name}: is .*, not a regular file; remove it"):
        records.check(tmp_path / name)


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "record.json"
    with pytest.raises(ConfigError, match="cannot be written"):
        records.add(path, run(launches(1)))
    assert records.load(path) == records.Recorded()
    with pytest.raises(ConfigError, match="there is no such file"):
        records.load_given(path)


def test_a_missing_folder_is_an_error_before_the_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"cannot be written: the folder /.*/there does not exist; name another file"):
        command.run(["touch", "ran"], out=Path("there/record.json"))
    assert not list(tmp_path.iterdir())
    assert command.run(["touch", "ran"]) == 0


IGNORED = {
    "no .gitignore": ({".git/HEAD": ""}, ".gitignore", ".aotcuda-record.json\n"),
    "no last newline": ({".git/HEAD": "", ".gitignore": "dist"}, ".gitignore", "dist\n.aotcuda-record.json\n"),
    "of the repository": ({"../.git/HEAD": "", "../.gitignore": "x\n"}, "../.gitignore", "x\n.aotcuda-record.json\n"),
    "above the repository": ({".git/HEAD": "", "../.gitignore": "x\n"}, ".gitignore", ".aotcuda-record.json\n"),
    "no repository": ({"../.gitignore": "dist\n"}, ".gitignore", ".aotcuda-record.json\n"),
    "its name": ({".gitignore": "/.aotcuda-record.json\n"}, None, None),
    "a pattern": ({".gitignore": "dist\n.aotcuda-*\n"}, None, None),
    "another encoding": ({".gitignore": "\udcff\n"}, None, None),
}


@pytest.mark.parametrize("name", IGNORED)
def test_git_ignores_the_file_of_records(name: str, tmp_path: Path) -> None:
    files, changed, content = IGNORED[name]
    root = tmp_path / "project"
    root.mkdir()
    for path, text in files.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text, errors="surrogateescape")
    path = records.ignore(root)
    assert path == (None if changed is None else Path(os.path.normpath(root / changed)))
    assert path is None or path.read_text() == content
    assert records.ignore(root) is None
    assert all(
        (root / path).read_bytes() == text.encode(errors="surrogateescape")
        for path, text in files.items()
        if path != changed
    )
