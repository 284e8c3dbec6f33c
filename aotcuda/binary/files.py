"""Read regular files of limited size from folders and wheels.

A path may lead to a pipe without a writer, a device without an end, or a wheel's member of gigabytes that takes a few
kilobytes. Kind and size are checked before anything is read.
"""

from __future__ import annotations

import io
import os
import struct
import warnings
import zipfile
import zlib
from collections import Counter
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Protocol

from aotcuda.common import foreign
from aotcuda.common.foreign import UnreadableError, escape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aotcuda.binary.limit import Limit

LARGEST = 1 << 30
"""The most bytes of an image, a wheel member or a file next to a manifest."""

_LONGEST_DIRECTORY = 4 << 20
"""The limit of a wheel's central directory in bytes. `zipfile` needs 20 bytes of memory for each."""

_MOST_FILES = 40_000  # about as many entries fill _LONGEST_DIRECTORY
_ALTERED = "it was truncated or altered"

_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The compressions that installers of wheels read. `zipfile` does not limit the memory that others take."""

_DAMAGE = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    LookupError,
    ValueError,
    OverflowError,
    MemoryError,
)
"""The errors of `zipfile` for damaged, encrypted or unknown content."""


class Folder(Protocol):
    """A module's data folder, on disk or in a wheel.

    Attributes:
        where: The folder's name in messages.
        stem: The folder's name without its suffix, which is the name of the module.
        path: The folder's path; None in a wheel.
        total: The limit of the whole wheel; None on disk.
    """

    where: str
    stem: str

    @property
    def path(self) -> Path | None:
        """Return the path."""

    @property
    def total(self) -> Limit | None:
        """Return the limit of the whole wheel."""

    def read(self, name: str, limit: int) -> bytes:
        """Return the file `name` in the folder, of at most `limit` bytes."""

    def has(self, name: str) -> bool:
        """Return True if the folder has a file of this name."""

    def read_sibling(self, name: str, limit: int) -> bytes | None:
        """Return the file `name` next to the folder, of at most `limit` bytes; None if it does not exist."""


class DiskFolder:
    """A data folder on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = escape(str(path))
        self.stem = path.stem
        self.total = None

    def read(self, name: str, limit: int) -> bytes:
        """Implement Folder.read: raise UnreadableError for a bad file."""
        return foreign.content(self.path / name, limit)

    def has(self, name: str) -> bool:
        """Implement Folder.has."""
        return os.path.lexists(self.path / name)

    def read_sibling(self, name: str, limit: int) -> bytes | None:
        """Implement Folder.read_sibling: raise UnreadableError for a bad file."""
        path = self.path.parent / name
        return foreign.content(path, limit) if os.path.lexists(path) else None


class WheelFolder:
    """A data folder in an open wheel."""

    def __init__(self, wheel: Wheel, name: str) -> None:
        self._wheel, self._name = wheel, name
        self.path = None
        self.where = escape(f"{wheel.path}/{name}")
        self.stem = PurePosixPath(name).stem
        self.total = wheel.total

    def read(self, name: str, limit: int) -> bytes:
        """Implement Folder.read: raise UnreadableError for a bad file."""
        return self._wheel.read(f"{self._name}/{name}", limit)

    def has(self, name: str) -> bool:
        """Implement Folder.has."""
        return f"{self._name}/{name}" in self._wheel.names

    def read_sibling(self, name: str, limit: int) -> bytes | None:
        """Implement Folder.read_sibling: raise UnreadableError for a bad file."""
        name = str(PurePosixPath(self._name).with_name(name))
        return self._wheel.read(name, limit) if name in self._wheel.names else None


class Wheel:
    """An open wheel.

    Attributes:
        path: The wheel's path.
        total: The limit of the whole wheel.
        names: The names of the files, each with the number of members of that name.
    """

    def __init__(self, path: Path, archive: zipfile.ZipFile, total: Limit) -> None:
        self.path = path
        self.total = total
        self.names = Counter(archive.namelist())
        self._archive = archive

    @property
    def members(self) -> dict[str, zipfile.ZipInfo]:
        """Return the ZIP entries of the files, by name; folders are left out."""
        return {info.filename: info for info in self._archive.infolist() if not info.is_dir()}

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of a member.

        Raises:
            UnreadableError: The member is missing, damaged, encrypted, larger than `limit`, or its name is not unique.
            TooMuchError: The wheel exceeds its limit.
        """
        if self.names[name] != 1:
            problem = "is missing" if name not in self.names else "is in the wheel more than once"
            raise UnreadableError(problem)
        info = self._archive.getinfo(name)
        if info.file_size > limit:
            problem = f"has {info.file_size:,} bytes, and aotcuda reads {limit:,} at most"
            raise UnreadableError(problem)
        if info.compress_type not in _COMPRESSIONS:
            problem = f"has a compression that wheels do not use ({info.compress_type})"
            raise UnreadableError(problem)
        if info.flag_bits & 1:
            problem = "is encrypted"
            raise UnreadableError(problem)
        self.total.add(info.file_size)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)  # newer Pythons read overlapping members with a warning
                with self._archive.open(info) as member:
                    data = member.read(info.file_size + 1)
        except (*_DAMAGE, UserWarning):
            data = None
        if data is None or len(data) != info.file_size:
            problem = f"cannot be unpacked; {_ALTERED}"
            raise UnreadableError(problem)
        return data


@contextmanager
def open_wheel(path: Path, total: Limit) -> Iterator[Wheel]:
    """Open the wheel at `path`.

    Raises:
        UnreadableError: The file is not a wheel, or has too many members.
    """
    with open_regular(path) as file:
        file.limit = _LONGEST_DIRECTORY  # zipfile reads a wheel's directory in one piece
        try:
            archive = zipfile.ZipFile(file)
            wheel = Wheel(path, archive, total)
        except _DAMAGE:
            problem = f"lists more than {_MOST_FILES:,} files" if file.refused else f"is no readable wheel; {_ALTERED}"
            raise UnreadableError(problem) from None
        file.limit = LARGEST + 1
        with archive:
            yield wheel


class File(io.BufferedReader):
    """A regular file that refuses to read more than `limit` bytes at a time.

    Attributes:
        limit: The limit in bytes.
        refused: True if a caller requested more than the limit.
    """

    def __init__(self, file: io.FileIO) -> None:
        super().__init__(file)
        self.limit = LARGEST + 1
        self.refused = False

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to `size` bytes; raise MemoryError if `size` is above the limit."""
        if size is not None and size > self.limit:
            self.refused = True
            raise MemoryError
        return super().read(self.limit if size is None or size < 0 else size)


def open_regular(path: Path) -> File:
    """Open the regular file at `path` for reading. Pipes and devices are refused.

    Raises:
        UnreadableError: The file is missing, not regular, or not readable.
    """
    return File(io.FileIO(foreign.open_regular(path)))
