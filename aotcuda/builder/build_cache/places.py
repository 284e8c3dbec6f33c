"""Questions to the machine (`aotcuda.common.dependencies`), by paths that mean the same in another folder or machine.

A path in the project is named from its folder, and one among installed packages by what it is called there, wherever
the environment is, as is their folder by its number: package installers build in environments that are gone afterwards.
Contents are named by digests, since times differ from checkout to checkout. All other paths are named as they are.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from aotcuda.builder.worker import dependency_trace
from aotcuda.cache import compilers
from aotcuda.common import dependencies

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aotcuda.common.dependencies import Answer

_LARGE = 1 << 26
"""From how many bytes on a file is known by size and time alone."""

TELLING = frozenset(
    [
        *("__file__", "__path__", "__spec__", "__cached__", "__loader__", "cwd", "getcwd", "getcwdb", "abspath"),
        *("realpath", "absolute", "resolve", "co_filename", "getfile", "getsourcefile", "currentframe", "_getframe"),
        *("extract_stack", "inspect", "resources", "orig_argv", "sys.path", "find_spec", "PathFinder", "relpath"),
        *("submodule_search_locations", "getabsfile", "__main__"),
    ]
)
"""Words by which a source may learn where it lies, or where a build runs."""

_PROJECT, _INSTALLED, _NUMBER = "project:", "installed:", "#"

SEARCHED = "searched"
"""A question beside those of `aotcuda.common.dependencies`: whether modules are looked for in a folder."""


def is_as_it_is(name: str) -> bool:
    """Whether a name is a path that is neither in the project nor installed."""
    return not name.startswith((_PROJECT, _INSTALLED))


class Places:
    """Where the project and installed packages lie."""

    def __init__(self, root: str, entries: Iterable[str] | None = None) -> None:
        """`root` is the project's folder; `entries` where modules are looked for, `sys.path` by default."""
        self._root = root
        given = [os.path.abspath(entry) for entry in (sys.path if entries is None else entries) if entry]
        self._searched = frozenset(given)
        self._installed = [entry for entry in given if dependency_trace.INSTALLED & {*entry.split("/")}]

    def name(self, path: str) -> str:
        """A path's name."""
        if path in self._installed:
            return f"{_INSTALLED}{_NUMBER}{self._installed.index(path)}"
        for entry in sorted(self._installed, key=len, reverse=True):
            if path.startswith(f"{entry}/"):
                return _INSTALLED + path[len(entry) + 1 :]
        if path == self._root or path.startswith(f"{self._root}/"):
            return _PROJECT + path[len(self._root) + 1 :]
        return path

    def path(self, name: str) -> str:
        """The path that a name stands for; of what is installed, the one that is found first."""
        if name.startswith(_PROJECT):
            return os.path.normpath(os.path.join(self._root, name.removeprefix(_PROJECT)))
        if name.startswith(f"{_INSTALLED}{_NUMBER}"):
            number = int(name.removeprefix(f"{_INSTALLED}{_NUMBER}"))
            return self._installed[number] if number < len(self._installed) else name
        if name.startswith(_INSTALLED):
            places = [os.path.join(entry, name.removeprefix(_INSTALLED)) for entry in self._installed]
            return next((place for place in places if os.path.lexists(place)), places[0] if places else name)
        return name

    def entry(self, path: str) -> str | None:
        """The folder in which a module is found that is another project's, as an editable install of that one names it.

        None where it is found otherwise; a folder above the project's is searched by chance.
        """
        above = [entry for entry in self._searched if path.startswith(f"{entry}/")]
        return max((entry for entry in above if not self._root.startswith(f"{entry}/")), key=len, default=None)

    def answer(self, ask: str, name: str, *, exact: bool = False) -> Answer | bool:
        """The answer to a question now; a file's content by its digest, unless it is large.

        With `exact`, times count of files that are not the project's, as they do where launches compare them.
        """
        path = self.path(name)
        if ask == SEARCHED:
            return path in self._searched
        found = dependencies.answer(ask, path)
        if ask != "content" or not isinstance(found, list) or found[0] >= _LARGE:
            return found
        digest = digest_of(path)
        return digest if not exact or name.startswith(_PROJECT) else f"{digest} {found[0]} {found[1]}"


digest_of = compilers.digest
