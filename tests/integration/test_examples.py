"""Test the examples of Triton that the pages show: each is built, and its launches get packaged code."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from integration import projects

pytest.importorskip("triton", reason="Triton is not installed (extra triton)")

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.stand_in import DeviceArray, StandIn


def floats(cuda: StandIn, *shape: int) -> DeviceArray:
    """Return a float32 array on the stand-in's GPU."""
    return cuda.array(np.zeros(shape, "<f4"))


def test_triton_in_place_launches_packaged_code(cuda: StandIn, wheel_of_example: Callable[[str], Path]) -> None:
    cuda.set(devices="8.0")
    cuda.install(wheel_of_example("triton_in_place"))
    rms = importlib.import_module("norms.rms")
    for columns, variant in ((1024, "rms_rows__0_0"), (1000, "rms_rows__1_0")):
        rms.rms_norm(floats(cuda, 33, columns), floats(cuda, columns), floats(cuda, 33, columns))
        call = cuda.launches()[-1]
        assert (call["kernel"], call["grid"], call["block"]) == (variant, [33, 1, 1], [128, 1, 1])
    assert rms.rms_rows.served == (2, 0, 0)


def test_pack_serves_the_unchanged_package(cuda: StandIn, tmp_path: Path) -> None:
    cuda.set(devices="8.0")
    project = projects.example("pack", tmp_path / "project")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target")
    projects.succeed(project, *pip, cuda.packages, project / "upstream")
    wheel = projects.build_wheel(project, AOTCUDA_ARCH="sm_80", PYTHONPATH=str(cuda.packages))
    cuda.install(wheel)
    ops = importlib.import_module("rowmath.ops")
    importlib.import_module("rowmath_pack")
    ops.softmax(floats(cuda, 7, 512), floats(cuda, 7, 512))
    assert cuda.launches()[-1]["grid"] == [7, 1, 1]
    assert ops._softmax.served == (1, 0, 0)
