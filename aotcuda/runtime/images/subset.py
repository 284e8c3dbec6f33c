"""Select images of one or several fatbins as one fatbin.

Tegra's driver may choose an image that is not certain to run, and split wheels have their images in several files.
`aotcuda.binary.fatbin` documents the format. Entries are copied without decompression.
"""

from __future__ import annotations

import struct

from ...errors import ManifestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_CONTAINER = struct.Struct("<IHHQ")
_MAGIC, _VERSION = 0xBA55ED50, 1
_KIND, _SIZES, _NUMBER, _FLAGS = struct.Struct("<H"), struct.Struct("<IQ"), struct.Struct("<I"), struct.Struct("<Q")
_PTX = 1


def only(fatbins: Sequence[bytes], archs: Collection[str], where: str) -> bytes:
    """Return a fatbin with only the images for `archs`, in this order.

    Args:
        fatbins: The fatbins with the images.
        archs: Targets as manifests have them: `sm_87`, `compute_75`.
        where: The fatbin's name in errors.

    Raises:
        ManifestError: A fatbin is damaged, or an image is missing.
    """
    try:
        by_target = {arch: entry for data in fatbins for arch, entry in _entries(data)}
    except struct.error:
        by_target = {}
    if not by_target.keys() >= set(archs):
        message = f"{where} does not hold the images that its manifest lists; install the package again"
        raise ManifestError(message)
    entries = b"".join([by_target[arch] for arch in archs])
    return _CONTAINER.pack(_MAGIC, _VERSION, _CONTAINER.size, len(entries)) + entries


def _entries(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield target and entry of each image in the first container."""
    magic, version, position, size = _CONTAINER.unpack_from(data)
    end = position + size
    if magic != _MAGIC or version != _VERSION or end > len(data):
        raise struct.error
    while position < end:
        header, payload = _SIZES.unpack_from(data, position + 4)
        number, flags = _NUMBER.unpack_from(data, position + 28)[0], _FLAGS.unpack_from(data, position + 40)[0]
        suffix = "a" if flags & 0x100000 else "f" if flags & 0x200000 else ""
        prefix = "compute" if _KIND.unpack_from(data, position)[0] == _PTX else "sm"
        entry_end = position + header + payload
        if header < 64 or entry_end > end:
            raise struct.error
        yield f"{prefix}_{number}{suffix}", data[position:entry_end]
        position = entry_end
