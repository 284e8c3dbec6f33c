"""Of a long fatbin a launch reads the images for its GPUs, and each only as its digest vouches for it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest

import aotcuda
from aotcuda import manifest
from aotcuda.binary import fatbin, targets
from aotcuda.builder import wheel_files
from aotcuda.errors import ManifestError
from aotcuda.manifest import parts as manifest_parts
from aotcuda.runtime import loaded_library
from support import manifests

if TYPE_CHECKING:
    from pathlib import Path

    from support.stand_in import StandIn

TARGETS = ("sm_80", "sm_87", "sm_90", "sm_100", "compute_75")
KERNEL = manifests.kernel("axpy", "void(float32)")
ENTRY = len(manifests.image("sm_80")[1])
WHOLE = 16 + len(TARGETS) * ENTRY


def entry_of(folder: Path, arch: str) -> slice:
    data = (folder / "kernels.fatbin").read_bytes()
    (place,) = [place for place in fatbin.places(data, "it") if place.arch == arch]
    return slice(place.start, place.end)


def alter(folder: Path, arch: str) -> None:
    """Change the last byte of an image's entry."""
    data = bytearray((folder / "kernels.fatbin").read_bytes())
    data[entry_of(folder, arch).stop - 1] ^= 1
    (folder / "kernels.fatbin").write_bytes(data)


@pytest.mark.parametrize(
    ("devices", "version", "handed"),
    [
        ("9.0", 13000, 16 + ENTRY),
        ("9.0,9.0", 13000, 16 + ENTRY),
        ("8.0,9.0", 13000, 16 + 2 * ENTRY),
        ("8.6", 13000, WHOLE),  # there is a choice to be made
        ("8.6,9.0", 13000, WHOLE),
        ("7.5", 13000, WHOLE),  # the PTX
    ],
)
def test_the_driver_is_handed_the_images_for_exactly_its_gpus(
    devices: str, version: int, handed: int, cuda: StandIn
) -> None:
    cuda.set(devices=devices, version=version)
    module = cuda.package(KERNEL, targets=TARGETS, apart=True)
    (call,) = cuda.calls("cuLibraryLoadData")
    assert call["bytes"] == handed
    module.axpy[1, 1](1.0)
    assert len(cuda.launches()) == 1


@pytest.mark.parametrize("name", ["CUDA_FORCE_PTX_JIT", "CUDA_FORCE_JIT"])
def test_a_driver_that_was_told_to_compile_ptx_is_handed_it(
    name: str, cuda: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    cuda.package(KERNEL, targets=TARGETS, apart=True)
    assert [call["bytes"] for call in cuda.calls("cuLibraryLoadData")] == [WHOLE]


def test_a_gpu_of_tegras_is_handed_its_own(cuda: StandIn) -> None:
    cuda.set(devices="8.7")
    cuda.package(KERNEL, targets=TARGETS, apart=True)
    assert [call["bytes"] for call in cuda.calls("cuLibraryLoadData")] == [16 + ENTRY]


def test_an_image_for_a_newer_driver_is_not_taken_apart(cuda: StandIn) -> None:
    cuda.set(version=12080)
    cuda.package(KERNEL, targets=("sm_90", "compute_75@12.0"), apart=True)
    assert [call["bytes"] for call in cuda.calls("cuLibraryLoadData")] == [16 + 2 * ENTRY]


def test_callbacks_are_handed_the_whole(cuda: StandIn, tmp_path: Path) -> None:
    del cuda  # which is the driver
    head: Any = manifests.whole(images=[{"arch": "sm_90", "packed": {}}], callbacks=[{"setup": "m:f"}])
    library = object.__new__(loaded_library.LoadedLibrary)
    library._head, library.folder = head, str(tmp_path)
    assert library._own_images() == b""


def test_the_driver_may_still_take_the_code_for_this_gpu_alone(cuda: StandIn) -> None:
    images = [manifests.image(target) for target in ("sm_80", "sm_90", "sm_90")]
    images[2][0]["arch"] = "sm_90a"
    data = manifests.fatbin([entry for _, entry in images])
    at = 16
    for image, entry in images:
        image["packed"] = {"start": at, "end": at + len(entry), "sha256": manifest.digest(entry)}
        at += len(entry)
    cuda.package(KERNEL, data=data, images=[image for image, _ in images])
    assert [call["bytes"] for call in cuda.calls("cuLibraryLoadData")] == [16 + 2 * ENTRY]


@pytest.fixture
def folder(cuda: StandIn) -> Path:
    made = manifests.write(cuda.packages, [KERNEL], targets=TARGETS, apart=True)
    importlib.invalidate_caches()
    return made


def test_an_altered_image_is_refused_by_who_would_load_it(folder: Path) -> None:
    alter(folder, "sm_90")
    with pytest.raises(ManifestError, match=r"fatbin was altered: its image for sm_90 is not the manifest's"):
        importlib.import_module("mypkg.kernels")


def test_another_image_is_not_read(folder: Path, cuda: StandIn) -> None:
    alter(folder, "sm_100")
    importlib.import_module("mypkg.kernels").axpy[1, 1](1.0)
    assert len(cuda.launches()) == 1


def test_one_that_is_a_choice_of_several_is(folder: Path, cuda: StandIn) -> None:
    cuda.set(devices="8.6")
    alter(folder, "sm_100")
    with pytest.raises(ManifestError, match="was altered: its SHA-256"):
        importlib.import_module("mypkg.kernels")


def test_where_no_driver_starts_all_of_it_is_read(folder: Path, cuda: StandIn) -> None:
    cuda.set(fail="cuInit=999")
    alter(folder, "sm_100")
    with pytest.raises(ManifestError, match="was altered: its SHA-256"):
        importlib.import_module("mypkg.kernels")


@pytest.mark.parametrize(("change", "said"), [(slice(None, -1), r"has \d+ bytes"), (slice(0), "has 0 bytes")])
def test_a_fatbin_of_another_length_is_refused(change: slice, said: str, folder: Path) -> None:
    data = (folder / "kernels.fatbin").read_bytes()
    (folder / "kernels.fatbin").write_bytes(data[change])
    with pytest.raises(ManifestError, match=said):
        importlib.import_module("mypkg.kernels")
    (folder / "kernels.fatbin").unlink()
    with pytest.raises(ManifestError, match="cannot be read"):
        importlib.import_module("mypkg.kernels")


def test_a_part_of_a_fatbin_is_one_with_the_same_images(folder: Path) -> None:
    whole = aotcuda.load("mypkg.kernels").manifest
    path = folder / "kernels.fatbin"
    wanted = [image for image in whole["images"] if image["arch"] in ("sm_80", "compute_75")]
    part = manifest_parts.images(str(path), path.stat().st_size, wanted)
    every = {entry.arch: entry.content for entry in fatbin.read(path.read_bytes(), "whole")}
    assert [(entry.arch, entry.content) for entry in fatbin.read(part, "part")] == [
        (arch, every[arch]) for arch in ("sm_80", "compute_75")
    ]


def packed(data: bytes, *archs: str) -> list[Any]:
    images: list[Any] = [{"arch": arch} for arch in archs]
    wheel_files._place(images, data, "it")
    return [image.get("packed") for image in images]


def test_builds_say_where_the_images_of_a_long_fatbin_lie() -> None:
    entries = [manifests.image(target, bytes(40_000))[1] for target in ("sm_80", "compute_75")]
    found = packed(manifests.fatbin(entries), "sm_80", "compute_75")
    assert [manifests.fatbin(entries)[each["start"] : each["end"]] for each in found] == entries
    assert [each["sha256"] for each in found] == [manifest.digest(entry) for entry in entries]


def test_and_of_no_other() -> None:
    entries = [manifests.image(target, bytes(40_000))[1] for target in ("sm_80", "compute_75")]
    long, nothing = manifests.fatbin(entries), [None, None]
    assert packed(manifests.fatbin([entry[:-39_000] for entry in entries[:1]]), "sm_80", "compute_75") == nothing
    assert packed(long, "sm_90", "compute_75") == nothing
    assert packed(long + bytes(8), "sm_80", "compute_75") == nothing  # two containers, or something else behind it
    assert packed(long + long, "sm_80", "compute_75") == nothing


@pytest.mark.parametrize("key", ["start", "end", "sha256"])
def test_places_that_are_not_those_of_the_images_are_seen_by_who_inspects(
    key: str, folder: Path, cuda: StandIn
) -> None:
    read = aotcuda.load("mypkg.kernels").manifest["images"]
    read[0]["packed"][key] = read[1]["packed"][key]  # type: ignore[literal-required]
    manifests.write(cuda.packages, [KERNEL], name="mypkg.others", targets=TARGETS, images=read)
    assert len(list(targets.find(str(folder)))) == 1
    with pytest.raises(ManifestError, match="its images lie elsewhere"):
        list(targets.find(str(folder.with_name("others.aotcuda"))))
