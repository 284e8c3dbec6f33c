"""Describe a wheel as a ZIP archive, to restore its bytes from the content of its members.

The description has every byte outside the members' data: headers with times and checksums, and the central directory.
For the data of a member it has the level of zlib that gives the same bytes, or None if the data is stored.
"""

from __future__ import annotations

import base64
import io
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

from aotcuda.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping

_LENGTHS = struct.Struct("<HH")
_LENGTHS_AT, _HEADER = 26, 30
"""The offset of two lengths in a local header (of its name and its extra field), and the size of the header."""

_LEVELS = (-1, 9, 1, 2, 3, 4, 5, 7, 8)
"""All levels, the usual ones first; -1 is 6."""


def describe(data: bytes, where: str) -> dict[str, Any]:
    """Describe an archive.

    `members` has each member's name and level. `between` has the number of bytes before each member's data and after
    the last. `headers` has these bytes, compressed by zlib, in Base64.

    Raises:
        TargetError: The zlib of this Python does not give the same bytes.
    """
    members, parts, position = [], [], 0
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
            lengths = _LENGTHS.unpack_from(data, info.header_offset + _LENGTHS_AT)
            start = info.header_offset + _HEADER + sum(lengths)
            end = start + info.compress_size
            members.append((info.filename, _level(archive.read(info), data[start:end], f"{where}: {info.filename}")))
            parts.append(data[position:start])
            position = end
    parts.append(data[position:])
    headers = base64.b64encode(zlib.compress(b"".join(parts), 9)).decode()
    return {"members": members, "between": [len(part) for part in parts], "headers": headers}


def make(description: Mapping[str, Any], contents: Mapping[str, bytes]) -> bytes:
    """Return the archive of a description, with the contents of its members."""
    headers, pieces, position = zlib.decompress(base64.b64decode(description["headers"])), [], 0
    for length, (name, level) in zip(description["between"], [*description["members"], ("", None)], strict=True):
        pieces += [headers[position : position + length], _compress(contents[name], level) if name else b""]
        position += length
    return b"".join(pieces)


def _level(content: bytes, compressed: bytes, where: str) -> int | None:
    """Return the level of zlib that compresses a content to these bytes; None for stored content."""
    if compressed == content:
        return None
    for level in _LEVELS:
        if _compress(content, level) == compressed:
            return level
    message = (
        f"{where} was not compressed by the zlib {zlib.ZLIB_RUNTIME_VERSION} of this Python, so a split "
        "could not be undone; split the wheel with the Python that built it"
    )
    raise TargetError(message)


def _compress(content: bytes, level: int | None) -> bytes:
    if level is None:
        return content
    compressor = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return compressor.compress(content) + compressor.flush()
