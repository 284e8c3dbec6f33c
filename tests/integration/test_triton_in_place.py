"""A Triton package in place: built from its variants file, installed, and launched on the stand-in driver."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from integration import projects
from support import triton_differential

if TYPE_CHECKING:
    from collections.abc import Callable

pytest.importorskip("triton", reason="Triton is not installed (extra triton)")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = projects.copy("tritonops", tmp_path_factory.mktemp("triton") / "project")
    projects.back_end(project, AOTCUDA_ARCH="sm_80;sm_90")
    (built,) = (project / "dist").glob("*.whl")
    return built


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


CHANGED: dict[str, list[Any]] = {
    "x": ["f4", "f4+4", "f8"],
    "n": [1, 7, 1 << 31, True],
    "num_warps": [None, 1],
    "launch_pdl": [None, True],
}
TILES: list[triton_differential.Case] = [
    *[
        ("scaled", {"x": f"desc:{x}", "y": f"desc:{y}", "factor": 0.5})
        for x, y in (
            ("f4:100x264:32x64", "f4:128x264:32x64"),
            ("f4:100x264:32x64:nan", "f4:128x264:32x64:tf32"),
            ("bfloat16:100x264:32x64", "f4:128x264:32x64"),
            ("f2:128x1024:32x64", "f2:128x1024:32x64"),
            ("f4:100x264:16x128", "f4:128x264:16x128"),
        )
    ],
    ("planes", {"x": "desc:i4:6x16x32:1x16x32", "y": "desc:i4:6x16x32:1x16x32"}),
    *[
        ("product", {**{x: f"desc:f2:{size}:1x1" for x, size in sizes.items()}, "m": m, "n": n, "k": k})
        for m, n, k in ((256, 512, 128), (128, 64, 4096), (144, 80, 72))
        for sizes in ({"a": f"{m}x{k}", "b": f"{k}x{n}", "c": f"{m}x{n}"},)
    ],
    *[("totals", {"x": "f4", "out": "f4", "m": m, "n": 512, "BM": 32, "BN": 64}) for m in (256, 100)],
]
TILES_CHANGED: dict[str, list[Any]] = {
    "x": ["f4", *[f"desc:{each}" for each in ("f4:100x264:32x32", "f4:64x100x264:1x32x64", "i4:100x264:32x64")]],
    "factor": [2],
    "n": [7],
    "num_warps": [None, 2],
}


@pytest.mark.parametrize(
    ("source", "cases", "changed", "arch", "same"),
    [
        pytest.param("ops", CASES, CHANGED, "sm_90a", 1, id="ops"),
        pytest.param("tiles", TILES, TILES_CHANGED, "sm_90a", 1, id="tiles", marks=pytest.mark.matrix),
        pytest.param("tiles", TILES, TILES_CHANGED, "sm_80", 2, id="without tensor maps", marks=pytest.mark.matrix),
    ],
)
def test_launches_are_those_of_the_jit(
    wheel: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    once: Callable[[str, Callable[[Path], object]], Path],
    source: str,
    cases: list[triton_differential.Case],
    changed: dict[str, list[Any]],
    arch: str,
    same: int,
) -> None:
    stand_in = Path(triton_differential.__file__).with_name("fake_libcuda_triton.c")
    command = ["gcc", "-shared", "-fPIC", "-O1", "-o", "libcuda.so.1", stand_in, "-lpthread"]
    library = once("triton-driver", lambda folder: subprocess.run(command, cwd=folder, check=True)) / "libcuda.so.1"
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "8.0" if arch == "sm_80" else "9.0")
    comparison = triton_differential.Differential(
        library, f"tritonops.{source}", projects.PACKAGES / "tritonops", tmp_path
    )
    others = [
        (name, {**case, each: value})
        for name, case in cases[::5]
        for each in changed
        if each in case or "_" in each
        for value in changed[each]
    ]
    comparison.compare(wheel, cases, others, arch)
    assert comparison.problems == []
    # The JIT compiles once for 8000 and 8008, because of do_not_specialize, and for paddings without tensor maps.
    assert comparison.counts["variants"] == len(cases) - same
    assert comparison.counts["neighbours"] > comparison.counts["neighbours that are packaged"] > 0


def test_sources_stay_as_they_are(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in ("ops.py", "cache.py"):
            assert archive.read(f"tritonops/{name}") == (projects.PACKAGES / "tritonops/tritonops" / name).read_bytes()
        assert "tritonops/ops.aotcuda/tuning.json" in archive.namelist()
