"""Read fatbins: NVIDIA's containers of images for several architectures.

NVIDIA publishes no description of the format. The facts below were observed in the output of nvFatbin 13.0 for each of
its options; the tests compare the results with cuobjdump. All numbers are little-endian.

A fatbin is one container or several in a row. A container is a header of 16 bytes (magic, version 1, the header's own
size, size of the rest) and entries. An entry is a header, at least 64 bytes long, and a payload padded to 8 bytes:

    0  u16 kind: 1 PTX, 2 cubin, 8 LTOIR      28  u32 compute capability: 90
    2  u16 version 0x101                      32  u32 offset and u32 length of the name, in the header
    4  u32 size of this header                40  u64 flags
    8  u64 size of the payload                48  u64 key of an obfuscated payload
    16 u32 compressed size, 0 for none        56  u64 size before compression
    20 u32 offset of the compiler's options
    24 u16 minor, u16 major version of the code

Payloads are uncompressed, one LZ4 block, or one Zstandard frame. nvFatbin strips comments and indentation from PTX. It
obfuscates LTOIR when it compresses it, so only the sizes of LTOIR are read.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from aotcuda.binary.limit import Limit, TooMuchError
from aotcuda.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"\x50\xed\x55\xba"

_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQII4xIIIQ8xQ")
_VERSION = 1
_KINDS: dict[int, Literal["sass", "ptx", "ltoir"]] = {1: "ptx", 2: "sass", 8: "ltoir"}
_LZ4 = 0x2000
_ZSTD = 0x8000
_SUFFIXES = {0x100000: "a", 0x200000: "f"}

_PADDING = re.compile(rb"\0*")
_LZ4_MAX_RATIO = 255
"""A byte of an LZ4 block represents at most 255 bytes. A larger claimed size is refused before allocation."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One image in a fatbin.

    Attributes:
        arch: Its target: `sm_90a` for machine code and LTOIR, `compute_75` for PTX.
        kind: `sass`, `ptx` or `ltoir`.
        name: The name from the packer.
        size: Its size in bytes before compression; with the padding to 8 bytes for uncompressed LTOIR.
        packed: Its size in bytes in the fatbin.
        content: The image itself; empty for LTOIR.
    """

    arch: str
    kind: Literal["sass", "ptx", "ltoir"]
    name: str
    size: int
    packed: int
    content: bytes = field(repr=False)


class _DamageError(Exception):
    """A fatbin is damaged."""


def read(data: bytes, where: str) -> tuple[Entry, ...]:
    """Return the images in a fatbin, in file order.

    Args:
        data: The whole file.
        where: Its name in errors.

    Raises:
        ImageError: It is no fatbin, was truncated or altered, has a newer version, or has too many bytes when it is
            unpacked; or the extra `inspect`, which decompresses images, is not installed.
    """
    return tuple(entries(data, where, Limit(len(data))))


def entries(data: bytes, where: str, limit: Limit) -> Iterator[Entry]:
    """Yield the images that `read` returns one after another, so that only one is in memory.

    Raises:
        ImageError: As for `read`, when the damaged image is reached.
    """
    try:
        yield from _read_containers(data, where, limit)
    except _DamageError as error:
        message = f"{where} cannot be read as a fatbin: {error}"
    else:
        return
    raise ImageError(message)


def _read_containers(data: bytes, where: str, limit: Limit) -> Iterator[Entry]:
    position = 0
    while True:
        magic, version, header_size, size = _unpack(_CONTAINER, data, position, len(data))
        if magic != int.from_bytes(MAGIC, "little"):
            message = f"there is no container at byte {position}"
            raise _DamageError(message)
        if version != _VERSION:
            message = f"its container has version {version}, and this aotcuda reads {_VERSION}; upgrade aotcuda"
            raise _DamageError(message)
        end = position + header_size + size
        if header_size < _CONTAINER.size or end > len(data):
            message = f"its container ends at byte {end}, the data at {len(data)}; it was truncated or altered"
            raise _DamageError(message)
        yield from _read_entries(data, position + header_size, end, where, limit)
        position = _PADDING.match(data, end).end()  # type: ignore[union-attr] # sections of object files are padded
        if position == len(data):
            return


def _read_entries(data: bytes, position: int, stop: int, where: str, limit: Limit) -> Iterator[Entry]:
    """Yield the entries of a container from `position` to `stop`."""
    for start, _, header in _read_headers(data, position, stop):
        code, _, header_size, payload_size, compressed, _, _, name_at, name_size, flags, size = header
        kind, arch, payload_at = _KINDS[code], _arch(header), start + header_size
        payload = data[payload_at : payload_at + (compressed or payload_size)]
        label = f"{where}: the {kind} image for {arch}"
        content = b"" if kind == "ltoir" else _decompress(payload, flags, size, label, limit)
        yield Entry(
            arch=arch,
            kind=kind,
            name=data[start + name_at : min(start + name_at + name_size, payload_at)].decode(errors="backslashreplace"),
            size=size if compressed else len(content or payload),
            packed=len(payload),
            content=content,
        )


def _read_headers(data: bytes, position: int, stop: int) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield start, end and header of each entry."""
    while position < stop:
        header = _unpack(_ENTRY, data, position, stop)
        code, _, header_size, payload_size, compressed, *_ = header
        end = position + header_size + payload_size
        if header_size < _ENTRY.size or end > stop or compressed > payload_size:
            message = f"its entry at byte {position} does not fit into it; it was truncated or altered"
            raise _DamageError(message)
        if code not in _KINDS:
            message = f"its entry at byte {position} has a kind ({code}) that this aotcuda cannot read"
            raise _DamageError(message)
        yield position, end, header
        position = end


def _arch(header: tuple[int, ...]) -> str:
    """Return the target of an entry, by its header."""
    code, _, _, _, _, _, number, _, _, flags, _ = header
    suffix = "".join(suffix for flag, suffix in _SUFFIXES.items() if flags & flag)
    return f"{'compute' if _KINDS[code] == 'ptx' else 'sm'}_{number}{suffix}"


def _decompress(payload: bytes, flags: int, size: int, where: str, limit: Limit) -> bytes:
    if not flags & (_LZ4 | _ZSTD):
        return payload
    is_possible = flags & _ZSTD or size <= len(payload) * _LZ4_MAX_RATIO
    try:
        if is_possible:
            limit.add(size)
        unpack = _unpack_zstd if flags & _ZSTD else _unpack_lz4
        content = unpack(payload, size) if is_possible else b""
    except TooMuchError as error:
        message = f"{where} {error}"
        raise ImageError(message) from None
    except ImportError:
        message = f"{where} is compressed; to read it, install the packages for that: pip install 'aotcuda[inspect]'"
        raise ImageError(message) from None
    if not content or len(content) != size:
        message = f"{where} does not decompress to the {size} bytes that its header names; it was altered"
        raise ImageError(message)
    return content


def _unpack_zstd(payload: bytes, size: int) -> bytes:
    """Return up to one byte more than `size`; nothing if the frame is damaged."""
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 (Python 3.14)
    except ImportError:
        from backports import zstd  # noqa: PLC0415 (an extra)
    try:
        content: bytes = zstd.ZstdDecompressor().decompress(payload, size + 1)
    except (zstd.ZstdError, MemoryError):
        return b""
    return content


def _unpack_lz4(payload: bytes, size: int) -> bytes:
    """Return the content of an LZ4 block; nothing if it is damaged."""
    from lz4 import block  # noqa: PLC0415 (an extra)

    try:
        content: bytes = block.decompress(payload, uncompressed_size=size)
    except (block.LZ4BlockError, OverflowError, MemoryError):
        return b""
    return content


def _unpack(layout: struct.Struct, data: bytes, position: int, stop: int) -> tuple[int, ...]:
    if position + layout.size > stop:
        message = f"it ends inside the header at byte {position}; it was truncated"
        raise _DamageError(message)
    return layout.unpack_from(data, position)
