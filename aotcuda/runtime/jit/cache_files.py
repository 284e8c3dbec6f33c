"""Changing the cache on disk: writing an entry, removing entries, keeping the whole below its cap.

A process may be killed between any two lines here. What it leaves is a folder in `tmp`, which nobody reads.
"""

from __future__ import annotations

import contextlib
import os
import time

from aotcuda import manifest as manifests
from aotcuda.errors import ConfigError, ManifestError
from aotcuda.runtime.jit import cache as caches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from aotcuda.runtime.jit.cache import Artifact, Cache

DEFAULT_SIZE = 1 << 30
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_LEFT_OVER = 3600.0


class Entry:
    """What `aotcuda cache list` tells of an entry.

    Attributes:
        key: Its name.
        bytes: Its size on disk.
        used: When it was used last, in seconds since the epoch.
        record: What `entry.json` says; None if that is damaged.
    """

    __slots__ = ("bytes", "key", "record", "used")

    def __init__(self, key: str, size: int, used: float, record: dict[str, Any] | None) -> None:
        self.key = key
        self.bytes = size
        self.used = used
        self.record = record


def write(cache: Cache, key: str, artifact: Artifact) -> None:
    """Write an entry; another process's intact one of the same content stays in its place.

    Raises:
        OSError: It cannot be written.
    """
    final = cache.path(key)
    with _temporary(cache, key) as partial:
        data = manifests.dump(artifact.manifest)
        artifact.record = {**artifact.record, "key": key, "manifest": manifests.digest(data)}
        _write(os.path.join(partial, artifact.manifest["files"]["kernels"]["path"]), artifact.image)
        _write(os.path.join(partial, manifests.FILE_NAME), data)
        _write(os.path.join(partial, caches.ENTRY), caches.entry_bytes(artifact.record))
        _flush(partial)
        cache.make(key[:2])
        try:
            os.rename(partial, final)
        except OSError:
            if not os.path.isdir(final):
                raise
            there = cache.get(key)
            if there is not None and manifests.dump(there.manifest) == data:
                return
            remove(cache, key)
            os.rename(partial, final)
        _flush(os.path.dirname(final))
    artifact.folder = final
    trim(cache, size_cap(), spare=key)


def remove(cache: Cache, key: str) -> None:
    """Remove an entry; for others it is gone at once. What cannot be removed stays."""
    with contextlib.suppress(OSError), _temporary(cache, key) as aside:
        os.rename(cache.path(key), os.path.join(aside, "removed"))


def trim(cache: Cache, cap: int, spare: str = "") -> None:
    """Remove what was not used for longest until the entries take `cap` bytes at most; the entry `spare` stays."""
    found = sorted(entries(cache), key=lambda entry: (entry.key == spare, entry.used))
    total = sum(entry.bytes for entry in found)
    for entry in found:
        if total <= cap or entry.key == spare:
            break
        remove(cache, entry.key)
        total -= entry.bytes
    _sweep(cache)


def entries(cache: Cache) -> list[Entry]:
    """All entries on disk."""
    found = []
    for key in cache.names():
        folder = cache.path(key)
        try:
            size = sum(item.stat().st_size for item in os.scandir(folder))
            used = os.stat(os.path.join(folder, caches.ENTRY)).st_mtime
        except OSError:  # it is being removed, or lacks a file
            size, used = 0, 0.0
        try:
            record = caches.read_record(folder, key)
        except (OSError, ManifestError):
            record = None
        found.append(Entry(key, size, used, record))
    return found


def clear(cache: Cache) -> tuple[int, int]:
    """Remove every entry; returns how many there were, and their bytes."""
    found = entries(cache)
    for entry in found:
        remove(cache, entry.key)
    _sweep(cache)
    return len(found), sum(entry.bytes for entry in found)


def size_cap() -> int:
    """The value of `AOTCUDA_CACHE_SIZE` in bytes.

    Raises:
        ConfigError: It is no size.
    """
    given = os.environ.get("AOTCUDA_CACHE_SIZE", "").strip()
    if not given:
        return DEFAULT_SIZE
    text = given.upper().removesuffix("B").removesuffix("I")
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "")
    try:
        size = float(number) * _UNITS[unit]
    except ValueError:
        size = -1
    if not 0 <= size < 1 << 63:  # nor is it endless, nor "nan"
        message = f"AOTCUDA_CACHE_SIZE is {given!r}; write a number of bytes, or one with K, M, G or T, such as 500M"
        raise ConfigError(message)
    return int(size)


@contextlib.contextmanager
def _temporary(cache: Cache, key: str) -> Iterator[str]:
    """A new folder in `tmp`, which is removed with all that is still in it."""
    folder = os.path.join(cache.make("tmp"), f"{key[:16]}.{os.getpid()}.{time.monotonic_ns()}")
    os.mkdir(folder, 0o700)
    try:
        yield folder
    finally:
        _delete(folder)


def _sweep(cache: Cache) -> None:
    """Remove what processes left behind that were killed."""
    for name in ("tmp", "locks"):
        base = os.path.join(cache.root or "", caches.VERSION, name)
        with contextlib.suppress(OSError):
            for item in list(os.scandir(base)):
                with contextlib.suppress(OSError):
                    if time.time() - item.stat(follow_symlinks=False).st_mtime > _LEFT_OVER:
                        _delete(item.path)


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _flush(folder: str) -> None:
    """Make a folder's list of names outlive a crash of the machine, where the file system knows how."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _delete(path: str) -> None:
    import shutil  # noqa: PLC0415 (few come here)

    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        os.unlink(path)
