"""Sweep temporary files of dead processes, and no other files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

from aotcuda.builder.write import temporary

if TYPE_CHECKING:
    from pathlib import Path

DAY = 24 * 3600


@pytest.fixture(scope="module")
def dead() -> str:
    """Return the temporary name of a process that has ended."""
    code = "from aotcuda.builder.write import temporary; print(temporary.make_name(''))"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def change(name: str, **parts: str) -> str:
    """Return the name with another `place`, `pid` or `start`."""
    prefix, place, pid, start, token = name.rsplit("-", 4)
    values = {"place": place, "pid": pid, "start": start} | parts
    return "-".join([prefix, values["place"], values["pid"], values["start"], token])


def is_swept(folder: Path, name: str, *, age: float = 0) -> bool:
    (folder / name).mkdir()
    (folder / name / "file").touch()
    os.utime(folder / name, (folder.stat().st_mtime - age,) * 2)
    temporary.sweep(folder)
    return not (folder / name).exists()


def test_files_of_a_dead_process_are_removed(tmp_path: Path, dead: str) -> None:
    assert is_swept(tmp_path, f".kernels.aotcuda.{dead}")
    (tmp_path / f".kernels.py.{dead}").touch()
    (tmp_path / "mine").mkdir()
    (tmp_path / dead).symlink_to(tmp_path / "mine")
    temporary.sweep(tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"], "the target of a link stays"


def test_files_of_a_living_process_stay(tmp_path: Path) -> None:
    assert not is_swept(tmp_path, temporary.make_name(""), age=30 * DAY)
    start = temporary.make_name("").rsplit("-", 2)[1]
    reused = change(temporary.make_name(""), start=str(int(start) - 1))
    assert is_swept(tmp_path, reused), "an earlier process had this number"


def test_files_of_another_machine_stay_until_they_are_old(tmp_path: Path, dead: str) -> None:
    elsewhere = change(dead, place="0" * 12)
    assert not is_swept(tmp_path, elsewhere, age=6 * DAY)
    os.utime(tmp_path / elsewhere, (0, 0))
    temporary.sweep(tmp_path)
    assert not (tmp_path / elsewhere).exists()


def test_files_of_another_user_stay(tmp_path: Path, dead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert not is_swept(tmp_path, dead)


@pytest.mark.parametrize(
    "name",
    [
        "aotcuda-abcdefgh",
        "my-aotcuda-tmp-0123456789ab-x-1-aa",
        "kernels.aotcuda",
    ],
)
def test_other_names_stay(tmp_path: Path, name: str) -> None:
    assert not is_swept(tmp_path, name, age=30 * DAY)


def test_new_folder_is_private_and_replaces_dead_ones(
    tmp_path: Path, dead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / dead).mkdir()
    folder = temporary.make_folder()
    assert list(tmp_path.iterdir()) == [folder]
    assert folder.stat().st_mode & 0o777 == 0o700
