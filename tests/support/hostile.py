"""Inputs made to break `aotcuda inspect`: what each claims, repeats or hides, in at most 16 MB.

They are made of nothing but bytes, so no compiler is needed; `size` says how large the large ones are. A maker writes
into a folder and gives back the target to inspect.
"""

from __future__ import annotations

import _ctypes
import contextlib
import functools
import io
import json
import os
import random
import socket
import struct
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support import manifests as records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Maker = Callable[[Path, int], str]

LARGEST = 16_000_000
MAKERS: dict[str, Maker] = {}
_PTX, _SASS, _LTOIR = 1, 2, 8
_LZ4, _ZSTD = 0x2000, 0x8000
_SYMBOLS, _STRINGS, _NO_BYTES = 2, 3, 8


def _file(suffix: str) -> Callable[[Callable[[int], bytes]], Callable[[int], bytes]]:
    """Return a decorator of a function that returns a file's bytes."""

    def decorate(content: Callable[[int], bytes]) -> Callable[[int], bytes]:
        _files(suffix, {content.__name__.replace("_", " "): content})
        return content

    return decorate


def _files(suffix: str, contents: dict[str, Callable[[int], bytes]]) -> None:
    """Add makers of files with a suffix, each by its name and the function that returns its bytes."""
    for name, content in contents.items():
        MAKERS[name] = functools.partial(_write, suffix, content)


def _write(suffix: str, content: Callable[[int], bytes], folder: Path, size: int) -> str:
    path = folder / f"input{suffix}"
    path.write_bytes(content(size))
    return str(path)


# Containers


def fatbin(*entries: bytes) -> bytes:
    """One container of such entries."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def entry(kind: int, payload: bytes, *, flags: int = 0, size: int = 0, number: int = 90, compressed: int = 0) -> bytes:
    """Return an entry; `size` is what it claims to unpack to."""
    padded = payload.ljust(len(payload) + -len(payload) % 8, b"\0")
    compressed = compressed or (len(payload) if flags else 0)
    fixed = struct.pack("<HHIQII4xIIIQ8xQ", kind, 0x101, 64, len(padded), compressed, 0, number, 0, 0, flags, size)
    return fixed + padded


def elf(
    sections: Iterable[tuple[bytes, int, bytes, int]],
    *,
    abi: int = 8,
    flags: int = 90 << 8,
    count: int | None = None,
    first: tuple[int, int] = (0, 0),
) -> bytes:
    """Return a cubin of sections (name, type, content, link); `.shstrtab` is added as the last one."""
    names, placed = b"\0", [struct.pack("<II16xQQI20x", 0, 0, 0, *first)]
    parts = [*sections, (b".shstrtab", _STRINGS, b"", 0)]
    offset, chunks = 64, []
    for name, kind, content, link in parts:
        at = len(names)
        names += name + b"\0"
        chunks.append(names if name == b".shstrtab" else content)
        placed.append(struct.pack("<II16xQQI20x", at, kind, offset, len(chunks[-1]), link))
        offset += len(chunks[-1])
    body = b"".join(chunks)
    number = len(placed) if count is None else count
    header = b"\x7fELF\x02\x01\x01\x33" + bytes([abi]) + bytes(7)
    header += struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, offset, flags, 64, 0, 0, 64, number, len(placed) - 1)
    return header + body + b"".join(placed)


def symbol(name: int, *, kernel: bool = True) -> bytes:
    """Return a global function."""
    return struct.pack("<IBB18x", name, 0x12, 0x10 if kernel else 0)


def with_functions(names: Iterable[bytes], *more: tuple[bytes, int, bytes, int], kernel: bool = True) -> bytes:
    """Return a cubin of functions with these names."""
    strings, symbols = bytearray(b"\0"), []
    for name in names:
        symbols.append(symbol(len(strings), kernel=kernel))
        strings += name + b"\0"
    return elf([(b".strtab", _STRINGS, bytes(strings), 0), (b".symtab", _SYMBOLS, b"".join(symbols), 1), *more])


def function(**changes: Any) -> dict[str, Any]:
    """Return a device function of a manifest."""
    return {"name": "f", "origin": "m:f", "signature": "int32()", "abi": "c", "prototype": "int f();", **changes}


def text(**changes: Any) -> bytes:
    """Return the bytes of a manifest of a module with nothing in it, but for `changes`."""
    return json.dumps(records.whole(**changes)).encode()


def wheel(members: Iterable[tuple[str, bytes]], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a wheel of these members."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return stream.getvalue()


_NAME = "mypkg/kernels.aotcuda/manifest.json"


def _listed(data: bytes, path: str = "kernels.fatbin", **changes: Any) -> dict[str, Any]:
    return records.file(path, data) | changes


# PTX


def _ptx(unit: bytes, most: int = LARGEST, head: bytes = b"") -> Callable[[int], bytes]:
    return lambda size: fatbin(entry(_PTX, head + unit * ((min(size, most) - 200) // len(unit))))


_files(
    ".fatbin",
    {
        "ptx of comments that never end, 180 kB": _ptx(b"/* ", 180_000),
        "ptx of comments that never end": _ptx(b"/* "),
        "ptx of entries without names": _ptx(b".entry//\n"),
        "ptx of one kernel many times": _ptx(b".entry k "),
        "ptx of a name of megabytes": _ptx(b"k", head=b".entry "),
        "ptx of many kernels": lambda size: fatbin(
            entry(_PTX, b"".join(b".entry k%d(" % n for n in range(size // 20)))
        ),
    },
)


# Cubins


@_file(".cubin")
def elf_of_one_name_for_40000_symbols(size: int) -> bytes:
    name = b"k" * 60_000
    info = struct.pack("<BBHI", 4, 0x2F, 4, 0) * (max(size - 40_000 * 24 - 300_000, 8000) // 8)
    strings = (b".strtab", _STRINGS, b"\0" + name + b"\0", 0)
    return elf([strings, (b".symtab", _SYMBOLS, symbol(1) * 40_000, 1), (b".nv.info." + name, 1, info, 0)])


@_file(".cubin")
def elf_of_names_that_are_ends_of_one_another(size: int) -> bytes:
    count = 300_000 * size // LARGEST
    symbols = b"".join(symbol(1 + number % 60_000) for number in range(count))
    return elf([(b".strtab", _STRINGS, b"\0" + b"k" * 60_000 + b"\0", 0), (b".symtab", _SYMBOLS, symbols, 1)])


@_file(".cubin")
def elf_of_sections_over_each_other(size: int) -> bytes:
    count = min(size // 200, 30_000)
    data = bytearray(elf([(b".text.k%d" % number, 1, b"", 0) for number in range(count)]))
    (table,) = struct.unpack_from("<Q", data, 40)
    data += bytes(size - len(data))
    for number in range(1, count):
        struct.pack_into("<QQ", data, table + 64 * number + 24, 0, size)
    return bytes(data)


@_file(".cubin")
def elf_of_info_sections_over_each_other(size: int) -> bytes:
    names = [b"k%d" % number for number in range(min(size // 400, 10_000))]
    data = bytearray(with_functions(names, *[(b".nv.info." + name, 1, b"", 0) for name in names]))
    (table,) = struct.unpack_from("<Q", data, 40)
    start = len(data)
    data += struct.pack("<BBHI", 4, 0x19, 4, 0) * ((size - len(data)) // 8)
    for number in range(3, 3 + len(names)):
        struct.pack_into("<QQ", data, table + 64 * number + 24, start, len(data) - start)
    return bytes(data)


@_file(".cubin")
def elf_of_parameters(size: int) -> bytes:
    info = struct.pack("<BBHIHHI", 4, 0x17, 12, 0, 1, 2, 3) * (size // 16 - 200)
    return with_functions([b"k"], (b".nv.info.k", 1, info, 0))


@_file(".cubin")
def elf_whose_tables_lie_at_the_end_of_64_bits(size: int) -> bytes:
    data = bytearray(elf([]))
    struct.pack_into("<QQ", data, 32, 2**64 - 1, 2**64 - 1)
    return bytes(data)


@_file(".cubin")
def elf_of_a_mangled_name_that_doubles(size: int) -> bytes:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    references = [f"S{digits[at % 36] if at < 36 else digits[at // 36] + digits[at % 36]}_" for at in range(60)]
    name = "_Z1f1AIiiE" + "".join(f"S_I{reference}{reference}E" for reference in references)
    return with_functions([name.encode(), b"_Z5scalePfi"])


@_file(".cubin")
def elf_of_deep_mangled_names(size: int) -> bytes:
    depth = min(size // 4, 1_000_000)
    return with_functions([b"_Z1f" + b"P" * depth + b"i", b"_Z" + b"N" * depth, b"_Z1f" + b"P" * 4000 + b"i"])


_files(
    ".cubin",
    {
        "elf of many kernels": lambda size: with_functions(b"k%d" % number for number in range(size // 32)),
        "elf of as many kernels as may be": lambda size: with_functions(b"k%d" % number for number in range(30_000)),
        "elf of many functions": lambda size: with_functions(
            (b"f%d" % number for number in range(size // 32)), kernel=False
        ),
        "elf of attributes": lambda size: elf([(b".nv.info", 1, bytes([3, 1, 0, 0]) * (size // 4 - 200), 0)]),
        "elf of a truncated attribute": lambda size: with_functions([b"k"], (b".nv.info.k", 1, b"\4\x17\x0c", 0)),
        "elf that counts 4294967296 sections": lambda size: elf(
            [(b".text.k", 1, bytes(100), 0)], count=0, first=(2**32, 0)
        ),
        "elf of names that are no text": lambda size: with_functions([b"\xff\xfe\x80k", b"k\xed\xa0\x80"]),
        "elf of names that command a terminal": lambda size: with_functions(
            [b"\x1b[2J\x1b]0;owned\x07", b"two\nlines\r", "\u202egnirts".encode(), b"\xc2\x9b31m"]
        ),
        "elf of many mangled names": lambda size: with_functions(
            b"_Z%df%dPfi" % (1 + len(str(number)), number) for number in range(20_000)
        ),
        "elf for another machine": lambda size: elf([]).replace(
            struct.pack("<HHI", 2, 190, 1), struct.pack("<HHI", 2, 62, 1), 1
        ),
    },
)


# Fatbins


def _zstd_entry(kind: int, data: bytes, claimed: int | None = None) -> bytes:
    import sys

    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    return entry(kind, zstd.compress(data, 1), flags=_ZSTD, size=len(data) if claimed is None else claimed)


def _zstd_bomb(total: int) -> bytes:
    """Return a frame of blocks that each repeat one byte 128 KiB times."""
    blocks = total // (128 << 10)
    block = struct.pack("<I", (128 << 10) << 3 | 1 << 1)[:3] + b"\0"
    last = struct.pack("<I", (128 << 10) << 3 | 1 << 1 | 1)[:3] + b"\0"
    return b"\x28\xb5\x2f\xfd\x00\x38" + block * (blocks - 1) + last


@_file(".fatbin")
def zstandard_images_of_200_mebibytes_each(size: int) -> bytes:
    return fatbin(*[entry(_SASS, _zstd_bomb(200 << 20), flags=_ZSTD, size=200 << 20)] * 1000)


@_file(".fatbin")
def zstandard_cubins_of_many_kernels(size: int) -> bytes:
    code = with_functions(b"k%d" % number for number in range(10_000))
    return fatbin(*[_zstd_entry(_SASS, code)] * 200)


@_file(".fatbin")
def lz4_of_zeros(size: int) -> bytes:
    from lz4 import block

    return fatbin(entry(_SASS, block.compress(bytes(250 << 20), store_size=False), flags=_LZ4, size=250 << 20))


@_file(".fatbin")
def fatbin_of_fatbins(size: int) -> bytes:
    data = fatbin(entry(_SASS, elf([])))
    for _ in range(20_000):
        data = fatbin(entry(_SASS, data)) if len(data) < size // 2 else data
    return data


@_file(".fatbin")
def fatbin_of_a_header_of_no_bytes(size: int) -> bytes:
    data = bytearray(fatbin(entry(_SASS, bytes(100))))
    struct.pack_into("<I", data, 16 + 4, 0)
    return bytes(data)


_files(
    ".fatbin",
    {
        "zstandard of 131 kilobytes that is 4 gibibytes": lambda size: fatbin(
            entry(_SASS, _zstd_bomb(4 << 30), flags=_ZSTD, size=4 << 30)
        ),
        "zstandard that claims little and is 4 gibibytes": lambda size: fatbin(
            entry(_SASS, _zstd_bomb(4 << 30), flags=_ZSTD, size=1 << 20)
        ),
        "zstandard of as much as may be": lambda size: fatbin(
            entry(_SASS, _zstd_bomb(256 << 20), flags=_ZSTD, size=256 << 20)
        ),
        "zstandard cubin of attributes": lambda size: fatbin(
            _zstd_entry(_SASS, elf([(b".nv.info", 1, bytes([3, 1, 0, 0]) * (50 << 20), 0)]))
        ),
        "lz4 that claims 255 times its size": lambda size: fatbin(
            entry(_SASS, bytes(size - 200), flags=_LZ4, size=(size - 200) * 255)
        ),
        "lz4 that claims as much as may be": lambda size: fatbin(
            entry(_SASS, bytes(size - 200), flags=_LZ4, size=255 << 20)
        ),
        "fatbin of padding": lambda size: fatbin() + bytes(size - 16),
        "fatbin of as many images as may be": lambda size: fatbin(entry(_LTOIR, b"ltoir") * 100_000),
        "fatbin of one kernel in many images": lambda size: fatbin(entry(_PTX, b".entry k(") * (size // 80 - 1)),
        "fatbin whose container is 64 bits long": lambda size: (
            struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 2**64 - 1) + bytes(1000)
        ),
        "fatbin of both compressions": lambda size: fatbin(entry(_SASS, b"code", flags=_LZ4 | _ZSTD, size=4)),
    },
)


# Wheels


@_file(".whl")
def wheel_whose_manifest_unpacks_to_6_gigabytes(size: int) -> bytes:
    compressor = zlib.compressobj(1, zlib.DEFLATED, -15)
    piece = b" " * (16 << 20)
    packed = b"".join(compressor.compress(piece) for _ in range(6 * 64 * size // LARGEST)) + compressor.flush()
    return _raw_wheel(_NAME, packed, 6 * 64 * (16 << 20) * size // LARGEST, 8)


def _raw_wheel(name: str, packed: bytes, size: int, method: int, *, flags: int = 0, crc: int = 0) -> bytes:
    """Return a wheel of one member, whatever it says of itself."""
    size = min(size, 2**32 - 2)
    fixed = struct.pack("<HHHHHIIIHH", 20, flags, method, 0, 33, crc, len(packed), size, len(name), 0)
    local = b"PK\3\4" + fixed + name.encode()
    central = b"PK\1\2" + struct.pack("<H", 20) + fixed + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name.encode()
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local) + len(packed), 0)
    return local + packed + central + end


@_file(".whl")
def wheel_whose_manifest_claims_less_than_it_is(size: int) -> bytes:
    packed = zlib.compress(b" " * (1 << 30), 1)[2:-4] if size == LARGEST else zlib.compress(b" " * size, 1)[2:-4]
    return _raw_wheel(_NAME, packed, 1000, 8)


def _json_bomb(unit: bytes, most: int = LARGEST) -> Callable[[int], bytes]:
    """Return a function that makes a manifest with a list of as many such values as fit."""

    def make(size: int) -> bytes:
        count = (min(size, most) - 4000) // (len(unit) + 1)
        inner = b"[" + b",".join([unit] * count) + b"]"
        return text().replace(b'"options": {}', b'"options": {"bomb": ' + inner + b"}")

    return make


_MANIFESTS: dict[str, Callable[[int], bytes]] = {
    "manifest of empty objects": _json_bomb(b"{}"),
    "manifest of small objects": _json_bomb(b'{"":0}'),
    "manifest of as many objects as may be": _json_bomb(b'{"":0}', 7_000_000),
    "manifest of as many strings as may be": _json_bomb(b'"abc"', 11_000_000),
    "manifest nested deeply": lambda size: b"[" * (size // 2),
    "manifest nested as deeply as may be": lambda size: text(options={}).replace(b"{}", b"[" * 900 + b"]" * 900, 1),
    "manifest of a number of 4000 digits": lambda size: text(images=[{"bytes": 10**4000}]),
    "manifest of the format infinity": lambda size: text().replace(b'"format": 1', b'"format": 1e999'),
    "manifest of the format true": lambda size: text(format=True),
    "manifest of a newer format of many digits": lambda size: text(format=10**4000),
    "manifest of keys twice": lambda size: text().replace(b'"options": {}', b'"options": {}, "options": []'),
    "manifest of half surrogates": lambda size: text(module="\ud800", functions=[function(name="\udfff\ud800")]),
    "manifest of names that command a terminal": lambda size: text(module="\x1b[2J\nmypkg", toolchain={"\x07": "\r"}),
    "manifest of names that are numbers": lambda size: text(module=7, functions=[function(name=3)]),
    "manifest of names that are null": lambda size: text(module=None),
    "manifest in UTF-16": lambda size: text().decode().encode("utf-16"),
    "manifest that is no UTF-8": lambda size: text().replace(b"mypkg", b"my\xffpkg"),
    "manifest that is a list": lambda size: b"[1, 2]",
    "manifest of a signature of megabytes": lambda size: text(functions=[function(signature="a-b " * (size // 4))]),
    "manifest of many functions": lambda size: text(functions=[function(name=f"f{at}") for at in range(size // 90)]),
    "manifest of many linked names": lambda size: text(
        linked=[{"name": "a.o", "symbols": ["_Z1f" + "P" * (at % 3000) + "i" for at in range(size // 1600)]}]
    ),
    "manifest of functions in many images": lambda size: text(
        functions=[function() for _ in range(size // 200)],
        ltoir=[{"arch": "sm_90", "kind": "ltoir", "bytes": 1, "sha256": ""}] * (size // 200),
    ),
}
"""By name, the bytes of a manifest in a wheel."""

for _title, _content in _MANIFESTS.items():
    _files(".whl", {_title: lambda size, content=_content: wheel([(_NAME, content(size))])})


@_file(".whl")
def wheel_of_many_functions_in_many_images(size: int) -> bytes:
    data = fatbin(entry(_LTOIR, b"ltoir123") * 10_000)
    image = {"arch": "sm_90", "kind": "ltoir", "bytes": 8, "sha256": ""}
    listed = {"functions": _listed(data, "functions.fatbin")}
    whole = text(files=listed, ltoir=[image] * 10_000, functions=[function()] * 10_000)
    return wheel([(_NAME, whole), ("mypkg/kernels.aotcuda/functions.fatbin", data)])


@_file(".whl")
def wheel_of_overlapping_manifests(size: int) -> bytes:
    inner = text(options={"pad": " " * 15_000_000})
    packed = zlib.compress(inner, 9)[2:-4]
    names = [f"m{number}.aotcuda/manifest.json" for number in range(size // 1000)]
    fixed = struct.pack("<HHHHHIII", 20, 0, 8, 0, 33, zlib.crc32(inner), len(packed), len(inner))
    local = b"PK\3\4" + fixed + struct.pack("<HH", len(names[0]), 0) + names[0].encode() + packed
    central = b"".join(
        b"PK\1\2" + struct.pack("<H", 20) + fixed + struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, 0) + name.encode()
        for name in names
    )
    return local + central + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 9, 9, len(central), len(local), 0)


@_file(".whl")
def wheel_of_a_directory_as_large_as_may_be(size: int) -> bytes:
    record = b"PK\1\2" + bytes(24) + struct.pack("<H", 1) + bytes(16) + b"a"
    central = record * ((4 << 20) // len(record))
    return central + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 9, 9, len(central), 0, 0)


@_file(".whl")
def wheel_of_a_manifest_twice(size: int) -> bytes:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return wheel([(_NAME, text()), (_NAME, text(module="another"))])


@_file(".whl")
def wheel_of_a_name_that_is_no_utf_8(size: int) -> bytes:
    data = bytearray(_raw_wheel("x\xff.aotcuda/manifest.json"[:1] + "~.aotcuda/manifest.json", text(), len(text()), 0))
    return bytes(data).replace(b"x~", b"x\xff").replace(struct.pack("<HH", 20, 0), struct.pack("<HH", 20, 0x800))


@_file(".whl")
def wheel_whose_generated_module_unpacks_to_gigabytes(size: int) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(_NAME, text())
        with archive.open("mypkg/kernels.py", "w", force_zip64=True) as member:
            for _ in range(max(128 * size // LARGEST, 2)):
                member.write(bytes(16 << 20))
    return stream.getvalue()


@_file(".whl")
def wheel_whose_fatbin_unpacks_to_as_much_as_may_be(size: int) -> bytes:
    data = fatbin() + bytes(250 << 20)
    return wheel([(_NAME, text(files={"kernels": _listed(data)})), ("mypkg/kernels.aotcuda/kernels.fatbin", data)])


_files(
    ".whl",
    {
        "wheel of many manifests": lambda size: wheel(
            (f"m{number}.aotcuda/manifest.json", text()) for number in range(size // 800)
        ),
        "wheel of deep names": lambda size: wheel(
            ("a/" * 30_000 + f"{number}.aotcuda/manifest.json", b"") for number in range(60)
        ),
        "wheel that is encrypted": lambda size: _raw_wheel(
            _NAME, text(), len(text()), 0, flags=1, crc=zlib.crc32(text())
        ),
        "wheel of a wrong checksum": lambda size: _raw_wheel(_NAME, text(), len(text()), 0, crc=7),
        "wheel in bzip2": lambda size: wheel([(_NAME, b" " * size)], zipfile.ZIP_BZIP2),
        "wheel whose names lead out of it": lambda size: wheel([("../../x.aotcuda/manifest.json", text())]),
        "wheel of a name from the root": lambda size: wheel([("/x.aotcuda/manifest.json", text())]),
        "wheel of names that command a terminal": lambda size: wheel([("\x1b[2J\nx.aotcuda/manifest.json", b"{")]),
        "wheel of nothing": lambda size: wheel([]),
        "wheel that is a signature alone": lambda size: b"PK",
        "wheel of ends of wheels": lambda size: b"PK\5\6" * (size // 4),
        "wheel whose fatbin is missing": lambda size: wheel([(_NAME, text(files={"kernels": _listed(b"x")}))]),
        "wheel whose fatbin lies elsewhere": lambda size: wheel(
            [(_NAME, text(files={"kernels": _listed(b"x", "../../../../etc/passwd")}))]
        ),
        "wheel whose fatbin has no name": lambda size: wheel([(_NAME, text(files={"kernels": _listed(b"x", "")}))]),
    },
)


# What lies in the file system


def _link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def _holes(head: bytes = b"") -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with path.open("wb") as file:
            file.write(head)
            file.truncate(1 << 40)

    return make


def _socket(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:  # the address of a socket is short
        made.bind(path.name)


def _text(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


_DATA = "mypkg/kernels.aotcuda"
_MADE: dict[str, tuple[str, dict[str, Callable[[Path], object]]]] = {
    "pipe": ("pipe", {"pipe": os.mkfifo}),
    "pipe called a wheel": ("pipe.whl", {"pipe.whl": os.mkfifo}),
    "manifest that is a pipe": ("", {_NAME: os.mkfifo}),
    "manifest that is a link to a device": ("", {_NAME: _link("/dev/zero")}),
    "manifest that is a folder": (_DATA, {_NAME: Path.mkdir}),
    "manifest of a tebibyte of holes": ("", {_NAME: _holes()}),
    "fatbin that is a pipe": (
        "",
        {_NAME: _text(text(files={"kernels": _listed(b"x")})), f"{_DATA}/kernels.fatbin": os.mkfifo},
    ),
    "generated module that is a pipe": ("", {_NAME: _text(text()), "mypkg/kernels.py": os.mkfifo}),
    "device called a wheel": ("zero.whl", {"zero.whl": _link("/dev/zero")}),
    "unix socket": ("socket", {"socket": _socket}),
    "folder called a wheel": ("folder.whl", {"folder.whl": Path.mkdir}),
    "link to nothing": ("gone.whl", {"gone.whl": _link("nowhere")}),
    "link to itself": ("loop.whl", {"loop.whl": _link("loop.whl")}),
    "folders linked in a circle": ("", {"a/up": _link("..")}),
    "folder whose name commands a terminal": ("", {"\x1b[2J\n\udcff.aotcuda/manifest.json": _text(text())}),
    "fatbin of a tebibyte of holes": ("holes.fatbin", {"holes.fatbin": _holes(fatbin())}),
    "wheel of a tebibyte of holes": ("holes.whl", {"holes.whl": _holes()}),
}
"""By name, the path to inspect below a folder, and what is made there."""

_NAMED = {
    "device without an end": "/dev/zero",
    "name of 5000 characters": "a" * 5000,
    "name that commands a terminal": "\x1b[2J.whl\nsecond line",
    "name of many parts": "json" + ".a" * 20_000,
    "name that is no text": "\udcff\udcfe",
    "memory of the kernel": "/proc/kcore",
    "memory of the process": "/proc/self/mem",
    "shared library": _ctypes.__file__,
}
"""By name, a target that is not made."""


def _make(target: str, made: dict[str, Callable[[Path], object]], folder: Path, size: int) -> str:
    for name, make in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        make(folder / name)
    return str(folder / target)


def _folders_900_deep(folder: Path, size: int) -> str:
    with contextlib.chdir(folder):
        for _ in range(900):
            Path("deep").mkdir()
            os.chdir("deep")
    return str(folder)


MAKERS |= {name: functools.partial(_make, *row) for name, row in _MADE.items()}
MAKERS |= {name: lambda folder, size, target=target: target for name, target in _NAMED.items()}
MAKERS["folders 900 deep"] = _folders_900_deep

_files("", {"empty file": lambda size: b""})
_files(
    ".fatbin",
    {
        "random bytes": lambda size: random.Random(1).randbytes(size),
        "random bytes after a fatbin s magic": lambda size: fatbin()[:4] + random.Random(2).randbytes(size - 4),
    },
)
_files(".a", {"archive of objects": lambda size: b"!<arch>\n" + bytes(100)})
