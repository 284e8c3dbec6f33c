"""The files of imported modules, by paths without links."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from aotcuda.builder.worker import imports

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "path",
    [
        "real/pkg/a.py",
        "link/pkg/a.py",
        "real/link/a.py",
        "link/link/a.py",
        "real/pkg/linked.py",
        "link/../real/pkg/a.py",
        "real/link/../pkg/./a.py",
        "real//pkg/a.py",
    ],
)
def test_files_of_modules_are_resolved_paths(tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere" / "pkg").mkdir(parents=True)
    (tmp_path / "real" / "pkg").mkdir(parents=True)
    for folder in ("elsewhere", "real"):
        (tmp_path / folder / "pkg" / "a.py").write_text("")
    (tmp_path / "link").symlink_to("elsewhere")
    (tmp_path / "real" / "link").symlink_to(tmp_path / "elsewhere" / "pkg")
    (tmp_path / "elsewhere" / "link").symlink_to("pkg")
    (tmp_path / "real" / "pkg" / "linked.py").symlink_to("a.py")
    expected = {str((tmp_path / path).resolve())}
    for number, file in enumerate((f"{tmp_path}/{path}", path)):
        module = ModuleType(f"m{number}")
        module.__file__ = file
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)
    assert imports.files_of(["m0"]) == imports.files_of(["m1"]) == imports.files_of(["m0", "m1"]) == expected


def test_modules_without_a_file_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("gone")
    module.__file__ = str(tmp_path / "gone.py")
    monkeypatch.setitem(sys.modules, "gone", module)
    assert imports.files_of(["gone", "sys", "not imported"]) == set()
    assert imports.files_of(["os"]) == {os.path.realpath(os.__file__)}
