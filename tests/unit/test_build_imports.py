"""Import the project's own modules in builds, even if other packages have finders before Python's."""

from __future__ import annotations

import importlib
import importlib.util
import os
import py_compile
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda.builder.compile import imports, observer
from aotcuda.common.stamp import Stamp

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HERE, THERE = "here", "there"
FILES = ("ownpkg/__init__.py", "ownpkg/a.py", "ownspace/part/__init__.py", "ownspace/part/b.py", "ownplain.py")
ELSEWHERE = ("ownpkg/gone.py", "ownspace/other.py", "othpkg.py")


class Editable:
    """Find modules in one folder, like the finders of editable installs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: list[str] = []

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> Any:
        del path, target
        self.names.append(fullname)
        base = self.folder / fullname.replace(".", "/")
        file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
        return importlib.util.spec_from_file_location(fullname, file) if file.is_file() else None


@pytest.fixture
def editable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Editable]:
    for folder, names in ((HERE, FILES), (THERE, (*FILES, *ELSEWHERE))):
        for name in names:
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"WHERE = {folder!r}\n")
    finder = Editable(tmp_path / THERE)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    monkeypatch.setattr(
        importlib.machinery.SourceFileLoader, "path_stats", importlib.machinery.SourceFileLoader.path_stats
    )
    yield finder
    for name in [name for name in sys.modules if name.startswith(("own", "othpkg"))]:
        del sys.modules[name]


def test_own_modules_are_imported_from_the_project(editable: Editable, tmp_path: Path) -> None:
    imports.prepare_imports([str(tmp_path / HERE)], {"ownpkg.kernels": ["k"], "ownspace.part.kernels": ["k"]})
    for name in ("ownpkg", "ownpkg.a", "ownspace.part.b", "ownplain"):
        assert importlib.import_module(name).WHERE == HERE
    with pytest.raises(ModuleNotFoundError, match=r"ownpkg\.gone"):
        importlib.import_module("ownpkg.gone")
    assert repr(importlib.import_module("ownpkg.kernels").k) == "<ownpkg.kernels.k, being built>"
    assert not [name for name in editable.names if name.startswith(("ownpkg", "ownplain", "ownspace.part"))]


def test_modules_of_other_projects_are_imported_by_their_finder(editable: Editable, tmp_path: Path) -> None:
    """One is another editable install, and one shares a namespace with the project."""
    imports.prepare_imports([str(tmp_path / HERE)], {"ownspace.part.kernels": ["k"]})
    for name in ("othpkg", "ownspace.other"):
        assert importlib.import_module(name).WHERE == THERE
    assert importlib.import_module("ownspace.part").WHERE == HERE
    assert editable.names
    assert [finder.folder for finder in sys.meta_path if hasattr(finder, "folder")] == [editable.folder]


@pytest.mark.usefixtures("editable")
@pytest.mark.parametrize(
    ("folder", "is_read"),
    [("here", True), ("here/site-packages", False), ("here/lib/site-packages/ownpkg", False), ("there", False)],
)
def test_bytecode_of_own_modules_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, is_read: bool
) -> None:
    """Python would use the bytecode, because its source had the same length and time."""
    path = tmp_path / folder / "ownlate.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("WHERE = 1\n")
    os.utime(path, (10**9, 10**9))
    py_compile.compile(str(path), doraise=True)
    path.write_text("WHERE = 2\n")
    os.utime(path, (10**9, 10**9))
    imports.prepare_imports([str(tmp_path / HERE)], {"ownpkg.kernels": ["k"]})
    monkeypatch.syspath_prepend(str(path.parent))
    value = importlib.import_module("ownlate").WHERE
    assert value == (2 if is_read else 1)


def test_files_of_modules_are_resolved_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.py").write_text("")
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    for number, file in enumerate((f"{tmp_path}/link/a.py", "link/../real/a.py")):
        module = ModuleType(f"m{number}")
        module.__file__ = file
        monkeypatch.setitem(sys.modules, module.__name__, module)
    assert imports.files_of(["m0"], ()) == imports.files_of(["m1"], ()) == {str((tmp_path / "real/a.py").resolve())}
    assert imports.files_of(["m0"], [str(tmp_path)]) == {f"{tmp_path}/link/a.py"}


def test_modules_without_a_file_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("gone")
    module.__file__ = str(tmp_path / "gone.py")
    monkeypatch.setitem(sys.modules, "gone", module)
    assert imports.files_of(["gone", "sys", "not imported"], ()) == set()
    assert imports.files_of(["os"], ()) == {os.path.realpath(os.__file__)}


@pytest.mark.parametrize(
    ("pattern", "file"),
    [
        ("missing.txt", "missing.txt"),
        ("missing", "missing/a.txt"),
        ("missing/**/*.txt", "missing/a/b.txt"),
        ("folder/*.txt", "folder/b.txt"),
        ("folder/*/b.txt", "folder/a/b.txt"),
        ("folder/**/*.txt", "folder/a/c/b.txt"),
    ],
)
def test_new_file_that_matches_a_glob_changes_the_stamp(pattern: str, file: str, tmp_path: Path) -> None:
    (tmp_path / "folder/a/c").mkdir(parents=True)
    stamp = Stamp()
    observer.add_matches(stamp, [str(tmp_path / pattern)])
    assert stamp.changed() is None
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("")
    assert stamp.changed() is not None
