"""Inputs made to break `aotcuda inspect`: what each claims, repeats or hides, in at most 16 MB.

They are made of nothing but bytes, so no compiler is needed; `size` says how large the large ones are. A maker writes
into a folder and gives back the target to inspect.
"""

from __future__ import annotations

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


def _maker(make: Maker) -> Maker:
    MAKERS[make.__name__.strip("_").replace("_", " ")] = make
    return make


def _file(suffix: str) -> Callable[[Callable[[int], bytes]], Callable[[int], bytes]]:
    """Return a maker of a file's bytes."""

    def decorate(content: Callable[[int], bytes]) -> Callable[[int], bytes]:
        @functools.wraps(content)
        def make(folder: Path, size: int) -> str:
            path = folder / f"input{suffix}"
            path.write_bytes(content(size))
            return str(path)

        _maker(make)
        return content

    return decorate


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


def _ptx(name: str, unit: bytes, most: int = LARGEST, head: bytes = b"") -> None:
    def make(size: int) -> bytes:
        return fatbin(entry(_PTX, head + unit * ((min(size, most) - 200) // len(unit))))

    make.__name__ = name
    _file(".fatbin")(make)


_ptx("ptx of comments that never end, 180 kB", b"/* ", 180_000)
_ptx("ptx of comments that never end", b"/* ")
_ptx("ptx of entries without names", b".entry//\n")
_ptx("ptx of one kernel many times", b".entry k ")
_ptx("ptx of a name of megabytes", b"k", head=b".entry ")


@_file(".fatbin")
def ptx_of_many_kernels(size: int) -> bytes:
    return fatbin(entry(_PTX, b"".join(b".entry k%d(" % number for number in range(size // 20))))


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
def elf_of_many_kernels(size: int) -> bytes:
    return with_functions(b"k%d" % number for number in range(size // 32))


@_file(".cubin")
def elf_of_as_many_kernels_as_may_be(size: int) -> bytes:
    return with_functions(b"k%d" % number for number in range(30_000))


@_file(".cubin")
def elf_of_many_functions(size: int) -> bytes:
    return with_functions((b"f%d" % number for number in range(size // 32)), kernel=False)


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
def elf_of_attributes(size: int) -> bytes:
    return elf([(b".nv.info", 1, bytes([3, 1, 0, 0]) * (size // 4 - 200), 0)])


@_file(".cubin")
def elf_of_parameters(size: int) -> bytes:
    info = struct.pack("<BBHIHHI", 4, 0x17, 12, 0, 1, 2, 3) * (size // 16 - 200)
    return with_functions([b"k"], (b".nv.info.k", 1, info, 0))


@_file(".cubin")
def elf_of_a_truncated_attribute(size: int) -> bytes:
    return with_functions([b"k"], (b".nv.info.k", 1, b"\4\x17\x0c", 0))


@_file(".cubin")
def elf_that_counts_4294967296_sections(size: int) -> bytes:
    return elf([(b".text.k", 1, bytes(100), 0)], count=0, first=(2**32, 0))


@_file(".cubin")
def elf_whose_tables_lie_at_the_end_of_64_bits(size: int) -> bytes:
    data = bytearray(elf([]))
    struct.pack_into("<QQ", data, 32, 2**64 - 1, 2**64 - 1)
    return bytes(data)


@_file(".cubin")
def elf_of_names_that_are_no_text(size: int) -> bytes:
    return with_functions([b"\xff\xfe\x80k", b"k\xed\xa0\x80"])


@_file(".cubin")
def elf_of_names_that_command_a_terminal(size: int) -> bytes:
    return with_functions([b"\x1b[2J\x1b]0;owned\x07", b"two\nlines\r", "\u202egnirts".encode(), b"\xc2\x9b31m"])


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


@_file(".cubin")
def elf_of_many_mangled_names(size: int) -> bytes:
    return with_functions(b"_Z%df%dPfi" % (1 + len(str(number)), number) for number in range(20_000))


@_file(".cubin")
def elf_for_another_machine(size: int) -> bytes:
    return elf([]).replace(struct.pack("<HHI", 2, 190, 1), struct.pack("<HHI", 2, 62, 1), 1)


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
def zstandard_of_131_kilobytes_that_is_4_gibibytes(size: int) -> bytes:
    return fatbin(entry(_SASS, _zstd_bomb(4 << 30), flags=_ZSTD, size=4 << 30))


@_file(".fatbin")
def zstandard_that_claims_little_and_is_4_gibibytes(size: int) -> bytes:
    return fatbin(entry(_SASS, _zstd_bomb(4 << 30), flags=_ZSTD, size=1 << 20))


@_file(".fatbin")
def zstandard_of_as_much_as_may_be(size: int) -> bytes:
    return fatbin(entry(_SASS, _zstd_bomb(256 << 20), flags=_ZSTD, size=256 << 20))


@_file(".fatbin")
def zstandard_images_of_200_mebibytes_each(size: int) -> bytes:
    return fatbin(*[entry(_SASS, _zstd_bomb(200 << 20), flags=_ZSTD, size=200 << 20)] * 1000)


@_file(".fatbin")
def zstandard_cubins_of_many_kernels(size: int) -> bytes:
    code = with_functions(b"k%d" % number for number in range(10_000))
    return fatbin(*[_zstd_entry(_SASS, code)] * 200)


@_file(".fatbin")
def zstandard_cubin_of_attributes(size: int) -> bytes:
    return fatbin(_zstd_entry(_SASS, elf([(b".nv.info", 1, bytes([3, 1, 0, 0]) * (50 << 20), 0)])))


@_file(".fatbin")
def lz4_that_claims_255_times_its_size(size: int) -> bytes:
    return fatbin(entry(_SASS, bytes(size - 200), flags=_LZ4, size=(size - 200) * 255))


@_file(".fatbin")
def lz4_that_claims_as_much_as_may_be(size: int) -> bytes:
    return fatbin(entry(_SASS, bytes(size - 200), flags=_LZ4, size=255 << 20))


@_file(".fatbin")
def lz4_of_zeros(size: int) -> bytes:
    from lz4 import block

    return fatbin(entry(_SASS, block.compress(bytes(250 << 20), store_size=False), flags=_LZ4, size=250 << 20))


@_file(".fatbin")
def fatbin_of_padding(size: int) -> bytes:
    return fatbin() + bytes(size - 16)


@_file(".fatbin")
def fatbin_of_as_many_images_as_may_be(size: int) -> bytes:
    return fatbin(entry(_LTOIR, b"ltoir") * 100_000)


@_file(".fatbin")
def fatbin_of_one_kernel_in_many_images(size: int) -> bytes:
    return fatbin(entry(_PTX, b".entry k(") * (size // 80 - 1))


@_file(".fatbin")
def fatbin_of_fatbins(size: int) -> bytes:
    data = fatbin(entry(_SASS, elf([])))
    for _ in range(20_000):
        data = fatbin(entry(_SASS, data)) if len(data) < size // 2 else data
    return data


@_file(".fatbin")
def fatbin_whose_container_is_64_bits_long(size: int) -> bytes:
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 2**64 - 1) + bytes(1000)


@_file(".fatbin")
def fatbin_of_a_header_of_no_bytes(size: int) -> bytes:
    data = bytearray(fatbin(entry(_SASS, bytes(100))))
    struct.pack_into("<I", data, 16 + 4, 0)
    return bytes(data)


@_file(".fatbin")
def fatbin_of_both_compressions(size: int) -> bytes:
    return fatbin(entry(_SASS, b"code", flags=_LZ4 | _ZSTD, size=4))


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


def _json_bomb(name: str, unit: bytes, most: int = LARGEST) -> None:
    def make(size: int) -> bytes:
        count = (min(size, most) - 4000) // (len(unit) + 1)
        inner = b"[" + b",".join([unit] * count) + b"]"
        return wheel([(_NAME, text().replace(b'"options": {}', b'"options": {"bomb": ' + inner + b"}"))])

    make.__name__ = name
    _file(".whl")(make)


_json_bomb("manifest of empty objects", b"{}")
_json_bomb("manifest of small objects", b'{"":0}')
_json_bomb("manifest of as many objects as may be", b'{"":0}', 7_000_000)
_json_bomb("manifest of as many strings as may be", b'"abc"', 11_000_000)


def _manifest(name: str, content: Callable[[int], bytes]) -> None:
    def make(size: int) -> bytes:
        return wheel([(_NAME, content(size))])

    make.__name__ = name
    _file(".whl")(make)


_manifest("manifest nested deeply", lambda size: b"[" * (size // 2))
_manifest("manifest nested as deeply as may be", lambda _: text(options={}).replace(b"{}", b"[" * 900 + b"]" * 900, 1))
_manifest("manifest of a number of 4000 digits", lambda _: text(images=[{"bytes": 10**4000}]))
_manifest("manifest of the format infinity", lambda _: text().replace(b'"format": 1', b'"format": 1e999'))
_manifest("manifest of the format true", lambda _: text(format=True))
_manifest("manifest of a newer format of many digits", lambda _: text(format=10**4000))
_manifest("manifest of keys twice", lambda _: text().replace(b'"options": {}', b'"options": {}, "options": []'))
_manifest("manifest of half surrogates", lambda _: text(module="\ud800", functions=[function(name="\udfff\ud800")]))
_manifest(
    "manifest of names that command a terminal", lambda _: text(module="\x1b[2J\nmypkg", toolchain={"\x07": "\r"})
)
_manifest("manifest of names that are numbers", lambda _: text(module=7, functions=[function(name=3)]))
_manifest("manifest of names that are null", lambda _: text(module=None))
_manifest("manifest in UTF-16", lambda _: text().decode().encode("utf-16"))
_manifest("manifest that is no UTF-8", lambda _: text().replace(b"mypkg", b"my\xffpkg"))
_manifest("manifest that is a list", lambda _: b"[1, 2]")
_manifest(
    "manifest of a signature of megabytes", lambda size: text(functions=[function(signature="a-b " * (size // 4))])
)
_manifest(
    "manifest of many functions", lambda size: text(functions=[function(name=f"f{at}") for at in range(size // 90)])
)
_manifest(
    "manifest of many linked names",
    lambda size: text(
        linked=[{"name": "a.o", "symbols": ["_Z1f" + "P" * (at % 3000) + "i" for at in range(size // 1600)]}]
    ),
)
_manifest(
    "manifest of functions in many images",
    lambda size: text(
        functions=[function() for _ in range(size // 200)],
        ltoir=[{"arch": "sm_90", "kind": "ltoir", "bytes": 1, "sha256": ""}] * (size // 200),
    ),
)


@_file(".whl")
def wheel_of_many_functions_in_many_images(size: int) -> bytes:
    data = fatbin(entry(_LTOIR, b"ltoir123") * 10_000)
    image = {"arch": "sm_90", "kind": "ltoir", "bytes": 8, "sha256": ""}
    listed = {"functions": _listed(data, "functions.fatbin")}
    whole = text(files=listed, ltoir=[image] * 10_000, functions=[function()] * 10_000)
    return wheel([(_NAME, whole), ("mypkg/kernels.aotcuda/functions.fatbin", data)])


@_file(".whl")
def wheel_of_many_manifests(size: int) -> bytes:
    return wheel((f"m{number}.aotcuda/manifest.json", text()) for number in range(size // 800))


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
def wheel_of_deep_names(size: int) -> bytes:
    return wheel(("a/" * 30_000 + f"{number}.aotcuda/manifest.json", b"") for number in range(60))


@_file(".whl")
def wheel_that_is_encrypted(size: int) -> bytes:
    return _raw_wheel(_NAME, text(), len(text()), 0, flags=1, crc=zlib.crc32(text()))


@_file(".whl")
def wheel_of_a_wrong_checksum(size: int) -> bytes:
    return _raw_wheel(_NAME, text(), len(text()), 0, crc=7)


@_file(".whl")
def wheel_in_bzip2(size: int) -> bytes:
    return wheel([(_NAME, b" " * size)], zipfile.ZIP_BZIP2)


@_file(".whl")
def wheel_of_a_manifest_twice(size: int) -> bytes:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return wheel([(_NAME, text()), (_NAME, text(module="another"))])


@_file(".whl")
def wheel_whose_names_lead_out_of_it(size: int) -> bytes:
    return wheel([("../../x.aotcuda/manifest.json", text())])


@_file(".whl")
def wheel_of_a_name_from_the_root(size: int) -> bytes:
    return wheel([("/x.aotcuda/manifest.json", text())])


@_file(".whl")
def wheel_of_names_that_command_a_terminal(size: int) -> bytes:
    return wheel([("\x1b[2J\nx.aotcuda/manifest.json", b"{")])


@_file(".whl")
def wheel_of_a_name_that_is_no_utf_8(size: int) -> bytes:
    data = bytearray(_raw_wheel("x\xff.aotcuda/manifest.json"[:1] + "~.aotcuda/manifest.json", text(), len(text()), 0))
    return bytes(data).replace(b"x~", b"x\xff").replace(struct.pack("<HH", 20, 0), struct.pack("<HH", 20, 0x800))


@_file(".whl")
def wheel_of_nothing(size: int) -> bytes:
    return wheel([])


@_file(".whl")
def wheel_that_is_a_signature_alone(size: int) -> bytes:
    return b"PK"


@_file(".whl")
def wheel_of_ends_of_wheels(size: int) -> bytes:
    return b"PK\5\6" * (size // 4)


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
def wheel_whose_fatbin_is_missing(size: int) -> bytes:
    return wheel([(_NAME, text(files={"kernels": _listed(b"x")}))])


@_file(".whl")
def wheel_whose_fatbin_lies_elsewhere(size: int) -> bytes:
    return wheel([(_NAME, text(files={"kernels": _listed(b"x", "../../../../etc/passwd")}))])


@_file(".whl")
def wheel_whose_fatbin_has_no_name(size: int) -> bytes:
    return wheel([(_NAME, text(files={"kernels": _listed(b"x", "")}))])


@_file(".whl")
def wheel_whose_fatbin_unpacks_to_as_much_as_may_be(size: int) -> bytes:
    data = fatbin() + bytes(250 << 20)
    return wheel([(_NAME, text(files={"kernels": _listed(data)})), ("mypkg/kernels.aotcuda/kernels.fatbin", data)])


# What lies in the file system


@_maker
def pipe(folder: Path, size: int) -> str:
    os.mkfifo(folder / "pipe")
    return str(folder / "pipe")


@_maker
def pipe_called_a_wheel(folder: Path, size: int) -> str:
    os.mkfifo(folder / "pipe.whl")
    return str(folder / "pipe.whl")


def _data_folder(folder: Path) -> Path:
    data = folder / "mypkg" / "kernels.aotcuda"
    data.mkdir(parents=True)
    return data


@_maker
def manifest_that_is_a_pipe(folder: Path, size: int) -> str:
    os.mkfifo(_data_folder(folder) / "manifest.json")
    return str(folder)


@_maker
def manifest_that_is_a_link_to_a_device(folder: Path, size: int) -> str:
    (_data_folder(folder) / "manifest.json").symlink_to("/dev/zero")
    return str(folder)


@_maker
def manifest_that_is_a_folder(folder: Path, size: int) -> str:
    (_data_folder(folder) / "manifest.json").mkdir()
    return str(folder / "mypkg" / "kernels.aotcuda")


@_maker
def manifest_of_a_tebibyte_of_holes(folder: Path, size: int) -> str:
    with (_data_folder(folder) / "manifest.json").open("wb") as file:
        file.truncate(1 << 40)
    return str(folder)


@_maker
def fatbin_that_is_a_pipe(folder: Path, size: int) -> str:
    data = _data_folder(folder)
    (data / "manifest.json").write_bytes(text(files={"kernels": _listed(b"x")}))
    os.mkfifo(data / "kernels.fatbin")
    return str(folder)


@_maker
def generated_module_that_is_a_pipe(folder: Path, size: int) -> str:
    (_data_folder(folder) / "manifest.json").write_bytes(text())
    os.mkfifo(folder / "mypkg" / "kernels.py")
    return str(folder)


@_maker
def device_without_an_end(folder: Path, size: int) -> str:
    return "/dev/zero"


@_maker
def device_called_a_wheel(folder: Path, size: int) -> str:
    (folder / "zero.whl").symlink_to("/dev/zero")
    return str(folder / "zero.whl")


@_maker
def unix_socket(folder: Path, size: int) -> str:
    with contextlib.chdir(folder), socket.socket(socket.AF_UNIX) as made:  # the address of a socket is short
        made.bind("socket")
    return str(folder / "socket")


@_maker
def folder_called_a_wheel(folder: Path, size: int) -> str:
    (folder / "folder.whl").mkdir()
    return str(folder / "folder.whl")


@_maker
def link_to_nothing(folder: Path, size: int) -> str:
    (folder / "gone.whl").symlink_to("nowhere")
    return str(folder / "gone.whl")


@_maker
def link_to_itself(folder: Path, size: int) -> str:
    (folder / "loop.whl").symlink_to("loop.whl")
    return str(folder / "loop.whl")


@_maker
def folders_linked_in_a_circle(folder: Path, size: int) -> str:
    (folder / "a").mkdir()
    (folder / "a" / "up").symlink_to(folder)
    return str(folder)


@_maker
def folders_900_deep(folder: Path, size: int) -> str:
    with contextlib.chdir(folder):
        for _ in range(900):
            Path("deep").mkdir()
            os.chdir("deep")
    return str(folder)


@_maker
def folder_whose_name_commands_a_terminal(folder: Path, size: int) -> str:
    made = folder / "\x1b[2J\n\udcff.aotcuda"
    made.mkdir()
    (made / "manifest.json").write_bytes(text())
    return str(folder)


@_maker
def name_of_5000_characters(folder: Path, size: int) -> str:
    return "a" * 5000


@_maker
def name_that_commands_a_terminal(folder: Path, size: int) -> str:
    return "\x1b[2J.whl\nsecond line"


@_maker
def name_of_many_parts(folder: Path, size: int) -> str:
    return "json" + ".a" * 20_000


@_maker
def name_that_is_no_text(folder: Path, size: int) -> str:
    return "\udcff\udcfe"


@_maker
def memory_of_the_kernel(folder: Path, size: int) -> str:
    return "/proc/kcore"


@_maker
def memory_of_the_process(folder: Path, size: int) -> str:
    return "/proc/self/mem"


@_maker
def fatbin_of_a_tebibyte_of_holes(folder: Path, size: int) -> str:
    with (folder / "holes.fatbin").open("wb") as file:
        file.write(fatbin())
        file.truncate(1 << 40)
    return str(folder / "holes.fatbin")


@_maker
def wheel_of_a_tebibyte_of_holes(folder: Path, size: int) -> str:
    with (folder / "holes.whl").open("wb") as file:
        file.truncate(1 << 40)
    return str(folder / "holes.whl")


@_file("")
def empty_file(size: int) -> bytes:
    return b""


@_file(".fatbin")
def random_bytes(size: int) -> bytes:
    return random.Random(1).randbytes(size)


@_file(".fatbin")
def random_bytes_after_a_fatbin_s_magic(size: int) -> bytes:
    return fatbin()[:4] + random.Random(2).randbytes(size - 4)


@_file(".a")
def archive_of_objects(size: int) -> bytes:
    return b"!<arch>\n" + bytes(100)


@_maker
def shared_library(folder: Path, size: int) -> str:
    import _ctypes

    return _ctypes.__file__
