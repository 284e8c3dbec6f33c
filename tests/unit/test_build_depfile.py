"""Check that make and ninja read dependency files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aotcuda.builder.write import depfile
from aotcuda.errors import BuildError

NAMES = ["plain.py", "with blank.h", "a $sign #1.cu", "ünïcode.h", "a:b", r"a\b", r"a\ b"]
FOR_MAKE = [r"a\#b", "a*b"]  # ninja cannot read these names and builds each time
STOPPED = ["a=b", "a:=b c", "a%b"]  # make stops if a file with one of these names is missing


def prepare(folder: Path, name: str) -> Path:
    """Write rules for make and ninja, with a dependency file that names a file in the folder `name`."""
    file = folder / name / "x.py"
    file.parent.mkdir()
    file.touch()
    (folder / "stamp").touch()
    (folder / "rules.d").write_bytes(depfile.render([Path("stamp")], [file]))
    (folder / "Makefile").write_text("stamp:\n\ttrue\n-include rules.d\n")
    (folder / "build.ninja").write_text(
        "rule r\n  command = cp rules.d made.d && touch stamp\n  depfile = made.d\n  deps = gcc\nbuild stamp: r\n"
    )
    return file


def make(folder: Path) -> int:
    """Return the status of make: 0 if all files are up to date, 1 if make would build, 2 if make stops."""
    return subprocess.run(["make", "-q", "stamp"], cwd=folder, check=False, capture_output=True).returncode


def ninja_builds(folder: Path) -> bool:
    command = [str(Path(sys.executable).with_name("ninja"))]
    process = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return "no work to do" not in process.stdout


def touch_later(file: Path) -> None:
    time = (file.parents[1] / "stamp").stat().st_mtime_ns + 10**9
    os.utime(file, ns=(time, time))


@pytest.mark.parametrize("name", [*NAMES, *FOR_MAKE, *STOPPED])
def test_make_builds_again_for_newer_or_missing_files(tmp_path: Path, name: str) -> None:
    file = prepare(tmp_path, name)
    assert make(tmp_path) == 0
    touch_later(file)
    assert make(tmp_path) == 1
    file.unlink()
    assert make(tmp_path) == (2 if name in STOPPED else 1)
    assert depfile.warnings([Path("stamp")], [file]) == []


@pytest.mark.needs("ninja")
@pytest.mark.parametrize("name", [*NAMES, "a=b", "a:=b c", "a%b"])
def test_ninja_builds_again_for_newer_or_missing_files(tmp_path: Path, name: str) -> None:
    file = prepare(tmp_path, name)
    assert ninja_builds(tmp_path)
    assert not ninja_builds(tmp_path)
    touch_later(file)
    assert ninja_builds(tmp_path)
    os.utime(file, ns=(0, 0))
    ninja_builds(tmp_path)
    assert not ninja_builds(tmp_path)
    file.unlink()
    assert ninja_builds(tmp_path)


@pytest.mark.needs("ninja")
@pytest.mark.parametrize("name", ["a;b", "a\nb", "a\rb"])
def test_name_without_a_rule_builds_each_time(tmp_path: Path, name: str) -> None:
    file = prepare(tmp_path, name)
    assert make(tmp_path) == 1
    assert ninja_builds(tmp_path)
    assert ninja_builds(tmp_path)
    (warning,) = depfile.warnings([Path("stamp")], [file, file])
    name_in_text = str(file) if name == "a;b" else ascii(str(file))
    assert warning == (
        f"no dependency file can have the name {name_in_text} and 1 more, so make and ninja build each time; rename it"
    )
    with pytest.raises(BuildError, match="has a name for which no dependency file can have a rule; write to another"):
        depfile.warnings([file], [])


def test_target_that_make_reads_as_a_variable_is_reported() -> None:
    (warning,) = depfile.warnings([Path("out"), Path("/a=b/stamp")], [Path("/a=b/x.py")])
    assert warning.startswith("make reads the rule for /a=b/stamp for a variable, because of the =, ")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a b", "a\\ b"),
        ("a#b", "a\\#b"),
        ("a$b", "a$$b"),
        (r"a\b", r"a\b"),
        (r"a\ b", r"a\\\ b"),
        (r"a\\:b", r"a\\\\\:b"),
    ],
)
def test_names_are_quoted_for_make(name: str, text: str) -> None:
    assert depfile.render([Path("out")], [Path(name)]).decode() == f"out: \\\n  {text}\n{text}:\n"


@pytest.mark.parametrize("name", ["a=b", "a%b"])
def test_name_that_make_reads_otherwise_has_no_rule_of_its_own(name: str) -> None:
    assert depfile.render([Path("out")], [Path("x"), Path(name)]).decode() == f"out: \\\n  x \\\n  {name}\nx:\n"


@pytest.mark.parametrize("name", ["a;b", "a\nb", "a\rb", "a\\"])
def test_name_that_cannot_be_written_is_replaced_and_reported(name: str) -> None:
    rendered = depfile.render([Path("out")], [Path("x"), Path(name)]).decode()
    assert rendered == f"out: \\\n  x \\\n  {depfile._MISSING_FILE}\nx:\n{depfile._MISSING_FILE}:\n"
    for files, more in (([Path(name)], ""), ([Path(name), Path("x"), Path(name)], " and 1 more")):
        (warning,) = depfile.warnings([Path("out")], files)
        assert f"{more}, so make and ninja build each time" in warning
    with pytest.raises(BuildError, match="no dependency file can have a rule"):
        depfile.warnings([Path(name)], [])


def test_first_name_of_a_rule_has_no_equals_sign() -> None:
    rule = depfile.render([Path("out")], [Path("a=b"), Path("c")]).decode().partition(":")[2].split()
    assert rule[1] == "c"
    assert "a=b" in rule


def test_files_of_an_earlier_build_are_removed_unless_they_changed(tmp_path: Path) -> None:
    files = {"a/b/old.py": b"1", "a/edited.py": b"2", "a/again.py": b"3", "gone.py": b"4", "c/d/deep.py": b"5"}
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    stamp = tmp_path / "stamp"
    stamp.write_bytes(depfile.stamp(files, tmp_path))
    (tmp_path / "a/edited.py").write_bytes(b"edited")
    (tmp_path / "gone.py").unlink()
    depfile.remove_stale(stamp, ["a/again.py"], tmp_path)
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert left == ["a", "a/again.py", "a/edited.py", "stamp"]


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"folder": "/elsewhere", "files": {"a.py": "DIGEST"}}'])
def test_file_that_is_no_stamp_of_the_folder_removes_nothing(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"1")
    digest = json.loads(depfile.stamp({"a.py": b"1"}, tmp_path))["files"]["a.py"]
    (tmp_path / "stamp").write_bytes(content.replace(b"DIGEST", digest.encode()))
    depfile.remove_stale(tmp_path / "stamp", [], tmp_path)
    assert (tmp_path / "a.py").exists()
