"""Names that a generated module cannot have, since something of the project would hide it, or be hidden by it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda.builder import wheel_files
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

_EXTENSION = re.compile(r"(\.(abi3t?|(cpython|cp|pypy|graalpy)-?\d[^.]*))?\.(so|pyd)")
"""What Pythons of any system have after an extension module's name: .abi3.so, .cp313-win_amd64.pyd."""


def check(module: str, key: str, roots: Sequence[Path], root: Path, extensions: Collection[str] = frozenset()) -> None:
    """Refuse the name of a module that the project at `root` has already, or Python.

    Args:
        module: The name.
        key: The module's key.
        roots: The folders that the project's packages are imported from.
        root: The project's folder.
        extensions: The extension modules that are compiled along with it.

    Raises:
        ConfigError: It has.
    """
    if module in sys.stdlib_module_names:
        message = f"{key}: import {module} finds Python's own module; choose another name, or put it into a package"
        raise ConfigError(message)
    path = next((path for folder in roots for path in _there(folder.joinpath(*module.split(".")))), None)
    if path is None and module not in extensions:
        return
    what = os.path.relpath(path, root) if path is not None else f"an extension module {module}"
    message = f"{key}: the project already has {what}, where the generated module would go; choose another module name"
    raise ConfigError(message)


def _there(base: Path) -> Iterator[Path]:
    """What a person has at a module's path without its suffix."""
    names = sorted(path.name for path in base.parent.iterdir()) if base.parent.is_dir() else []
    modules = [f"{base.name}.py", f"{base.name}.pyi"]
    modules += [name for name in names if name.startswith(base.name) and _is_extension(name.removeprefix(base.name))]
    yield from _written(base.parent / name for name in modules)
    yield from _written([base / "__init__.py"])
    # A folder without one hides nothing, but nothing can be imported from it beside a module of its name.
    for folder, folders, files in os.walk(base):
        folders[:] = sorted(name for name in folders if name.isidentifier())
        yield from _written(Path(folder, name) for name in sorted(files) if _is_module(name))


def _is_extension(suffix: str) -> bool:
    return _EXTENSION.fullmatch(suffix) is not None


def _is_module(name: str) -> bool:
    stem, dot, rest = name.partition(".")
    return stem.isidentifier() and (rest == "py" or _is_extension(dot + rest))


def _written(paths: Iterable[Path]) -> Iterator[Path]:
    return (path for path in paths if path.is_file() and not wheel_files.is_generated(path))
