"""Long files, of which a launch reads parts: of a manifest its index and some records, of a fatbin some images.

`aotcuda.manifest.index` writes the index. Nothing is taken that a digest does not vouch for: the generated module has
the index's, and the index those of the parts and the images. Launches from short files do without this.
"""

from __future__ import annotations

import os

import aotcuda
from aotcuda import manifest as manifests
from aotcuda.common import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.manifest import Image, Index, Kernel, Manifest, Part


def read(path: str, *, sha256: str | None = None, index: str) -> Parts:
    """Read the index of the manifest in file `path`, and leave the rest to be read.

    The file stays open: another version may be installed in its place while the process runs.

    Args:
        path: The manifest's file.
        sha256: Its digest, if it is known.
        index: The digest of its index.

    Raises:
        ManifestError: As for `manifest.read`, of either file.
    """
    place = os.path.join(os.path.dirname(path), manifests.INDEX_NAME)  # noqa: PTH118, PTH120 (pathlib costs 10 ms)
    described = parse_index(manifests.content(place, manifests.LARGEST), place, sha256=index)
    return Parts(described, Kept(path), path, sha256=sha256)


def parse_index(data: bytes, where: str, *, sha256: str | None = None) -> Index:
    """Read and check an index's bytes; arguments and errors as for `manifest.parse`."""
    index = manifests.checked(data, where, sha256)
    if sha256 is None:
        manifests.check_shape(index, where, index=True)
    result: Index = index
    return result


def images(path: str, size: int, wanted: list[Image]) -> bytes:
    """A fatbin with some of the images of the one in file `path`.

    Args:
        path: The fatbin's file.
        size: Bytes that it has to have.
        wanted: The images, in the file's order; each says where it lies.

    Raises:
        ManifestError: It is missing, truncated, or altered where these images lie.
    """
    file = Kept(path)
    if len(file) != size:
        raise manifests.wrong_size(path, len(file), size)
    entries = []
    for image in wanted:
        place = image["packed"]
        entry = file.read(place["start"], place["end"])
        if manifests.digest(entry) != place["sha256"]:
            message = (
                f"{path} was altered: its image for {image['arch']} is not the manifest's; install the package again"
            )
            raise aotcuda.errors.ManifestError(message)
        entries.append(entry)
    data = b"".join(entries)
    # A fatbin's header (`aotcuda.binary.fatbin`): magic, version, its own size, and that of the entries.
    return b"".join([b"\x50\xed\x55\xba", b"\1\0", b"\x10\0", len(data).to_bytes(8, "little"), data])


class Parts(manifests.Outline):
    """See Outline; of a manifest's bytes, by its index."""

    __slots__ = ("_data", "_parts", "_sha256", "_where", "_whole")

    def __init__(self, index: Index, data: bytes | Kept, where: str, *, sha256: str | None = None) -> None:
        """Of a manifest's bytes, by its index.

        Args:
            index: The index.
            data: The content of the manifest's file, or the file.
            where: What to call it in errors.
            sha256: The digest of the content, if it is known; it is held against it where all of it is read.

        Raises:
            ManifestError: The content is not of the length that the index says.
        """
        if len(data) != index["bytes"]:
            message = f"{where} has {len(data)} bytes where its index says {index['bytes']}; install the package again"
            raise aotcuda.errors.ManifestError(message)
        self.head = index["head"]
        self._records: dict[str, Kernel] = {}
        self._data = data
        self._where = where
        self._sha256 = sha256
        self._whole: Manifest | None = None
        self._parts = {name: part for part in index["parts"] for name in part["names"]}
        self.names = [*self._parts]

    def kernel(self, name: str) -> Kernel | None:
        """See Outline."""
        found = self._records.get(name)
        if found is None and name in self._parts:
            self._records.update(self._read(self._parts[name]))  # by several threads at once: all read the same
            found = self._records[name]
        return found

    def whole(self) -> Manifest:
        """See Outline."""
        if self._whole is None:
            self._whole = manifests.parse(self._bytes(0, len(self._data)), self._where, sha256=self._sha256)
        return self._whole

    def _read(self, part: Part) -> dict[str, Kernel]:
        data = self._bytes(part["start"], part["end"])
        try:
            records = manifests.decoded(b"[%s]" % data) if manifests.digest(data) == part["sha256"] else []
            found = {record["name"]: record for record in records}
        except (ValueError, LookupError, TypeError, RecursionError):
            found = {}
        if [*found] != part["names"]:
            message = (
                f"{self._where} was altered: what it says of {part['names'][0][:80]!a} is not what its index says; "
                "install the package again"
            )
            raise aotcuda.errors.ManifestError(message)
        return found

    def _bytes(self, start: int, end: int) -> bytes:
        return self._data[start:end] if isinstance(self._data, bytes) else self._data.read(start, end)


class Kept:
    """A regular file that is open: its parts can be read later on, also where another version was put in its place.

    Its length is in bytes.
    """

    __slots__ = ("_descriptor", "_identity", "_path", "_size")

    def __init__(self, path: str) -> None:
        """Open it.

        Raises:
            ManifestError: It cannot be opened, or is no regular file.
        """
        self._path = path
        self._descriptor = -1
        self._open()

    def __len__(self) -> int:
        return self._size

    def read(self, start: int, end: int) -> bytes:
        """Its bytes from `start` to `end`, fewer if there are no more.

        Raises:
            ManifestError: It cannot be read.
        """
        if not self._is_own():
            self._open()  # who becomes a daemon closes all files, and the next ones get their numbers
        try:
            part: bytes = system.read_at(self._descriptor, start, end - start)
        except OSError as error:
            raise manifests.unreadable(self._path, str(error.strerror)) from None
        return part

    def __del__(self) -> None:
        if self._is_own():
            os.close(self._descriptor)

    def _open(self) -> None:
        try:
            self._descriptor = manifests.open_without_waiting(self._path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            status = os.fstat(self._descriptor)
        except OSError as error:
            raise manifests.unreadable(self._path, str(error.strerror)) from None
        self._identity = status.st_dev, status.st_ino
        self._size = status.st_size
        if not manifests.is_regular(status.st_mode):
            raise manifests.unreadable(self._path, manifests.IRREGULAR)

    def _is_own(self) -> bool:
        """Whether the number is still that of the file."""
        try:
            status = os.fstat(self._descriptor)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity
