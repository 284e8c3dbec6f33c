"""Cache the results of JIT builds on disk, or in memory if the disk cannot be used.

`aotcuda.cache` has the format. An entry has the record of its request, a manifest like a wheel's, and one cubin.
Reading checks an entry; a damaged entry counts as missing. A folder that belongs to another user, or that others can
write, is not used.
"""

from __future__ import annotations

import os

from ... import manifest as manifests
from ...cache import entries, folder
from ...cache.entries import VERSION, Files
from ...common.jit_build import CUBIN, Result, cubin_name
from ...errors import ManifestError
from . import cache_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from io import FileIO

NAMES = (manifests.FILE_NAME, CUBIN)
"""The files of an entry."""


class Cache(Files):
    """A cache.

    Attributes:
        root: Its folder; None to store entries in memory.
    """

    def __init__(self, root: str | None, warn: Callable[[str], None]) -> None:
        super().__init__(root, NAMES)
        self._warn = warn
        self._warned = False
        self._memory: dict[str, Result] = {}
        if root is None:
            self._give_up("there is no home folder; set AOTCUDA_CACHE_DIR")

    def get(self, key: str) -> Result | None:
        """Return the entry of a key; None if there is none or it is damaged."""
        if key in self._memory or not self._is_trusted():
            return self._memory.get(key)
        try:
            if folder.distrust_reason(self.path(key)) is not None:
                return None
            result = _read(self, key)
        except (OSError, ManifestError):
            return None
        entries.mark_used(self, key)
        return result

    def put(self, key: str, result: Result, record: Mapping[str, object]) -> Result:
        """Store an entry, in memory if it cannot be written; return it, with its folder on disk."""
        if self._is_trusted():
            try:
                return _write(self, key, result, record)
            except OSError as error:
                self._give_up(f"{self.root} cannot be written ({error.strerror or error})")
        self._memory[key] = result
        return result

    def discard(self, key: str) -> None:
        """Remove an entry that is damaged or out of date."""
        self._memory.pop(key, None)
        if self.root is not None and entries.is_folder(self.path(key)):
            entries.remove(self, key)

    def lock(self, key: str) -> FileIO | None:
        """Wait until this process may compile the entry of `key`; return None if it may compile without a lock."""
        if not self._is_trusted():
            return None
        try:
            locks = self.make("locks")
        except OSError:
            return None
        return cache_lock.acquire(os.path.join(locks, f"{key}.lock"))

    def _is_trusted(self) -> bool:
        """Return True if there is a folder that belongs to this user, and that others cannot write."""
        if self.root is None:
            return False
        problem = folder.problem(self.root, os.path.join(self.root, VERSION))
        if problem is not None:
            self._give_up(problem)
        return problem is None

    def _give_up(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            self._warn(f"the JIT fallback's code is not stored beyond this process, because {reason}")


def _read(files: entries.Files, key: str) -> Result:
    """Read an entry and check every byte.

    Raises:
        ManifestError: The entry is damaged, or is not an entry of this cache.
        FileNotFoundError: There is no such entry.
    """
    folder = files.path(key)
    _, contents = entries.read(files, key)
    manifest = manifests.parse(contents[manifests.FILE_NAME], folder)
    result = Result(manifest, contents[CUBIN], folder)
    fatbins = [(item["file"], len(item["images"])) for item in manifest["fatbins"]]
    expected = [
        ({"path": cubin_name(index), "bytes": len(data), "sha256": manifests.digest(data)}, 1)
        for index, data in enumerate(result.cubins)
    ]
    size = sum(file["bytes"] for file, _ in fatbins)
    is_other = not fatbins or fatbins != expected or size != len(result.image)
    if is_other or manifest["files"] or manifest["function_links"]:
        message = f"{folder} is not an entry of the JIT fallback's cache"
        raise ManifestError(message)
    return result


def _write(files: entries.Files, key: str, result: Result, record: Mapping[str, object]) -> Result:
    """Write an entry and return it; an intact entry of another process with the same content stays.

    Raises:
        OSError: It cannot be written.
    """
    data = manifests.dump(result.manifest)
    contents = {CUBIN: result.image, manifests.FILE_NAME: data}
    entries.write(files, key, {**record, "manifest": manifests.digest(data)}, contents)
    entries.trim(files, entries.size_cap(), spare=key)
    return Result(result.manifest, result.image, files.path(key))
