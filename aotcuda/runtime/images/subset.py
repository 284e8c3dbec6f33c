"""A fatbin with some of its images alone, for GPUs whose driver might take another one than is promised to run.

`aotcuda.binary.fatbin` says what is known of the format. Entries are copied as they are, so nothing is decompressed.
"""

from __future__ import annotations

import struct

from aotcuda.errors import ManifestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_CONTAINER = struct.Struct("<IHHQ")
_MAGIC = 0xBA55ED50
_KIND, _SIZES, _NUMBER, _FLAGS = struct.Struct("<H"), struct.Struct("<IQ"), struct.Struct("<I"), struct.Struct("<Q")
_PTX = 1


def only(data: bytes, archs: Collection[str], where: str) -> bytes:
    """Return a fatbin with only the images for `archs`.

    Args:
        data: The fatbin.
        archs: Targets as manifests have them: `sm_87`, `compute_75`.
        where: What to call it in errors.

    Raises:
        ManifestError: It cannot be taken apart, or lacks one of them.
    """
    try:
        kept = {arch: entry for arch, entry in _entries(data) if arch in archs}
    except struct.error:
        kept = {}
    if kept.keys() != set(archs):
        message = f"{where} does not hold the images that its manifest lists; install the package again"
        raise ManifestError(message)
    entries = b"".join(kept.values())
    magic, version, header_size, _ = _CONTAINER.unpack_from(data)
    return _CONTAINER.pack(magic, version, header_size, len(entries)) + data[_CONTAINER.size : header_size] + entries


def _entries(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield target and entry of each image in the first container."""
    magic, version, position, size = _CONTAINER.unpack_from(data)
    end = position + size
    if magic != _MAGIC or version != 1 or end > len(data):
        raise struct.error
    while position < end:
        header, payload = _SIZES.unpack_from(data, position + 4)
        number, flags = _NUMBER.unpack_from(data, position + 28)[0], _FLAGS.unpack_from(data, position + 40)[0]
        suffix = "a" if flags & 0x100000 else "f" if flags & 0x200000 else ""
        prefix = "compute" if _KIND.unpack_from(data, position)[0] == _PTX else "sm"
        after = position + header + payload
        if header < 64 or after > end:
            raise struct.error
        yield f"{prefix}_{number}{suffix}", data[position:after]
        position = after
