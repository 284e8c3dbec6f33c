"""An entry of the JIT fallback's cache: on disk, the case's record, its manifest as in a wheel, and one cubin.

The record says which case it is for, and has the SHA-256 of the manifest, which has that of the image.
"""

from __future__ import annotations

import os

from aotcuda import manifest as manifests
from aotcuda.cache import entries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from aotcuda.manifest import Manifest


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
    """An entry, with every byte of it checked.

    Raises:
        ManifestError: It is damaged.
        OSError: It cannot be read, or is not there.
    """
    folder = files.path(key)
    record = entries.read_record(folder, key)
    manifest = manifests.read(os.path.join(folder, manifests.FILE_NAME), sha256=record["manifest"])
    image = manifests.read_file(folder, manifest["files"]["kernels"])
    return Artifact(manifest, image, record, folder)


def write(files: entries.Files, key: str, artifact: Artifact) -> None:
    """Write an entry; another process's intact one of the same content stays in its place.

    Raises:
        OSError: It cannot be written.
    """
    data = manifests.dump(artifact.manifest)
    contents = {artifact.manifest["files"]["kernels"]["path"]: artifact.image, manifests.FILE_NAME: data}
    record = entries.write(files, key, {**artifact.record, "manifest": manifests.digest(data)}, contents)
    artifact.stored(record, files.path(key))
    entries.trim(files, entries.size_cap(), spare=key)
