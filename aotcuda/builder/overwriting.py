"""What `aotcuda build` does not write over: what it reads, what it writes elsewhere, and other people's files."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda import manifest
from aotcuda.builder import wheel_files
from aotcuda.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_BEGINNINGS = {"--sbom": re.compile(rb"\{"), "--stamp": re.compile(rb"\{"), "--depfile": re.compile(rb"[^\n]*: \\\n  ")}
"""How the files begin that a build with an option writes."""


def check_before(named: Mapping[str, Path | None], project_file: Path) -> None:
    """Refuse files that options name, before anything is built, where one is another's or is no such file.

    Args:
        named: The file of each option.
        project_file: The pyproject.toml.

    Raises:
        BuildError: It is so.
    """
    taken = {os.path.realpath(project_file): "the project's pyproject.toml"}
    for option, path in _given(named):
        _check_parents(path)
        real = os.path.realpath(path)
        if real in taken:
            message = f"{option} {path} would overwrite {taken[real]}; name another file"
            raise BuildError(message)
        taken[real] = f"the file of {option}"
        if option != "--depfile" and not _is_for(option, path, empty=True):
            message = f"{option} {path} would overwrite a file that no such build wrote; name another one, or remove it"
            raise BuildError(message)


def check(named: Mapping[str, Path | None], folder: Path, files: Iterable[str], read: Iterable[Path]) -> None:
    """Refuse what would replace something that a build has read, or writes elsewhere.

    Args:
        named: The file of each option.
        folder: Where the files of the build go.
        files: Their names there.
        read: What the build has read.

    Raises:
        BuildError: It is so; nothing has been written.
    """
    for name in files:
        path = folder / name
        _check_parents(path)
        is_file = os.path.isfile(path)  # noqa: PTH113 (pathlib raises where a name is too long)
        own = manifest.FOLDER_SUFFIX in {parent.suffix for parent in Path(name).parents}  # what it carries, too
        if path.suffix in (".py", ".pyi") and is_file and not own and not wheel_files.is_generated(path):
            message = f"{path} is there, and aotcuda did not write it; name another folder, or remove it"
            raise BuildError(message)
    sources = {os.path.realpath(path) for path in read}
    outputs = {os.path.realpath(folder / name) for name in files}
    # A data folder is replaced with all that lies in it.
    outputs |= {parent for parent in map(os.path.dirname, outputs) if parent.endswith(manifest.FOLDER_SUFFIX)}
    for option, path in _given(named):
        real = os.path.realpath(path)
        if outputs & {real, *map(str, Path(real).parents)}:
            message = f"{option} {path} lies among the files that are built; name another file"
            raise BuildError(message)
        if real in sources and not _is_for(option, path, empty=False):
            message = f"{option} {path} would overwrite a file that the build has read; name another file"
            raise BuildError(message)


def _check_parents(path: Path) -> None:
    """Refuse a path below a file."""
    there = next((parent for parent in path.parents if os.path.lexists(parent)), None)
    if there is not None and not os.path.isdir(there):  # noqa: PTH112 (pathlib raises where a name is too long)
        message = f"{path} cannot be written: {there} is no folder; name another place, or remove that file"
        raise BuildError(message)


def _given(named: Mapping[str, Path | None]) -> list[tuple[str, Path]]:
    return [(option, path) for option, path in named.items() if path is not None]


def _is_for(option: str, path: Path, *, empty: bool) -> bool:
    """Whether a file is none, or one that a build with this option may have written; an `empty` one is by `touch`."""
    with suppress(OSError):  # what cannot be read is told where it is written
        if os.path.isfile(path):  # noqa: PTH113 (pathlib raises where a name is too long)
            with path.open("rb") as file:
                text = file.read(1 << 16)
            return _BEGINNINGS[option].match(text) is not None or (empty and not text and path.suffix != ".py")
    return True
