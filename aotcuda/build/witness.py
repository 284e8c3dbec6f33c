"""What importing the user's modules depends on beyond the project's own Python files.

A kernel is compiled with the values that its globals have after the import, and those may come from anywhere: another
package, a data file, the environment. A late build notes what the import read, and an entry of the cache is taken only
while all of that is unchanged. What leaves no such trace (the time, the host's name, an `os.environ` that is listed as
a whole) is not seen.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda import manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

_SYSTEM = ("/proc/", "/sys/", "/dev/")


@dataclass(slots=True)
class Witness:
    """What was read.

    Attributes:
        modules: Files of the Python modules that were imported.
        files: Other files that were opened for reading.
        variables: SHA-256 of each environment variable that was asked for, None for one that was not set.
    """

    modules: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    variables: dict[str, str | None] = field(default_factory=dict)


@contextmanager
def watch() -> Iterator[Witness]:
    """Note what is imported and read inside the block."""
    seen = Witness()
    before = set(sys.modules)
    opened: set[str] = set()
    active = [True]

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if active and event == "open" and isinstance(arguments[0], str) and not _writes(arguments[1], arguments[2]):
            opened.add(arguments[0])

    sys.addaudithook(audit)  # it cannot be taken away again
    environ = os.environ
    kind = type(environ)
    environ.__class__ = _watched(kind, seen)
    try:
        yield seen
    finally:
        environ.__class__ = kind
        active.clear()
        for name in set(sys.modules) - before:
            path = getattr(sys.modules.get(name), "__file__", None)
            if isinstance(path, str) and not _is_ours(path):
                seen.modules.add(str(Path(path).resolve()))
        found = {str(Path(path).resolve()) for path in opened if not path.endswith((".py", ".pyc"))}
        seen.files |= {path for path in found if Path(path).is_file() and not _is_ours(path)}


def _watched(kind: Any, seen: Witness) -> Any:
    """A class for `os.environ` that notes which variables are asked for; `get`, `in` and `getenv` all end here."""

    class Watched(kind):  # type: ignore[misc]
        def __getitem__(self, name: str) -> str:
            try:
                value: str = kind.__getitem__(self, name)
            except KeyError:
                seen.variables[name] = None
                raise
            seen.variables[name] = manifest.digest(value.encode(errors="surrogateescape"))
            return value

    return Watched


def _writes(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and flags & os.O_ACCMODE != os.O_RDONLY


def _is_ours(path: str) -> bool:
    """Whether a file is Python's, aotcuda's, or none at all; versions stand for those."""
    if path.startswith((*_SYSTEM, _AOTCUDA)):
        return True
    # Installed packages lie below the standard library's folder.
    return path.startswith(_STANDARD) and not {"site-packages", "dist-packages"} & set(Path(path).parts)


_AOTCUDA = f"{Path(manifest.__file__).resolve().parent}/"
_STANDARD = tuple(f"{Path(sysconfig.get_path(name)).resolve()}/" for name in ("stdlib", "platstdlib"))
