"""Test that `aotcuda check` predicts the choice of the run time, for wheels, GPUs and drivers on the stand-in."""

from __future__ import annotations

import importlib
import sys

import pytest

from aotcuda import manifest
from aotcuda.common import gpu_facts
from aotcuda.errors import DriverTooOldError, NoImageError
from aotcuda.gpus import CAPABILITIES
from aotcuda.runtime import driver
from aotcuda.tools.check.gpus import Driver, Gpu
from aotcuda.tools.check.predict import predict
from support import manifests

RECIPE = {"table": {}, "names": {}, "root": "mypkg/kernels.aotcuda/sources", "files": []}

WHEELS = {
    "of the README": ("sm_75 sm_80 sm_90 sm_100 sm_120 compute_75", {"cuda": "13.0"}),
    "of two toolkits": (
        "sm_75 sm_80 sm_87 sm_90 sm_100 sm_120 sm_88@13.5 sm_107@13.5 sm_110@13.5 compute_75@12.0",
        {"cuda": "12.9"},
    ),
    "suffixes": ("sm_90a sm_100f sm_103a sm_120f compute_100f compute_90", {"cuda": "12.9"}),
    "with PTX of a newer toolkit": ("sm_80 compute_86 compute_100", {"cuda": "13.3"}),
    "without code for Jetson": ("sm_80 sm_86", {"cuda": "12.2"}),
    "without the toolkit's version": ("sm_80 compute_75", {}),
}

GPUS = [row.number for row in CAPABILITIES] + [(5, 2), (10, 9), (13, 0)]
DRIVERS = [(11, 8), *(branch.cuda for branch in gpu_facts.branches()), (14, 0)]


def read(folder):
    return manifest.read(str(folder / manifest.FILE_NAME))


def fresh_import():
    """Import the packaged module as a new process does, and start the driver again."""
    driver._driver = None
    for name in [name for name in sys.modules if name.startswith("mypkg")]:
        del sys.modules[name]
    return importlib.import_module("mypkg.kernels")


def launch(cuda, capability, cuda_version):
    """Launch a kernel. Return the target of the loaded image, or None if no image can run."""
    cuda.set(devices="{}.{}".format(*capability), version=cuda_version[0] * 1000 + cuda_version[1] * 10)
    cuda._fake.fake_reset()
    module = fresh_import()
    try:
        module.axpy[1, 1](2.0)
    except (NoImageError, DriverTooOldError):
        return None
    return module.__aotcuda__.chosen[0].arch


@pytest.mark.parametrize("wheel", WHEELS)
def test_each_pair_loads_the_predicted_image(cuda, wheel):
    targets, toolchain = WHEELS[wheel]
    kernel = manifests.kernel("axpy", "void(float32)")
    folder = manifests.write(cuda.packages, [kernel], targets=tuple(targets.split()), toolchain=toolchain)
    predicted, loaded, content = {}, {}, read(folder)
    for capability in GPUS:
        for version in DRIVERS:
            cell = predict(content, Gpu("", capability), Driver("", version))
            predicted[capability, version] = cell.image
            loaded[capability, version] = launch(cuda, capability, version)
            assert (cell.takes in ("exact", "same-major", "ptx")) == (cell.image is not None)
    assert predicted == loaded
    assert set(predicted.values()) > {None}


@pytest.mark.parametrize("wheel", ["of the README", "suffixes", "of two toolkits"])
@pytest.mark.parametrize("changes", [{"fallback": "jit", "rebuild": RECIPE}, {"fallback": "jit"}, {"rebuild": RECIPE}])
def test_jit_fallback_is_predicted_where_the_run_time_uses_it(cuda, wheel, changes):
    targets, toolchain = WHEELS[wheel]
    kernel = manifests.kernel("axpy", "void(float32)")
    folder = manifests.write(cuda.packages, [kernel], targets=tuple(targets.split()), toolchain=toolchain, **changes)
    module = cuda.package(kernel, targets=tuple(targets.split()), toolchain=toolchain, **changes).__aotcuda__
    can_compile, content = module._images.fallback().build_inputs() is not None, read(folder)
    for capability in GPUS:
        for version in DRIVERS[1:]:
            cell = predict(content, Gpu("", capability), Driver("", version))
            compiles = can_compile and module.choice_for(capability, version).arch is None
            is_renamed = capability == (10, 1)  # no toolkit uses this number now
            assert (cell.takes == "jit") == (compiles and not is_renamed), (capability, version)
