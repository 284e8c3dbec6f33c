"""The project's headers that CUDA C++ sources include: builds depend on them, late builds need them.

Includes are found by their text, whatever the preprocessor would make of the lines around them: one header too many
does no harm. An include whose name is a macro is not found.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aotcuda.build.frontends import LinkInput

_INCLUDE = re.compile(rb"""^[ \t]*\#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)""", re.MULTILINE)


def project_files(items: Iterable[LinkInput], root: Path, include_dirs: Sequence[str]) -> tuple[Path, ...]:
    """The files below `root` that `items` are or include, in order of their paths, which are absolute.

    Args:
        items: What is linked; those that are CUDA C++ are searched for includes.
        root: The project's folder, resolved.
        include_dirs: The folders that headers are searched in, relative to `root` or absolute.
    """
    found: set[Path] = set()
    folders = [Path(root, path) for path in include_dirs]
    for item in items:
        if item.folder:
            _add(Path(item.folder, Path(item.name).name), root, found)
        if item.kind == "cu" and not item.internal:
            own = [Path(item.folder)] if item.folder else []
            _follow(item.data, [*own, *folders], root, found)
    return tuple(sorted(found))


def _follow(text: bytes, folders: list[Path], root: Path, found: set[Path]) -> None:
    for quoted, angled in _INCLUDE.findall(text):
        name = (quoted or angled).decode(errors="replace")
        path = next((path for folder in folders if (path := folder / name).is_file()), None)
        if path is not None and _add(path, root, found):
            # A header finds its neighbours by quotes; as in the compiler, its own folder is searched first.
            _follow(path.read_bytes(), list(dict.fromkeys([path.parent, *folders])), root, found)


def _add(path: Path, root: Path, found: set[Path]) -> bool:
    """Add a file that lies below `root` and was not met before."""
    path = path.resolve()
    if path in found or not path.is_relative_to(root) or not path.is_file():
        return False
    found.add(path)
    return True
