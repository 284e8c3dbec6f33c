"""Test which packaged image a GPU takes, and why."""

from __future__ import annotations

import json

import pytest

from aotcuda.errors import DriverTooOldError, NoImageError
from aotcuda.runtime.images.choice import choose
from support import manifests


@pytest.fixture
def manifest(tmp_path):
    def make(*targets, **changes):
        folder = manifests.write(tmp_path, [manifests.kernel("axpy", "void(float32)")], targets=targets, **changes)
        return json.loads((folder / "manifest.json").read_bytes())

    return make


@pytest.mark.parametrize(
    ("capability", "driver", "expected"),
    [
        ((9, 0), (13, 0), "sm_90"),
        ((8, 0), (13, 0), "sm_80"),
        ((8, 6), (13, 0), "sm_80"),
        ((7, 5), (13, 0), "compute_75"),
        ((12, 0), (13, 0), "compute_75"),
        ((7, 0), (13, 0), None),
        ((9, 0), (13, 1), "sm_90"),
        ((9, 0), (14, 0), "sm_90"),
        ((12, 0), (14, 0), "compute_75"),
        ((9, 0), (12, 8), None),
        ((12, 0), (12, 8), None),
    ],
)
def test_the_image_for_a_gpu_and_a_driver(manifest, capability, driver, expected):
    assert choose(manifest("sm_80", "sm_90", "compute_75"), capability, driver=driver).arch == expected


def test_lowest_driver_that_loads_an_image_is_named(manifest):
    built = manifest("compute_75", "compute_80", toolchain={"cuda": "13.2"})
    for image, cuda in zip(built["fatbins"][0]["images"], ("13.2", "13.1"), strict=True):
        image["cuda"] = cuda
    choice = choose(built, (9, 0), driver=(13, 0))
    assert (choice.arch, choice.why.partition(",")[2]) == (None, " and the images need CUDA 13.1; update the driver")


@pytest.mark.parametrize(
    ("targets", "capability", "driver", "expected"),
    [
        (("sm_90", "compute_75"), (9, 0), (13, 0), "sm_90"),
        (("sm_90", "compute_75"), (8, 0), (13, 0), None),
        (("sm_90", "compute_75"), (8, 0), (13, 2), "compute_75"),
        (("sm_80", "compute_86"), (8, 9), (13, 0), "sm_80"),
        (("compute_75",), (12, 0), None, "compute_75"),
    ],
)
def test_ptx_alone_needs_a_driver_for_the_minor_version(manifest, targets, capability, driver, expected):
    assert choose(manifest(*targets, toolchain={"cuda": "13.2"}), capability, driver=driver).arch == expected


def test_a_choice_explains_itself(manifest):
    choice = choose(manifest("sm_80", "sm_90", "sm_90a", "compute_75"), (9, 0), driver=(13, 0), gpu="GPU 3")
    assert str(choice) == (
        "GPU 3 takes sm_90a, machine code for exactly this compute capability. Not used: "
        "sm_80 is machine code for compute capability 8.0 to 8.x; sm_90 would also run here, but sm_90a is preferred; "
        "compute_75 would also run here, but sm_90a is preferred"
    )
    assert choice.kind == "sass"
    assert "sm_90a" in repr(choice)


def test_a_gpu_without_an_image_names_the_images(manifest):
    choice = choose(manifest("sm_80", "sm_90a", "compute_90"), (7, 5), driver=(13, 0), gpu="GPU 0 (old)")
    error = choice.error("mypkg.kernels")
    assert type(error) is NoImageError
    assert str(error) == (
        "mypkg.kernels has no image for GPU 0 (old): none of the packaged images runs on it "
        "(sm_80 is machine code for compute capability 8.0 to 8.x; "
        "sm_90a is machine code for compute capability 9.0 alone; "
        "compute_90 is PTX for compute capability 9.0 and newer); "
        "it runs here if it is built with sm_75 in arch, or compute_XY of at most that"
    )


def test_a_gpu_before_cuda_13_names_the_compilers(manifest):
    error = choose(manifest("sm_80", "compute_75"), (7, 0), driver=(13, 0), gpu="GPU 0 (old)").error("mypkg.kernels")
    assert str(error).partition("newer); ")[2] == (
        "it runs here if it is built with sm_70 in arch, or compute_XY of at most that, by the compilers of CUDA 12 "
        "(extra cu12 or wide): CUDA 13's begin with 7.5"
    )


@pytest.mark.parametrize(
    ("cuda", "driver", "advice"),
    [
        ("13.0", (12, 8), "supports CUDA 12.8, and the images need CUDA 13.0, which driver 580.65 or newer has"),
        ("13.2", (13, 0), "the images need CUDA 13.2; update the driver"),  # PTX of a later minor version
    ],
)
def test_a_driver_too_old_names_both_versions(manifest, cuda, driver, advice):
    built = manifest("compute_75", toolchain={"cuda": cuda})
    error = choose(built, (9, 0), driver=driver, gpu="GPU 0").error("mypkg.kernels")
    assert type(error) is DriverTooOldError
    assert advice in str(error)


def test_each_image_has_its_own_cuda_version(manifest):
    built = manifest("sm_75", "sm_110", "compute_75", toolchain={"cuda": "12.9"})
    for image, changes in zip(
        built["fatbins"][0]["images"], ({}, {"cuda": "13.5"}, {"cuda": "12.0", "min_driver": "525.60"}), strict=True
    ):
        image.update(changes)
    assert choose(built, (7, 5), driver=(12, 0)).arch == "sm_75"
    assert choose(built, (8, 0), driver=(12, 0)).arch == "compute_75"
    assert choose(built, (11, 0), driver=(13, 0)).arch == "sm_110"
    choice = choose(built, (11, 0), driver=(12, 9))
    assert (choice.arch, dict(choice.rejected)["sm_110"]) == ("compute_75", "needs a driver for CUDA 13.0")
    choice = choose(built, (8, 0), driver=(11, 8))
    assert choice.arch is None
    assert choice.why == (
        "the driver supports CUDA 11.8, and the images need CUDA 12.0, which driver 525.60 or newer has; "
        "update the driver"
    )


@pytest.mark.parametrize(("driver", "loaded"), [(12090, False), (13000, True)])
def test_images_of_a_newer_cuda_need_its_driver(cuda, driver, loaded):
    cuda.set(devices="11.0", version=driver)
    module = cuda.package(
        manifests.kernel("axpy", "void(float32)"), targets=("sm_75", "sm_110@13.0"), toolchain={"cuda": "12.9"}
    )
    if loaded:
        module.axpy[1, 1](1.0)
    else:
        with pytest.raises(DriverTooOldError, match=r"supports CUDA 12\.9, and the images need CUDA 13\.0"):
            module.axpy[1, 1](1.0)
    assert len(cuda.calls("cuLibraryLoadData")) == loaded
