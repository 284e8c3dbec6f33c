"""Tegra's driver gets no machine code of other GPUs."""

from __future__ import annotations

import pytest

from aotcuda import arch
from aotcuda.binary import fatbin
from aotcuda.builder.link import nvfatbin
from aotcuda.builder.link.images import Image
from aotcuda.errors import ManifestError
from aotcuda.runtime import library
from aotcuda.runtime.images import subset
from support import images, manifests

TARGETS = ("sm_80", "sm_86", "sm_87", "sm_90", "compute_75")
ENTRY = len(manifests.image("sm_80")[1])


def test_both_tables_of_tegra_agree():
    assert set(library.TEGRA) == arch.TEGRA


@pytest.mark.parametrize(
    ("devices", "targets", "handed"),
    [
        ("8.7", TARGETS, 1),
        ("8.7", ("sm_80", "sm_86", "compute_75"), 1),  # the PTX alone: by its number sm_86 would fit better
        ("8.7", ("sm_87",), 1),
        ("8.7,9.0", TARGETS, 2),
        ("8.6", TARGETS, len(TARGETS)),
        ("8.6,9.0", TARGETS, len(TARGETS)),
    ],
)
def test_tegra_driver_gets_only_its_own_images(devices, targets, handed, cuda):
    cuda.set(devices=devices)
    cuda.package(manifests.kernel("axpy", "void(float32)"), targets=targets)
    (call,) = cuda.calls("cuLibraryLoadData")
    assert call["bytes"] == 16 + handed * ENTRY


@pytest.fixture(scope="module")
def packed():
    made = [Image(arch.parse(name), images.numba_cubin(name), (12, 9), (12, 9)) for name in ("sm_75", "sm_80", "sm_90")]
    text = b".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n"
    every = [*made, Image(arch.parse("compute_75"), text, (12, 0), (12, 9))]
    given = nvfatbin.options(image.cuda for image in every)
    return nvfatbin.join([nvfatbin.pack("test", given, image.target, image.data) for image in every])


def test_subset_of_fatbin_has_same_images(packed):
    whole = {entry.arch: entry.content for entry in fatbin.read(packed, "whole")}
    part = subset.only([packed], {"sm_80", "compute_75"}, "it")
    assert {entry.arch: entry.content for entry in fatbin.read(part, "part")} == {
        arch: whole[arch] for arch in ("sm_80", "compute_75")
    }
    assert images.cuobjdump(part, "--list-elf").count("ELF file") == 1
    assert subset.only([packed], whole.keys(), "it") == packed


@pytest.mark.parametrize("damage", [lambda data: data[:40], lambda data: b"\0" + data[1:], lambda data: b""])
def test_damaged_fatbin_is_error_in_one_line(damage, packed):
    with pytest.raises(
        ManifestError, match=r"^it does not hold the images that its manifest lists; install the package"
    ):
        subset.only([damage(packed)], {"sm_80"}, "it")
    with pytest.raises(ManifestError):
        subset.only([packed], {"sm_87"}, "it")
