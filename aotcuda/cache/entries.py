"""A cache on disk: read, write and remove entries, and keep the cache below its cap.

    <root>/v1/<first two of key>/<key>.aotcuda/
        entry.json        the record: properties of the entry and the SHA-256 of each file; and the record's SHA-256
        ...               its files
    <root>/v1/tmp/        entries while they are written or removed; files of ended processes are removed
    <root>/v1/locks/      files that processes lock while they compile; a file that is an hour old is removed

An entry is written to `tmp` and renamed, so its folder is complete or missing. A process that is killed leaves a folder
in `tmp`, which is never read.

An entry is not trusted: it may come from another machine, or from a folder that CI has restored. `parse_record` checks
every record, from disk and from an archive, and accepts exactly the file names of the cache. No symbolic link below
the root is followed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time

from .. import manifest as manifests
from ..common import foreign, process_names
from ..errors import ConfigError, ManifestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

VERSION = "v1"
ENTRY = "entry.json"
DEFAULT_SIZE = 1 << 30
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_LEFT_OVER = 3600.0
_KEY = re.compile(r"[0-9a-f]{64}")

LARGEST_RECORD = 1 << 20
"""The most bytes of `entry.json`; builds write a few hundred."""

LARGEST_FILE = 1 << 30
"""The most bytes of a file of an entry."""


class Files:
    """A cache's entries on disk.

    Attributes:
        root: The cache's folder; None if there is none.
        file_names: The names of the files that each entry has in addition to its record.
    """

    def __init__(self, root: str | None, file_names: Iterable[str] = ()) -> None:
        self.root = root
        self.file_names = frozenset(file_names)

    def path(self, key: str) -> str:
        """Return the folder of an entry."""
        return os.path.join(self.root or "", VERSION, key[:2], key + manifests.FOLDER_SUFFIX)

    def make(self, name: str) -> str:
        """Create a folder in the cache that only this user can write, with any umask, and return it.

        Raises:
            OSError: It cannot be created, or is a symbolic link.
        """
        folder = self.root or ""
        if not os.path.isdir(folder):
            _make(folder)
        for part in (VERSION, name):
            folder = os.path.join(folder, part)
            if not is_folder(folder):
                _make(folder)
        return folder

    def stored(self) -> Iterator[str]:
        """Return the keys of all entries on disk."""
        if self.root is None:
            return
        base = os.path.join(self.root, VERSION)
        for shard in _listed(base):
            if len(shard) == 2:
                for name in _listed(os.path.join(base, shard)):
                    key, suffix = name[: -len(manifests.FOLDER_SUFFIX)], name[-len(manifests.FOLDER_SUFFIX) :]
                    if suffix == manifests.FOLDER_SUFFIX and key.startswith(shard) and _KEY.fullmatch(key):
                        yield key


class Entry:
    """The properties of an entry that `aotcuda cache list` shows.

    Attributes:
        key: The key, which names the entry.
        bytes: The size on disk.
        used: The time of the last use, in seconds since the epoch.
        record: The content of `entry.json`; None if it is damaged.
    """

    __slots__ = ("bytes", "key", "record", "used")

    def __init__(self, key: str, size: int, used: float, record: dict[str, Any] | None) -> None:
        self.key = key
        self.bytes = size
        self.used = used
        self.record = record


def read(files: Files, key: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read an entry's record and files, and check every byte.

    Raises:
        ManifestError: The entry is damaged, or is not an entry of this cache.
        FileNotFoundError: There is no such entry.
    """
    folder = files.path(key)
    record = read_record(files, key)
    contents = {name: _content(os.path.join(folder, name), LARGEST_FILE) for name in sorted(files.file_names)}
    check_contents(record, contents, folder)
    return record, contents


def check_contents(record: Mapping[str, Any], contents: Mapping[str, bytes], where: str) -> None:
    """Raise ManifestError unless the files of an entry are those that its record lists, byte by byte."""
    if record["files"] != {name: manifests.digest(data) for name, data in contents.items()}:
        message = f"{where} is damaged"
        raise ManifestError(message)


def mark_used(files: Files, key: str) -> None:
    """Mark an entry as used; `trim` removes the least recently used entries."""
    with contextlib.suppress(OSError):  # a cache may be shared, and read-only
        os.utime(os.path.join(files.path(key), ENTRY))


def write(
    files: Files, key: str, record: Mapping[str, Any], contents: Mapping[str, bytes], *, durable: bool = True
) -> dict[str, Any]:
    """Write an entry and return its record; an intact entry of another process with the same content stays.

    Args:
        files: The cache.
        key: The entry's name.
        record: Its properties.
        contents: Its files.
        durable: Flush the entry to the disk, which takes a few milliseconds. Without the flush, a crash of the machine
            may damage the entry, which then counts as missing.

    Raises:
        OSError: The entry cannot be written.
        ValueError: Entries of this cache have other files.
    """
    if contents.keys() != files.file_names:
        message = f"an entry has {sorted(contents)} in place of {sorted(files.file_names)}"
        raise ValueError(message)
    final = files.path(key)
    digests = {name: manifests.digest(data) for name, data in contents.items()}
    complete = {**record, "key": key, "files": digests}
    with _temporary(files, key) as partial:
        for name, data in contents.items():
            _write(os.path.join(partial, name), data, durable=durable)
        _write(os.path.join(partial, ENTRY), entry_bytes(complete), durable=durable)
        if durable:
            _flush(partial)
        files.make(key[:2])
        try:
            os.rename(partial, final)
        except OSError:
            if not os.path.lexists(final):
                raise
            if _holds(files, key, digests):
                return complete
            remove(files, key)
            os.rename(partial, final)
        if durable:
            _flush(os.path.dirname(final))
    return complete


def remove(files: Files, key: str) -> None:
    """Move an entry to `tmp`, and delete its files there; files that cannot be deleted stay in `tmp`."""
    with contextlib.suppress(OSError), _temporary(files, key) as folder:
        os.rename(files.path(key), os.path.join(folder, "removed"))


def trim(files: Files, cap: int, spare: str = "") -> int:
    """Remove the least recently used entries until the cache has at most `cap` bytes; return the bytes that remain.

    The entry `spare` stays.
    """
    by_age = sorted(_sizes(files), key=lambda entry: (entry.key == spare, entry.used))
    total = sum(entry.bytes for entry in by_age)
    for entry in by_age:
        if total <= cap or entry.key == spare:
            break
        remove(files, entry.key)
        total -= entry.bytes
    sweep(files)
    return total


def entries(files: Files) -> list[Entry]:
    """Return all entries on disk."""
    all_entries = _sizes(files)
    for entry in all_entries:
        with contextlib.suppress(OSError, ManifestError):
            entry.record = read_record(files, entry.key)
    return all_entries


def _make(folder: str) -> None:
    """Create a folder and missing parents with mode 0700; `os.makedirs` would give the parents the umask's mode.

    The folder of the JIT cache contains the folder of the build cache, and is refused if other users can write it.
    """
    parent = os.path.dirname(folder)
    if parent and not os.path.isdir(parent):
        _make(parent)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not is_folder(folder):  # a file; another process may have just created the folder
            raise


def _sizes(files: Files) -> list[Entry]:
    """Return all entries without their records."""
    all_entries = []
    for key in files.stored():
        folder = files.path(key)
        try:
            with os.scandir(folder) as items:
                size = sum(item.stat(follow_symlinks=False).st_size for item in items) if is_folder(folder) else 0
            used = os.lstat(os.path.join(folder, ENTRY)).st_mtime
        except OSError:  # another process removes it, or a file is missing
            size, used = 0, 0.0
        all_entries.append(Entry(key, size, used, None))
    return all_entries


def clear(files: Files) -> tuple[int, int]:
    """Remove every entry; return their number and bytes."""
    all_entries = _sizes(files)
    for entry in all_entries:
        remove(files, entry.key)
    sweep(files)
    return len(all_entries), sum(entry.bytes for entry in all_entries)


def size_cap() -> int:
    """Return the value of `AOTCUDA_CACHE_SIZE` in bytes.

    Raises:
        ConfigError: The value is no size.
    """
    value = os.environ.get("AOTCUDA_CACHE_SIZE", "").strip()
    if not value:
        return DEFAULT_SIZE
    text = value.upper().removesuffix("B").removesuffix("I")
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "")
    try:
        size = float(number) * _UNITS[unit]
    except ValueError:
        size = -1
    if not 0 <= size < 1 << 63:  # refuses "inf" and "nan" too
        message = f"AOTCUDA_CACHE_SIZE is {value!r}; write a number of bytes, or one with K, M, G or T, such as 500M"
        raise ConfigError(message)
    return int(size)


def entry_bytes(record: dict[str, Any]) -> bytes:
    """Return the content of `entry.json`: one line for the record, one for its digest."""
    line = json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
    return b'{"record":%s,\n"sha256":"%s"}\n' % (line, manifests.digest(line).encode())


def read_record(files: Files, key: str) -> dict[str, Any]:
    """Return the record of an entry on disk.

    Raises:
        ManifestError: The record is damaged, or belongs to another entry or cache.
        FileNotFoundError: There is no such entry.
    """
    folder = files.path(key)
    for path in (os.path.dirname(folder), folder):
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            message = f"{path} is not a folder"
            raise ManifestError(message)
    path = os.path.join(folder, ENTRY)
    return parse_record(_content(path, LARGEST_RECORD), key, files.file_names, path)


def parse_record(data: bytes, key: str, names: frozenset[str], where: str) -> dict[str, Any]:
    """Return the record in `data`, the content of an `entry.json`.

    Args:
        data: The content.
        key: The entry's name.
        names: The names of the files that an entry of the cache has; the record must list exactly these.
        where: The name of the file in errors.

    Raises:
        ManifestError: The record is damaged, belongs to another entry, or names other files.
    """
    try:
        record: dict[str, Any] = json.loads(data)["record"]
        intact = record["key"] == key and entry_bytes(record) == data and record["files"].keys() == names
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        intact = False
    if not intact:
        message = f"{where} is damaged"
        raise ManifestError(message)
    return record


def _content(path: str, limit: int) -> bytes:
    os.lstat(path)  # FileNotFoundError: another process has just removed the entry
    return foreign.read(path, limit, remedy="clear the cache", follow=False, error=ManifestError)


def is_folder(path: str) -> bool:
    """Return True if a path is a folder, and not a symbolic link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _holds(files: Files, key: str, digests: dict[str, str]) -> bool:
    """Return True if an intact entry with these files exists."""
    try:
        return bool(read(files, key)[0]["files"] == digests)
    except (OSError, ManifestError, LookupError):
        return False


@contextlib.contextmanager
def _temporary(files: Files, key: str) -> Iterator[str]:
    """Create a folder in `tmp` for a block of code, and delete it with its content afterwards."""
    folder = temporary_path(files, f"{key[:16]}.")
    os.mkdir(folder, 0o700)
    try:
        yield folder
    finally:
        _delete(folder)


def temporary_path(files: Files, stem: str = "") -> str:
    """Return a new path in `tmp`, which `sweep` removes after this process has ended.

    Raises:
        OSError: `tmp` cannot be created.
    """
    return os.path.join(files.make("tmp"), stem + process_names.make())


def sweep(files: Files) -> None:
    """Remove temporary files of ended processes, and the files of locks that no process has used for an hour.

    Temporary files of other machines are removed after an hour.
    """
    for name in ("tmp", "locks"):
        base = os.path.join(files.root or "", VERSION, name)
        with contextlib.suppress(OSError):
            for item in [*os.scandir(base)] if is_folder(base) else ():
                with contextlib.suppress(OSError):
                    match = process_names.PATTERN.search(item.name)
                    ended = process_names.has_ended(match) if match else None
                    if ended is None:
                        ended = time.time() - item.stat(follow_symlinks=False).st_mtime > _LEFT_OVER
                    if ended:
                        _delete(item.path)


def _write(path: str, data: bytes, *, durable: bool) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(descriptor)


def _flush(folder: str) -> None:
    """Flush a folder's list of names to the disk, where the file system supports that."""
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


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder)) if is_folder(folder) else []
    except OSError:
        return []
