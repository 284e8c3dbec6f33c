"""An entry of the JIT fallback's cache: on disk, the case's record, its manifest as in a wheel, and one cubin.

The record says which case it is for, and has the SHA-256 of the manifest, which has that of the image.
"""

from __future__ import annotations

from aotcuda import manifest as manifests
from aotcuda.cache import entries
from aotcuda.errors import ManifestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from aotcuda.manifest import Manifest


CUBIN = "kernels.cubin"

NAMES = (manifests.FILE_NAME, CUBIN)
"""The files of an entry."""


class Artifact:
    """What a JIT build made.

    Attributes:
        manifest: Its manifest.
        image: Its image, as the driver takes it.
        record: What `entry.json` says: the case, and what the result depends on.
        folder: Where it lies; empty if it is in memory alone.
    """

    __slots__ = ("folder", "image", "manifest", "record")

    def __init__(self, manifest: Manifest, image: bytes, record: dict[str, Any], folder: str = "") -> None:
        self.manifest = manifest
        self.image = image
        self.record = record
        self.folder = folder

    def stored(self, record: dict[str, Any], folder: str) -> None:
        """Note that it was written to a folder, with this record."""
        self.record = record
        self.folder = folder


def read(files: entries.Files, key: str) -> Artifact:
    """Return an entry, with every byte of it checked.

    Raises:
        ManifestError: It is damaged, or is not an entry of this cache.
        FileNotFoundError: There is no such entry.
    """
    folder = files.path(key)
    record, contents = entries.read(files, key)
    manifest = manifests.parse(contents[manifests.FILE_NAME], folder)
    image = contents[CUBIN]
    listed = {"kernels": {"path": CUBIN, "bytes": len(image), "sha256": manifests.digest(image)}}
    if manifest["files"] != listed or len(manifest["images"]) != 1 or manifest["function_links"]:
        message = f"{folder} is not an entry of the JIT fallback's cache"
        raise ManifestError(message)
    return Artifact(manifest, image, record, folder)


def write(files: entries.Files, key: str, artifact: Artifact) -> None:
    """Write an entry; another process's intact one of the same content stays in its place.

    Raises:
        OSError: It cannot be written.
    """
    data = manifests.dump(artifact.manifest)
    contents = {CUBIN: artifact.image, manifests.FILE_NAME: data}
    record = entries.write(files, key, {**artifact.record, "manifest": manifests.digest(data)}, contents)
    artifact.stored(record, files.path(key))
    entries.trim(files, entries.size_cap(), spare=key)
