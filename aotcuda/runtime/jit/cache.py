"""The cache of what the JIT fallback compiled: on disk, and in memory where the disk cannot be used.

`aotcuda.cache` has the format, `cache_files` what an entry holds. It is read back with every byte checked, and counts
as missing if one is wrong. A folder that belongs to somebody else, or that others can write, is not used.
"""

from __future__ import annotations

import os

from aotcuda.cache import entries, folder
from aotcuda.cache.entries import ENTRY, VERSION, Files
from aotcuda.errors import ManifestError
from aotcuda.runtime.jit import cache_files, cache_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from aotcuda.runtime.jit.cache_files import Artifact
    from aotcuda.runtime.jit.cache_lock import Lock

PATIENCE = 300.0
"""How many seconds one process waits for another's compilation before it compiles for itself."""


class Cache(Files):
    """A cache.

    Attributes:
        root: Its folder; None if there is none, and all is kept in memory.
    """

    def __init__(self, root: str | None, warn: Callable[[str], None]) -> None:
        super().__init__(root, cache_files.NAMES)
        self._warn = warn
        self._warned = False
        self._memory: dict[str, Artifact] = {}
        if root is None:
            self._give_up("there is no home folder to keep them in; AOTCUDA_CACHE_DIR can name another one")

    def get(self, key: str) -> Artifact | None:
        """The entry called `key`, with every byte of it checked; None if there is none or it is damaged."""
        if key in self._memory or self.root is None or not self._is_trusted():
            return self._memory.get(key)
        try:
            if folder.whose(self.path(key)) is not None:
                return None
            artifact = cache_files.read(self, key)
        except (OSError, ManifestError):
            return None
        entries.used(self, key)
        return artifact

    def put(self, key: str, artifact: Artifact) -> None:
        """Keep an entry; in memory if it cannot be written."""
        if self.root is None or not self._is_trusted():
            self._memory[key] = artifact
            return
        try:
            cache_files.write(self, key, artifact)
        except OSError as error:
            self._memory[key] = artifact
            self._give_up(f"{self.root} cannot be written ({error.strerror or error})")

    def discard(self, key: str) -> None:
        """Remove an entry that is damaged or out of date."""
        self._memory.pop(key, None)
        if self.root is not None and entries.is_folder(self.path(key)):
            entries.remove(self, key)

    def lock(self, key: str) -> Lock | None:
        """Wait until this process may compile what `key` stands for; None if nobody keeps it from doing so for good."""
        if self.root is None or not self._is_trusted():
            return None
        try:
            locks = self.make("locks")
        except OSError:
            return None
        entry = os.path.join(self.path(key), ENTRY)
        before = _content(entry)

        def ready() -> bool:
            now = _content(entry)
            return now is not None and now != before

        return cache_lock.acquire(os.path.join(locks, f"{key}.lock"), ready, PATIENCE)

    def _is_trusted(self) -> bool:
        """Whether the folder, if it is there, belongs to us alone."""
        if self.root is None:
            return False
        problem = folder.problem(self.root, os.path.join(self.root, VERSION))
        if problem is not None:
            self._give_up(problem)
        return problem is None

    def _give_up(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            self._warn(f"what the JIT fallback compiles is kept in this process alone, because {reason}")


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None
