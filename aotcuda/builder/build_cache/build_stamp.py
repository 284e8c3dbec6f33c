"""Unchanged projects: a whole build, found again with no compiler imported while its stamp holds.

There is one entry for each project folder and configuration: what the build made, with its stamp. It is taken while
everything in the stamp is as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aotcuda.builder.build_cache import hashing
from aotcuda.common.stamp import Stamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.builder.build_cache.settings import Settings
    from aotcuda.builder.build_cache.store import Store

_READS = list[tuple[str, str, str | None]]
_VARIABLES = dict[str, str | None]


class BuildStamp:
    """The build cache's entry of one build as a whole."""

    def __init__(self, store: Store, settings: Settings, root: str, known: Sequence[object]) -> None:
        """Name the entry.

        Args:
            store: The entries.
            settings: What all of them depend on.
            root: The project's folder.
            known: What decides what comes out and is known before the build.
        """
        self._store = store
        self._name = hashing.digest("build", settings.facts, root, known)

    def get(self, shape: Any = object) -> Any | None:
        """Return what the build made, of the type `shape`, if everything is as it was then; else None."""
        found = self._store.get({self._name: tuple[_READS, _VARIABLES, shape]}).get(self._name)
        if found is None:
            return None
        reads, variables, made = found
        stamp = Stamp({(question, path): answer for question, path, answer in reads}, variables)
        return made if stamp.changed() is None else None

    def keep(self, stamp: Stamp, made: object, about: str) -> None:
        """Keep what a build made, unless an input has changed since it was read; `about` is for lists of the cache."""
        if stamp.changed() is None:
            reads = [(question, path, answer) for (question, path), answer in sorted(stamp.reads.items())]
            self._store.put({self._name: (reads, stamp.variables, made)}, "build", {self._name: about})
