"""The cache of what the JIT fallback compiled: on disk, and in memory where the disk cannot be used.

    <root>/v1/<first two of key>/<key>.aotcuda/
        entry.json        which case it is for, what it depends on, the manifest's SHA-256; and a SHA-256 of all that
        manifest.json     as in a wheel; it has the SHA-256 of the image
        kernels.cubin
    <root>/v1/tmp/        entries being written or removed; left over ones go after an hour
    <root>/v1/locks/

An entry is written elsewhere, flushed, and renamed into its place: it is there whole, or not at all. It is read back
with every byte checked, and counts as missing if one is wrong. A folder that belongs to somebody else, or that others
can write, is not used.
"""

from __future__ import annotations

import contextlib
import os
import stat

from aotcuda.errors import ManifestError
from aotcuda.runtime.jit import cache_files, cache_lock
from aotcuda.runtime.jit.cache_files import ENTRY, VERSION, Artifact, Files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from aotcuda.runtime.jit.cache_lock import Lock

PATIENCE = 300.0
"""How many seconds one process waits for another's compilation before it compiles for itself."""

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Cache(Files):
    """A cache.

    Attributes:
        root: Its folder; None if there is none, and all is kept in memory.
    """

    def __init__(self, root: str | None, warn: Callable[[str], None]) -> None:
        super().__init__(root)
        self._warn = warn
        self._warned = False
        self._memory: dict[str, Artifact] = {}
        if root is None:
            self._give_up("there is no home folder to keep them in; AOTCUDA_CACHE_DIR can name another one")

    def get(self, key: str) -> Artifact | None:
        """The entry called `key`, with every byte of it checked; None if there is none or it is damaged."""
        if key in self._memory or self.root is None or not self._is_trusted():
            return self._memory.get(key)
        folder = self.path(key)
        try:
            if whose(folder) is not None:
                return None
            artifact = self.read(key)
        except (OSError, ManifestError):
            return None
        with contextlib.suppress(OSError):  # a cache may be shared, and read-only
            os.utime(os.path.join(folder, ENTRY))  # what was used last is removed last
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
        if self.root is not None and os.path.isdir(self.path(key)):
            cache_files.remove(self, key)

    def lock(self, key: str) -> Lock | None:
        """Wait until this process may compile what `key` stands for; None if nobody keeps it from doing so for good."""
        if self.root is None or not self._is_trusted():
            return None
        try:
            folder = self.make("locks")
        except OSError:
            return None
        entry = os.path.join(self.path(key), ENTRY)
        before = _content(entry)

        def ready() -> bool:
            now = _content(entry)
            return now is not None and now != before

        return cache_lock.acquire(os.path.join(folder, f"{key}.lock"), ready, PATIENCE)

    def _is_trusted(self) -> bool:
        """Whether the folder, if it is there, belongs to us alone."""
        if self.root is None:
            return False
        for folder in (self.root, os.path.join(self.root, VERSION)):
            try:
                problem = whose(folder)
            except FileNotFoundError:
                return True
            except OSError as error:
                problem = f"cannot be read ({error.strerror})"
            if problem is not None:
                self._give_up(f"{folder} {problem}")
                return False
        return True

    def _give_up(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            self._warn(f"what the JIT fallback compiles is kept in this process alone, because {reason}")


def folder() -> str | None:
    """The cache's folder: `AOTCUDA_CACHE_DIR`, or the user's cache folder; None if the user has no home.

    The latter is what `platformdirs.user_cache_dir("aotcuda")` gives on Linux, without the 20 ms of its import.
    """
    given = os.environ.get("AOTCUDA_CACHE_DIR", "")
    if given.strip():
        return os.path.abspath(given)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not base.strip():
        base = os.path.expanduser("~/.cache")
    return os.path.join(base, "aotcuda") if os.path.isabs(base) else None


def whose(folder: str) -> str | None:
    """Why a folder is not to be trusted; None if it is ours, or the system's, and nobody else can write it."""
    status = os.stat(folder)
    if not stat.S_ISDIR(status.st_mode):
        return "is not a folder"
    if status.st_uid not in (os.geteuid(), 0):
        return "belongs to another user"
    if status.st_mode & _OTHERS_WRITE:
        return f"can be written by others (chmod go-w {folder})"
    return None


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None
