"""Test that fatbins of nvFatbin give the packed images, as cuobjdump lists them, and that damage is an error."""

from __future__ import annotations

import re
import struct
import sys

import pytest

from aotcuda.binary import fatbin, ptx
from aotcuda.errors import ImageError
from support import images

MODES = ("none", "size", "speed", "balance", "default")


def contents() -> list[tuple[str, str, bytes]]:
    plain = [("sass", arch, images.numba_cubin(arch)) for arch in ("sm_75", "sm_90", "sm_120")]
    special = [("sass", arch, images.cuda_cubin(arch, "-maxrregcount=32")) for arch in ("sm_90a", "sm_100f")]
    texts = [("ptx", "compute_75", images.numba_ptx("compute_75"))]
    return [*plain, *special, *texts, ("ltoir", "sm_90", images.ltoir("axpy", "sm_90"))]


def pack(mode: str = "size") -> bytes:
    return images.pack(contents(), f"-compress-mode={mode}", "-compress-all")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("everything", [True, False])
def test_each_compression_gives_the_packed_images(mode: str, everything: bool) -> None:
    data = images.pack(contents(), f"-compress-mode={mode}", *(["-compress-all"] if everything else []))
    entries = fatbin.read(data, "test.fatbin")
    assert [(entry.kind, entry.arch) for entry in entries] == [(kind, arch) for kind, arch, _ in contents()]
    for entry, (kind, _, image) in zip(entries, contents(), strict=True):
        assert entry.name == "test"
        if kind == "sass":
            assert entry.content == image
            assert entry.size == len(image)
        elif kind == "ptx":  # nvFatbin strips comments and indentation
            assert ptx.kernels(entry.content) == ptx.kernels(image)
        else:
            assert entry.content == b""
            assert 0 <= entry.size - len(image) < 8


@pytest.mark.parametrize("mode", ["none", "size", "speed"])
def test_images_equal_those_of_cuobjdump(mode: str) -> None:
    data = pack(mode)
    entries = fatbin.read(data, "test.fatbin")
    # `-lelf` omits the suffix of family-specific code; the plain listing has it, and has sm_ for PTX's targets too.
    listed = re.findall(r"^arch = sm_(\w+)$", images.cuobjdump(data), re.MULTILINE)
    assert [entry.arch.partition("_")[2] for entry in entries] == listed
    elves = re.findall(r"test\.sm_(\d+)", images.cuobjdump(data, "-lelf"))
    assert [entry.arch[3:].rstrip("af") for entry in entries if entry.kind == "sass"] == elves
    texts = re.findall(r"test\.sm_(\d+)", images.cuobjdump(data, "-lptx"))
    assert [entry.arch.partition("_")[2] for entry in entries if entry.kind == "ptx"] == texts


def test_several_containers_give_one_list_of_images() -> None:
    first, second = (images.pack([item], "-compress-mode=size") for item in contents()[:2])
    assert [entry.arch for entry in fatbin.read(first + second, "test.fatbin")] == ["sm_75", "sm_90"]
    assert [entry.arch for entry in fatbin.read(first + bytes(8) + second, "test.fatbin")] == ["sm_75", "sm_90"]


@pytest.mark.parametrize("mode", ["none", "size", "speed"])
def test_truncation_is_an_error_with_the_file(mode: str) -> None:
    data = images.pack(contents()[:1], f"-compress-mode={mode}", "-compress-all")
    for length in range(len(data)):
        with pytest.raises(ImageError, match=r"^test\.fatbin cannot be read as a fatbin: .* truncated"):
            fatbin.read(data[:length], "test.fatbin")


@pytest.mark.parametrize("mode", ["size", "speed"])
@pytest.mark.parametrize("size", [0, 1, 2**31, 2**63, 2**64 - 1])
def test_wrong_uncompressed_size_is_refused_without_allocation(mode: str, size: int) -> None:
    data = bytearray(images.pack(contents()[:1], f"-compress-mode={mode}", "-compress-all"))
    struct.pack_into("<Q", data, 16 + 56, size)
    problem = r"^test\.fatbin: the sass image for sm_75 (does not decompress to|holds more than 268,435,456 bytes)"
    with pytest.raises(ImageError, match=problem):
        fatbin.read(bytes(data), "test.fatbin")


@pytest.mark.parametrize(
    ("position", "value", "problem"),
    [
        (0, 7, "there is no container at byte 0"),
        (4, 2, "container has version 2, and this aotcuda reads 1; upgrade aotcuda"),
        (6, 15, "its container ends at byte"),
        (16, 64, r"entry at byte 16 has a kind \(64\)"),
        (20, 63, "its entry at byte 16 does not fit into it; it was truncated or altered"),
    ],
)
def test_unknown_header_is_refused(position: int, value: int, problem: str) -> None:
    data = bytearray(pack())
    struct.pack_into("<H", data, position, value)
    with pytest.raises(ImageError, match=rf"^test\.fatbin cannot be read as a fatbin: .*{problem}"):
        fatbin.read(bytes(data), "test.fatbin")


@pytest.mark.parametrize(("mode", "missing"), [("size", "backports"), ("speed", "lz4")])
def test_compressed_image_without_the_extra_names_the_extra(monkeypatch, mode, missing):
    data = images.pack(contents()[:1], f"-compress-mode={mode}", "-compress-all")
    for name in (missing, "compression"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImageError, match=r"sm_75 is compressed; .*: pip install 'aotcuda\[inspect\]'$"):
        fatbin.read(data, "test.fatbin")
