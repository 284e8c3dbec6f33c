"""Whose modules a build imports: the project's own, whatever finders other packages have put before Python's."""

from __future__ import annotations

import importlib
import importlib.util
import os
import py_compile
import sys
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda.builder.worker import imports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HERE, THERE = "here", "there"
FILES = ("ownpkg/__init__.py", "ownpkg/a.py", "ownspace/part/__init__.py", "ownspace/part/b.py", "ownplain.py")
ELSEWHERE = ("ownpkg/gone.py", "ownspace/other.py", "othpkg.py")


class Editable:
    """Finds modules by their names in a folder of its own, as those of editable installs do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> Any:
        del path, target
        self.asked.append(fullname)
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


@pytest.mark.parametrize("last", [False, True], ids=["before Python's", "after them"])
def test_the_projects_own_are_not_looked_for_elsewhere(
    editable: Editable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    if last:
        monkeypatch.setattr(sys, "meta_path", [*sys.meta_path[1:], editable])
    imports.prepare_imports([str(tmp_path / HERE)], {"ownpkg.kernels": ["k"], "ownspace.part.kernels": ["k"]})
    for name in ("ownpkg", "ownpkg.a", "ownspace.part.b", "ownplain"):
        assert importlib.import_module(name).WHERE == HERE
    with pytest.raises(ModuleNotFoundError, match=r"ownpkg\.gone"):
        importlib.import_module("ownpkg.gone")
    assert repr(importlib.import_module("ownpkg.kernels").k) == "<ownpkg.kernels.k, being built>"
    assert not [name for name in editable.asked if name.startswith(("ownpkg", "ownplain", "ownspace.part"))]


def test_other_projects_are_found_by_their_finder(editable: Editable, tmp_path: Path) -> None:
    """A neighbour that is installed in the same way, and one that shares a namespace with the project."""
    imports.prepare_imports([str(tmp_path / HERE)], {"ownspace.part.kernels": ["k"]})
    for name in ("othpkg", "ownspace.other"):
        assert importlib.import_module(name).WHERE == THERE
    assert importlib.import_module("ownspace.part").WHERE == HERE
    assert editable.asked
    assert [finder.folder for finder in sys.meta_path if hasattr(finder, "folder")] == [editable.folder]


@pytest.mark.usefixtures("editable")
@pytest.mark.parametrize(
    ("folder", "is_read"),
    [("here", True), ("here/site-packages", False), ("here/lib/site-packages/ownpkg", False), ("there", False)],
)
def test_bytecode_is_not_trusted_of_the_projects_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, is_read: bool
) -> None:
    """Beside a source is the bytecode of one that was as long and as old, which Python takes for its own."""
    path = tmp_path / folder / "ownlate.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("WHERE = 1\n")
    os.utime(path, (10**9, 10**9))
    py_compile.compile(str(path), doraise=True)
    path.write_text("WHERE = 2\n")
    os.utime(path, (10**9, 10**9))
    imports.prepare_imports([str(tmp_path / HERE)], {"ownpkg.kernels": ["k"]})
    monkeypatch.syspath_prepend(str(path.parent))
    found = importlib.import_module("ownlate").WHERE
    assert found == (2 if is_read else 1)


def test_bytecode_of_an_installed_package_is_not_trusted(
    editable: Editable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JIT fallback compiles the sources of an installed package."""
    root = tmp_path / "lib" / "site-packages"
    path = root / "ownpkg" / "__init__.py"
    path.parent.mkdir(parents=True)
    for number in (1, 2):
        path.write_text(f"WHERE = {number}\n")
        os.utime(path, (10**9, 10**9))
        if number == 1:
            py_compile.compile(str(path), doraise=True)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path[1:], editable])
    imports.prepare_imports([str(root)], {"ownpkg.kernels": ["k"]})
    assert importlib.import_module("ownpkg").WHERE == 2
