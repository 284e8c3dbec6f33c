"""Make inputs of at most 16 MB that could break `aotcuda inspect`; no compiler makes such files."""

from __future__ import annotations

import io
import json
import os
import struct
import warnings
import zipfile
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from support import manifests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

MANIFEST = "mypkg/kernels.aotcuda/manifest.json"
_PTX, _SASS = 1, 2
_LZ4, _ZSTD = 0x2000, 0x8000
_SYMBOLS, _STRINGS = 2, 3


class Input(NamedTuple):
    """A file: its suffix, its content for a size in bytes, and the error of `inspect`; empty for a report."""

    suffix: str
    content: Callable[[int], bytes]
    error: str


# Containers


def fatbin(*entries: bytes) -> bytes:
    """Return one container with entries."""
    return manifests.fatbin([*entries])


def entry(kind: int, payload: bytes, *, flags: int = 0, size: int = 0) -> bytes:
    """Return an entry of a fatbin; `size` is its claimed size without compression."""
    padded = payload + bytes(-len(payload) % 8)
    compressed = len(payload) if flags else 0
    return struct.pack("<HHIQII4xIIIQ8xQ", kind, 0x101, 64, len(padded), compressed, 0, 90, 0, 0, flags, size) + padded


def elf(*sections: tuple[bytes, int, bytes, int]) -> bytes:
    """Return a cubin of sections (name, type, content, link); `.shstrtab` is added as the last one."""
    names, headers = b"\0", [bytes(64)]
    offset, chunks = 64, []
    for name, kind, content, link in (*sections, (b".shstrtab", _STRINGS, b"", 0)):
        start = len(names)
        names += name + b"\0"
        chunks.append(names if name == b".shstrtab" else content)
        headers.append(struct.pack("<II16xQQI20x", start, kind, offset, len(chunks[-1]), link))
        offset += len(chunks[-1])
    identity = b"\x7fELF\x02\x01\x01\x33\x08" + bytes(7)
    fields = (2, 190, 1, 0, 0, offset, 90 << 8, 64, 0, 0, 64, len(headers), len(headers) - 1)
    return identity + struct.pack("<HHIQQQIHHHHHH", *fields) + b"".join([*chunks, *headers])


def with_functions(names: Iterable[bytes], *more: tuple[bytes, int, bytes, int], kernel: bool = True) -> bytes:
    """Return a cubin of functions with these names."""
    strings, symbols = bytearray(b"\0"), []
    for name in names:
        symbols.append(struct.pack("<IBBH16x", len(strings), 0x12, 0x10 if kernel else 0, 1))
        strings += name + b"\0"
    return elf((b".strtab", _STRINGS, bytes(strings), 0), (b".symtab", _SYMBOLS, b"".join(symbols), 1), *more)


def function(**changes: Any) -> dict[str, Any]:
    """Return a device function of a manifest."""
    return {"name": "f", "origin": "m:f", "signature": "int32()", "abi": "c", "prototype": "int f();", **changes}


def text(**changes: Any) -> bytes:
    """Return the manifest of a module without kernels and functions; `changes` replace its keys."""
    return json.dumps(manifests.make(**changes)).encode()


def wheel(members: Iterable[tuple[str, bytes]], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a wheel of these members."""
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", compression) as archive:
        warnings.simplefilter("ignore")  # zipfile warns of equal names
        for name, data in members:
            archive.writestr(name, data)
    return stream.getvalue()


def raw_wheel(packed: bytes, size: int, method: int, *, flags: int = 0, crc: int = 0) -> bytes:
    """Return a wheel of one manifest, with a claimed size, method, flags and checksum."""
    name = MANIFEST.encode()
    fixed = struct.pack("<HHHHHIIIHH", 20, flags, method, 0, 33, crc, len(packed), min(size, 2**32 - 2), len(name), 0)
    local = b"PK\3\4" + fixed + name
    central = b"PK\1\2" + struct.pack("<H", 20) + fixed + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    end = struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local) + len(packed), 0)
    return local + packed + central + b"PK\5\6" + end


# Contents


def _overlapping_sections(size: int) -> bytes:
    count = min(size // 200, 30_000)
    data = bytearray(elf(*[(b".text.k%d" % number, 1, b"", 0) for number in range(count)]))
    (table,) = struct.unpack_from("<Q", data, 40)
    data += bytes(size - len(data))
    for number in range(1, count):
        struct.pack_into("<QQ", data, table + 64 * number + 24, 0, size)
    return bytes(data)


def _overlapping_names(size: int) -> bytes:
    """Return a cubin whose symbols all have names that end with the same 60 kB."""
    strings = b"\0" + b"k" * 60_000 + b"\0"
    symbols = [struct.pack("<IBBH16x", 1 + at % 30_000, 0x12, 0x10, 1) for at in range((size - len(strings)) // 25)]
    return elf((b".strtab", _STRINGS, strings, 0), (b".symtab", _SYMBOLS, b"".join(symbols), 1))


def _many_symbols() -> bytes:
    import lz4.block

    image = elf(
        (b".strtab", _STRINGS, b"\0k\0", 0),
        (b".symtab", _SYMBOLS, struct.pack("<IBBH16x", 1, 0x12, 0, 1) * 1_000_001, 1),
    )
    packed = lz4.block.compress(image, store_size=False)
    return entry(_SASS, packed, flags=_LZ4, size=len(image))


def doubling_name(_: int) -> bytes:
    """Return a cubin with a mangled name whose demangled form doubles with each part, and an ordinary name."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    references = [f"S{digits[at % 36] if at < 36 else digits[at // 36] + digits[at % 36]}_" for at in range(60)]
    name = "_Z1f1AIiiE" + "".join(f"S_I{reference}{reference}E" for reference in references)
    return with_functions([name.encode(), b"_Z5scalePfi"])


def _zstd_bomb(total: int) -> bytes:
    """Return an image with a frame of blocks that each repeat one byte, to 128 KiB."""
    head = (128 << 10) << 3 | 1 << 1
    block, last = (struct.pack("<I", flags)[:3] + b"\0" for flags in (head, head | 1))
    frame = b"\x28\xb5\x2f\xfd\x00\x38" + block * (total // (128 << 10) - 1) + last
    return entry(_SASS, frame, flags=_ZSTD, size=total)


def large_images(_: int) -> bytes:
    """Return a fatbin of images, each of which is within the limit."""
    return fatbin(*[_zstd_bomb(200 << 20)] * 1000)


def _manifest_of_gigabytes(size: int) -> bytes:
    compressor = zlib.compressobj(1, zlib.DEFLATED, -15)
    count = size // 40_000  # of 16 MiB
    packed = b"".join(compressor.compress(b" " * (16 << 20)) for _ in range(count)) + compressor.flush()
    return raw_wheel(packed, count << 24, 8)


def _json_bomb(size: int) -> bytes:
    count = (size - 4000) // 3
    options = b'"options": {"x": [' + b"{}," * count + b"{}]}"
    return _with_manifest(text().replace(b'"options": {}', options))


def _of_functions(size: int) -> bytes:
    return with_functions((b"f%d" % number for number in range(size // 32)), kernel=False)


def _with_manifest(data: bytes) -> bytes:
    return wheel([(MANIFEST, data)])


def _with_fatbin(path: str) -> bytes:
    return _with_manifest(text(fatbins=[{"file": manifests.file(path, b"x"), "images": []}]))


_UNREADABLE = "is not a readable manifest"
_NOT_A_CUBIN = "cannot be read as a cubin"
_OTHER_SIZE = "does not decompress to the "
_TOO_MANY_BYTES = "holds more than 268,435,456 bytes when it is unpacked"
_TOO_LARGE = "aotcuda reads 16,777,216 at most"
_COMMANDS = b"\x1b[2J\x1b]0;owned\x07\r\nline \xe2\x80\xaegnirts\xc2\x9b31m"

INPUTS: dict[str, Input] = {
    "ptx: comments that do not end": Input(".fatbin", lambda size: fatbin(entry(_PTX, b"/* " * (size // 3))), ""),
    "cubin: overlapping sections": Input(".cubin", _overlapping_sections, _NOT_A_CUBIN),
    "cubin: many functions": Input(".cubin", _of_functions, ""),
    "cubin: names that overlap": Input(".cubin", _overlapping_names, _NOT_A_CUBIN),
    "fatbin: LZ4 of many symbols": Input(".fatbin", lambda _: fatbin(_many_symbols()), _NOT_A_CUBIN),
    "cubin: names that command a terminal": Input(".cubin", lambda _: with_functions([_COMMANDS, b"\xff\xfek"]), ""),
    "cubin: a mangled name that doubles": Input(".cubin", doubling_name, ""),
    "fatbin: Zstandard of 4 GiB": Input(".fatbin", lambda _: fatbin(_zstd_bomb(4 << 30)), _TOO_MANY_BYTES),
    "fatbin: large images": Input(".fatbin", large_images, "the image for sm_90 is not a cubin"),
    "fatbin: LZ4 that claims 255 MiB": Input(
        ".fatbin", lambda size: fatbin(entry(_SASS, bytes(size - 200), flags=_LZ4, size=255 << 20)), _OTHER_SIZE
    ),
    "fatbin: a container of 2**64 bytes": Input(
        ".fatbin", lambda _: struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 2**64 - 1) + bytes(1000), "truncated"
    ),
    "manifest: many objects": Input(".whl", _json_bomb, ""),
    "manifest: deep": Input(".whl", lambda size: _with_manifest(b"[" * (size // 2)), _UNREADABLE),
    "manifest: names that command a terminal": Input(
        ".whl", lambda _: _with_manifest(text(module="\x1b[2J\nmypkg", toolchain={"\x07": "\r"})), ""
    ),
    "wheel: a manifest of 6 GB": Input(".whl", _manifest_of_gigabytes, _TOO_LARGE),
    "wheel: a manifest that claims 1000 bytes": Input(
        ".whl", lambda size: raw_wheel(zlib.compress(b" " * 64 * size, 1)[2:-4], 1000, 8), "cannot be unpacked"
    ),
    "wheel: a manifest twice": Input(
        ".whl", lambda _: wheel([(MANIFEST, text()), (MANIFEST, text())]), "is in the wheel more than once"
    ),
    "wheel: encrypted": Input(
        ".whl", lambda _: raw_wheel(text(), len(text()), 0, flags=1, crc=zlib.crc32(text())), "is encrypted"
    ),
    "wheel: bzip2": Input(
        ".whl",
        lambda size: wheel([(MANIFEST, b" " * size)], zipfile.ZIP_BZIP2),
        "has a compression that wheels do not use (12)",
    ),
    "wheel: names that lead out of it": Input(
        ".whl",
        lambda _: wheel([("../../x.aotcuda/manifest.json", text())]),
        "has a file whose name leads out of it: ../../x.aotcuda/manifest.json",
    ),
    "wheel: a fatbin elsewhere": Input(
        ".whl", lambda _: _with_fatbin("../../../../etc/passwd"), "'../../../../etc/passwd' is no file name"
    ),
}


# Files that are no regular files


def _holes(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _manifest(path: Path) -> None:
    path.write_bytes(text())


class Tree(NamedTuple):
    """A folder: the path in it to inspect, the function that makes each file, and the error of `inspect`."""

    target: str
    files: dict[str, Callable[[Path], object]]
    error: str


TREES: dict[str, Tree] = {
    "a manifest that is a pipe": Tree("", {MANIFEST: os.mkfifo}, "manifest.json is a pipe, not a regular file"),
    "a manifest of a tebibyte": Tree("", {MANIFEST: _holes}, "has 1,099,511,627,776 bytes, and " + _TOO_LARGE),
    "folders in a circle": Tree("", {"a/up": lambda path: path.symlink_to("..")}, "holds no module that aotcuda built"),
    "a folder whose name commands a terminal": Tree("", {"\x1b[2J\n\udcff.aotcuda/manifest.json": _manifest}, ""),
}
NAMES = {
    "a" * 5000: "cannot be read (File name too long)",
    "\x1b[2J.whl\nsecond line": r"importable module \x1b[2J.whl\nsecond line",
}
"""Targets that do not exist, and the errors of `inspect`."""

ALL = (*INPUTS, *TREES, *NAMES)


def make(name: str, folder: Path, size: int) -> tuple[str, str]:
    """Write one of the inputs below `folder`. Return the target to inspect, and the error or an empty text."""
    if name in NAMES:
        return name, NAMES[name]
    if name in TREES:
        tree = TREES[name]
        for file, write in tree.files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            write(folder / file)
        return str(folder / tree.target), tree.error
    suffix, content, error = INPUTS[name]
    path = folder / f"input{suffix}"
    path.write_bytes(content(size))
    return str(path), error
