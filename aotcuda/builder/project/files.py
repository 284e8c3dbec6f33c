"""Walk over the files of a project, without environments, hidden folders and results of builds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda.common import project_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INSTALLED = frozenset(["site-packages", "dist-packages"])
"""Names of the folders that hold installed packages."""

_TOOLS = INSTALLED | {"__pycache__", "node_modules"}
_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta", "CACHEDIR.TAG")
"""Files that a virtual environment, a Conda environment and a cache have at their top."""

_RESULTS = frozenset(["build", "dist"])
"""Folders beside a pyproject.toml into which build back ends write."""


def walk(root: str, enters: Callable[[str], bool] = lambda _: True) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each folder with the names of its folders and files, as `os.walk` does.

    Symbolic links to folders are followed, since a package may be one; each folder is visited once.

    Args:
        root: The first folder.
        enters: A function that returns True for the name of a folder that is visited.
    """
    visited: set[str] = set()
    for name, folders, files in os.walk(root, followlinks=True):
        real = os.path.realpath(name)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        folders[:] = sorted(item for item in folders if enters(item) and is_of_project(Path(name, item)))
        yield name, folders, sorted(files)


def is_of_project(folder: Path) -> bool:
    """Return True for a folder that is not hidden, and neither an environment nor a tool's."""
    name = folder.name
    if name.startswith(".") or name in _TOOLS:
        return False
    return not any((folder / mark).exists() for mark in _ENVIRONMENTS)


def is_result(folder: Path) -> bool:
    """Return True for a folder into which a build back end writes."""
    name = folder.name
    is_beside_table = name in _RESULTS and any(
        (folder.parent / file).is_file() for file in (project_file.FILE_NAME, "setup.py")
    )
    return is_beside_table or name.endswith((".egg-info", ".dist-info"))


def is_nested(path: Path, root: Path) -> bool:
    """Return True for a path in a project inside the project at `root`, as in a workspace."""
    return any(
        (folder / project_file.FILE_NAME).is_file()
        for folder in path.parents
        if folder != root and folder.is_relative_to(root)
    )
