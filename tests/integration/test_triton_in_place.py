"""A Triton package in place: built from its variants file, installed, and launched in the stand-in driver."""

from __future__ import annotations

import importlib
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aotcuda.runtime import driver
from integration import projects
from support import triton_differential

if TYPE_CHECKING:
    from collections.abc import Callable

triton = pytest.importorskip("triton", reason="Triton is not installed (extra triton)")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = projects.copy("tritonops", tmp_path_factory.mktemp("triton") / "project")
    projects.back_end(project, AOTCUDA_ARCH="sm_90")
    (found,) = (project / "dist").glob("*.whl")
    return found


CASES: list[triton_differential.Case] = [
    ("add", {"x": "f4", "y": "f4", "out": "f4", "n": 8000, "BLOCK": 1024}),
    ("add", {"x": "f4", "y": "f4", "out": "f4", "n": 8008, "BLOCK": 1024}),
    ("add", {"x": "f4", "y": "f4", "out": "f4", "n": 8008, "BLOCK": 128, "ACT": "relu"}),
    ("norm", {"x": "f4", "bias": None, "out": "f4", "n": 1024, "eps": 1e-5, "BLOCK": 1024}),
    ("norm", {"x": "f2", "bias": "f4", "out": "f2", "n": 777, "eps": 1e-5, "BLOCK": 1024}),
    *[("softmax", {"x": "f4", "out": "f4", "n": n}) for n in (1024, 1001, 64)],
    *[("total", {"x": "f4", "out": "f4", "n": n}) for n in (4096, 5000, 77)],
    ("scaled", {"x": "f4", "scale": "f4", "out": "f4", "n": 4096}),
    *[(name, {"x": "f4", "out": "f4", "n": 8000, "BLOCK": 256}) for name in ("copy", "copy_of_any")],
    ("copy_of_any", {"x": "f4", "out": "f4", "n": 8008, "BLOCK": 256}),
]


def test_launches_are_those_of_the_jit(
    wheel: Path, tmp_path: Path, once: Callable[[str, Callable[[Path], object]], Path]
) -> None:
    stand_in = Path(triton_differential.__file__).with_name("fake_libcuda_triton.c")
    command = ["gcc", "-shared", "-fPIC", "-O1", "-o", "libcuda.so.1", stand_in, "-lpthread"]
    library = once("triton-driver", lambda folder: subprocess.run(command, cwd=folder, check=True)) / "libcuda.so.1"
    found = triton_differential.Differential(library, "tritonops.ops", projects.PACKAGES / "tritonops", tmp_path)
    changed = {
        "x": ["f4", "f4+4", "f8"],
        "n": [1, 7, 1 << 31, True],
        "num_warps": [None, 1],
        "launch_pdl": [None, True],
    }
    others = [(name, {**case, each: value}) for name, case in CASES[::8] for each in changed for value in changed[each]]
    found.compare(wheel, CASES, others)
    assert found.problems == []
    assert found.counts["variants"] == len(CASES) - 1  # do_not_specialize: 8000 and 8008 are one
    assert found.counts["neighbours"] > found.counts["neighbours that are packaged"] > 0


def test_sources_stay_as_they_are(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in ("ops.py", "cache.py"):
            assert archive.read(f"tritonops/{name}") == (projects.PACKAGES / "tritonops/tritonops" / name).read_bytes()
        assert "tritonops/ops.aotcuda/tuning.json" in archive.namelist()


def test_the_source_tree_has_triton_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(projects.PACKAGES / "tritonops"))
    try:
        ops = importlib.import_module("tritonops.ops")
        assert ops.triton is triton
        assert type(ops.add) is triton.JITFunction
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "tritonops"]:
            del sys.modules[name]
    assert driver._driver is None
