"""Refuse outputs that would hide, replace or be hidden by files that the build did not write."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda import manifest
from aotcuda.builder.emit import wheel_files
from aotcuda.errors import BuildError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

_EXTENSION = re.compile(r"(\.(abi3t?|(cpython|cp|pypy|graalpy)-?\d[^.]*))?\.(so|pyd)")
"""Suffixes of extension modules for Pythons of any system: .abi3.so, .cp313-win_amd64.pyd."""

_BEGINNINGS = {
    "--sbom": re.compile(rb"\{"),
    "--stamp": re.compile(rb"\{"),
    "--depfile": re.compile(rb"[^\n]*: \\\n  "),
    "--report": re.compile(rb'\{\s*"version"'),
}
"""The first bytes of the file that a build writes for an option."""


def check_module(
    module: str, key: str, roots: Sequence[Path], root: Path, extensions: Collection[str] = frozenset()
) -> None:
    """Refuse a generated module whose name the project or the standard library already has."""
    if module in sys.stdlib_module_names:
        message = f"{key}: import {module} finds Python's own module; choose another name, or put it into a package"
        raise ConfigError(message)
    path = next((path for folder in roots for path in _modules_at(folder.joinpath(*module.split(".")))), None)
    if path is None and module not in extensions:
        return
    description = os.path.relpath(path, root) if path is not None else f"an extension module {module}"
    message = (
        f"{key}: the project already has {description}, where the generated module would go; choose another module name"
    )
    raise ConfigError(message)


def _modules_at(base: Path) -> Iterator[Path]:
    """Yield the modules at a path without suffix that no build generated, also those of another case."""
    names = sorted(path.name for path in base.parent.iterdir()) if base.parent.is_dir() else []
    length = len(base.name)
    alike = [name for name in names if name[:length].casefold() == base.name.casefold()]
    alike.sort(key=lambda name: not name.startswith(base.name))
    modules = [name for name in alike if name[length:] in (".py", ".pyi") or _is_extension(name[length:])]
    yield from _not_generated(base.parent / name for name in modules)
    yield from _not_generated([base / "__init__.py"])
    # A folder without __init__.py hides nothing, but a module of its name makes the modules in it unimportable.
    for folder, folders, files in os.walk(base):
        folders[:] = sorted(name for name in folders if name.isidentifier())
        yield from _not_generated(Path(folder, name) for name in sorted(files) if _is_module(name))


def _is_extension(suffix: str) -> bool:
    return _EXTENSION.fullmatch(suffix) is not None


def _is_module(name: str) -> bool:
    stem, dot, rest = name.partition(".")
    return stem.isidentifier() and (rest == "py" or _is_extension(dot + rest))


def _not_generated(paths: Iterable[Path]) -> Iterator[Path]:
    return (path for path in paths if path.is_file() and not wheel_files.is_generated(path))


def check_options(option_files: Mapping[str, Path | None], project_file: Path) -> None:
    """Refuse files of `--sbom`, `--depfile` and `--stamp` before the build, if they replace other files.

    Raises:
        BuildError: A file is in use, or was not written by a build with that option.
    """
    used = {os.path.realpath(project_file): "the project's pyproject.toml"}
    for option, path in _named_paths(option_files):
        _check_parents(path)
        real = os.path.realpath(path)
        if real in used:
            message = f"{option} {path} would overwrite {used[real]}; name another file"
            raise BuildError(message)
        used[real] = f"the file of {option}"
        if option != "--depfile" and not _may_replace(option, path, empty=True):
            message = f"{option} {path} would overwrite a file that no such build wrote; name another one, or remove it"
            raise BuildError(message)


def check_files(
    option_files: Mapping[str, Path | None], folder: Path, files: Iterable[str], read: Iterable[Path]
) -> None:
    """Refuse outputs that would replace other people's files, or files that the build has read."""
    for name in files:
        path = folder / name
        _check_parents(path)
        is_file = os.path.isfile(path)  # noqa: PTH113 (pathlib raises where a name is too long)
        in_data_folder = manifest.FOLDER_SUFFIX in {parent.suffix for parent in Path(name).parents}
        if path.suffix in (".py", ".pyi") and is_file and not in_data_folder and not wheel_files.is_generated(path):
            message = f"{path} is there, and aotcuda did not write it; name another folder, or remove it"
            raise BuildError(message)
    sources = {os.path.realpath(path) for path in read}
    outputs = {os.path.realpath(folder / name) for name in files}
    # A data folder is replaced with its whole content.
    outputs |= {parent for parent in map(os.path.dirname, outputs) if parent.endswith(manifest.FOLDER_SUFFIX)}
    for option, path in _named_paths(option_files):
        real = os.path.realpath(path)
        if outputs & {real, *map(str, Path(real).parents)}:
            message = f"{option} {path} is among the built files; name another file"
            raise BuildError(message)
        if real in sources and not _may_replace(option, path, empty=False):
            message = f"{option} {path} would overwrite a file that the build has read; name another file"
            raise BuildError(message)


def _check_parents(path: Path) -> None:
    existing = next((parent for parent in path.parents if os.path.lexists(parent)), None)
    if existing is not None and not os.path.isdir(existing):  # noqa: PTH112 (pathlib raises where a name is too long)
        message = f"{path} cannot be written: {existing} is no folder; name another place, or remove that file"
        raise BuildError(message)


def _named_paths(option_files: Mapping[str, Path | None]) -> list[tuple[str, Path]]:
    return [(option, path) for option, path in option_files.items() if path is not None]


def _may_replace(option: str, path: Path, *, empty: bool) -> bool:
    """Return True if `path` is no file, was written for this option, or (with `empty`) was made by `touch`."""
    with suppress(OSError):  # writing reports a file that cannot be read
        if os.path.isfile(path):  # noqa: PTH113 (pathlib raises where a name is too long)
            with path.open("rb") as file:
                text = file.read(1 << 16)
            return _BEGINNINGS[option].match(text) is not None or (empty and not text and path.suffix != ".py")
    return True
