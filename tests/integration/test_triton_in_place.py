"""A Triton package in place: built from its variants file, installed, and launched in the stand-in driver."""

from __future__ import annotations

import importlib
import struct
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from aotcuda.runtime import driver
from integration import projects

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.stand_in import DeviceArray, StandIn

triton = pytest.importorskip("triton", reason="Triton is not installed (extra triton)")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = projects.copy("tritonops", tmp_path_factory.mktemp("triton") / "project")
    projects.back_end(project, AOTCUDA_ARCH="sm_90")
    (found,) = (project / "dist").glob("*.whl")
    return found


@pytest.fixture
def ops(cuda: StandIn, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The installed package's module; a launch that goes to Triton's JIT fails."""

    def run(self: Any, *_args: Any, grid: Any, warmup: bool, **_named: Any) -> None:
        pytest.fail(f"Triton has to compile {self.__name__}")

    monkeypatch.setattr(triton.runtime.jit.JITFunction, "run", run)
    monkeypatch.delenv("AOTCUDA_IN_PLACE", raising=False)
    projects.unpacked(wheel, cuda.packages)
    importlib.invalidate_caches()
    yield importlib.import_module("tritonops.ops")
    for name in [name for name in sys.modules if name.partition(".")[0] == "tritonops"]:
        del sys.modules[name]


def launch(cuda: StandIn, ops: Any, case: str) -> list[DeviceArray]:
    """Launch a kernel as a user of the package does; gives its arrays."""
    x, y, out = (array(cuda, "<f4") for _ in range(3))
    name, _, size = case.partition(" ")
    n = int(size)
    if name == "add":
        ops.add[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, y, out, n, BLOCK=1024)
    elif name == "relu":
        ops.add[(7,)](x, y, out, n, 128, "relu")
    elif name == "norm":
        ops.norm[(8,)](x, None, out, n, 1e-5, BLOCK=1024)
    elif name == "bias":
        ops.norm[(8,)](array(cuda, "<f2"), x, array(cuda, "<f2"), n, 1e-5, BLOCK=1024)
    elif name == "softmax":
        ops.softmax[(8,)](x, out, n)
    elif name == "total":
        ops.total[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
    elif name == "scaled":
        ops.scaled[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    else:
        getattr(ops, name).run(x, out, n, BLOCK=256, grid=(3,), warmup=False)
    return [x, y, out]


def array(cuda: StandIn, typestr: str) -> Any:
    found: Any = cuda.array(np.zeros(8192, typestr))
    found.dtype = "torch.float32"  # of which an autotuner's key is made
    return found


@pytest.mark.parametrize(
    ("case", "symbol", "grid", "threads"),
    [
        ("add 8000", "add__4_0", 8, 128),
        ("add 8008", "add__5_0", 8, 128),
        ("relu 8008", "add__3_0", 7, 128),
        ("norm 1024", "norm__0_0", 8, 128),
        ("bias 777", "norm__7_0", 8, 128),
        ("softmax 1024", "softmax__0_0", 8, 256),
        ("softmax 1001", "softmax__1_0", 8, 256),
        ("softmax 64", "softmax__2_0", 8, 64),
        ("total 4096", "total__4_0", 4, 256),
        ("total 5000", "total__5_0", 5, 256),
        ("total 77", "total__1_0", 2, 64),
        ("scaled 4096", "scaled__5_0", 4, 256),
        ("copy 8000", "copy__0_0", 3, 128),
        ("copy_of_any 8008", "copy_of_any__0_0", 3, 128),
    ],
)
def test_a_launch_takes_the_variant_that_triton_would_compile(
    case: str, symbol: str, grid: int, threads: int, cuda: StandIn, ops: Any
) -> None:
    for _ in range(3):
        launch(cuda, ops, case)
    found = [(call["kernel"], call["grid"][0], call["block"][0]) for call in cuda.launches()]
    assert found == [(symbol, grid, threads)] * 3


def test_the_parameter_block_is_that_of_triton(cuda: StandIn, ops: Any) -> None:
    x, y, out = launch(cuda, ops, "add 8008")
    assert cuda.parameters() == struct.pack("<QQQi4xQQ", x.address, y.address, out.address, 8008, 0, 0)


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
