"""Both readers of fatbins at the bounds of containers and entries, with fatbins that no compiler wrote."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotcuda.binary import fatbin
from aotcuda.errors import ImageError, ManifestError
from aotcuda.runtime.images import subset
from support import manifests

A, F = 0x100000, 0x200000
FIELDS = {"magic": ("<I", 0), "version": ("<H", 4), "header": ("<H", 6), "size": ("<Q", 8)}
ENTRY = {"kind": ("<H", 0), "header": ("<I", 4), "payload": ("<Q", 8), "compressed": ("<I", 16), "flags": ("<Q", 40)}


def entry(target: str, flags: int = 0, content: bytes = b"code", **changes: int) -> bytes:
    """Return an entry with changed fields of its header."""
    data = bytearray(manifests.image(target, content)[1])
    for name, value in ({"flags": flags} | changes).items():
        struct.pack_into(ENTRY[name][0], data, ENTRY[name][1], value)
    return bytes(data)


def changed(data: bytes, **changes: int) -> bytes:
    """Return a fatbin with changed fields of its first container."""
    altered = bytearray(data)
    for name, value in changes.items():
        struct.pack_into(FIELDS[name][0], altered, FIELDS[name][1], value)
    return bytes(altered)


WHOLE = manifests.fatbin([entry("sm_90", content=b"first"), entry("sm_90", A), entry("sm_100", F), entry("compute_75")])
TARGETS = ["sm_90", "sm_90a", "sm_100f", "compute_75"]


def test_suffixes_come_from_the_flags() -> None:
    assert [image.arch for image in fatbin.read(WHOLE, "it")] == TARGETS
    for target in TARGETS:
        (image,) = fatbin.read(subset.only([WHOLE], [target], "it"), "part")
        assert image.arch == target
    assert subset.only([WHOLE], TARGETS, "it") == WHOLE
    with pytest.raises(ManifestError):
        subset.only([WHOLE], ["sm_90f"], "it")


def is_damaged(data: bytes) -> tuple[bool, bool]:
    """Return whether `fatbin` and `subset` refuse a fatbin."""
    refused = [False, False]
    try:
        fatbin.read(data, "it")
    except ImageError:
        refused[0] = True
    try:
        subset.only([data], ["sm_90"], "it")
    except ManifestError:
        refused[1] = True
    return refused[0], refused[1]


SIZE = len(WHOLE) - 16
ONE = len(entry("sm_90")) - 64


@pytest.mark.parametrize(
    "data",
    [
        b"",
        WHOLE[:15],
        WHOLE[:-1],
        changed(WHOLE, magic=0),
        changed(WHOLE, version=2),
        changed(WHOLE, size=SIZE + 1),
        changed(WHOLE, size=SIZE - 1),
        changed(WHOLE, size=20),
        manifests.fatbin([entry("sm_90", header=63), entry("sm_90")]),
        manifests.fatbin([entry("sm_90", header=63, payload=ONE + 1)]),
        manifests.fatbin([entry("sm_90", header=0, payload=0)]),
        manifests.fatbin([entry("sm_90", payload=ONE + 1)]),
        manifests.fatbin([entry("sm_90", header=65)]),
        manifests.fatbin([entry("sm_90"), entry("sm_90", payload=1 << 63)]),
        manifests.fatbin([entry("sm_90"), entry("sm_90")[:63]]),
    ],
)
def test_sizes_beyond_the_data_are_refused_by_both_readers(data: bytes) -> None:
    assert is_damaged(data) == (True, True)


def test_sizes_up_to_the_end_are_accepted() -> None:
    assert is_damaged(WHOLE) == (False, False)
    empty = manifests.fatbin([entry("sm_90", content=b"")])
    assert fatbin.read(empty, "it")[0].content == b""
    assert fatbin.read(WHOLE + bytes(7) + WHOLE, "it") == fatbin.read(WHOLE, "it") * 2


@pytest.mark.parametrize(("compressed", "refused"), [(ONE, False), (ONE + 1, True)])
def test_compressed_size_is_within_the_payload(compressed: int, refused: bool) -> None:
    data = manifests.fatbin([entry("sm_90", compressed=compressed)])
    assert is_damaged(data)[0] == refused


@pytest.mark.parametrize("field", ["header", "version"])
def test_container_header_is_not_shorter_than_its_fields(field: str) -> None:
    data = manifests.fatbin([])
    assert fatbin.read(data, "it") == ()
    with pytest.raises(ImageError):
        fatbin.read(changed(data, **{field: 0}), "it")


def test_name_ends_where_the_payload_begins() -> None:
    data = bytearray(entry("sm_90"))
    struct.pack_into("<II", data, 32, 60, 100)
    (image,) = fatbin.read(manifests.fatbin([bytes(data)]), "it")
    assert len(image.name) == 4


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
@settings(max_examples=300)
def test_each_altered_byte_gives_entries_within_the_data_or_one_error(at: int, change: int) -> None:
    data = WHOLE[:at] + bytes([WHOLE[at] ^ change]) + WHOLE[at + 1 :]
    entries: tuple[fatbin.Entry, ...] = ()
    with suppress(ImageError):
        entries = fatbin.read(data, "it")
    assert sum(image.packed for image in entries) <= len(data)
