"""Tegra's driver gets no machine code of other GPUs."""

from __future__ import annotations

import pytest

from aotcuda import arch
from aotcuda.binary import fatbin
from aotcuda.builder.link import nvfatbin
from aotcuda.builder.link.images import Image
from aotcuda.errors import ManifestError
from aotcuda.runtime.images import subset
from support import images, manifests

TARGETS = ("sm_80", "sm_86", "sm_87", "sm_90", "compute_75")
ENTRY = len(manifests.image("sm_80", b"code of image 0")[1])


@pytest.mark.parametrize(
    ("devices", "targets", "count"),
    [
        ("8.7", TARGETS, 1),
        ("8.7", ("sm_80", "sm_86", "compute_75"), 1),  # only the PTX, although the number of sm_86 is nearer
        ("8.7", ("sm_87",), 1),
        ("8.7,9.0", TARGETS, 2),
        ("8.6", TARGETS, len(TARGETS)),
        ("8.6,9.0", TARGETS, len(TARGETS)),
    ],
)
def test_tegra_driver_gets_only_its_own_images(devices, targets, count, cuda):
    cuda.set(devices=devices)
    cuda.package(manifests.kernel("axpy", "void(float32)"), targets=targets)
    (call,) = cuda.calls("cuLibraryLoadData")
    assert call["bytes"] == 16 + count * ENTRY


@pytest.fixture(scope="module")
def packed():
    cubins = [
        Image(arch.parse(name), images.numba_cubin(name), (12, 9), (12, 9)) for name in ("sm_75", "sm_80", "sm_90")
    ]
    text = b".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n"
    all_images = [*cubins, Image(arch.parse("compute_75"), text, (12, 0), (12, 9))]
    options = nvfatbin.options(image.cuda for image in all_images)
    return nvfatbin.join([nvfatbin.pack("test", options, image.target, image.data) for image in all_images])


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
