"""Compare packaged Triton kernels with Triton's JIT: every variant, and each launch that differs in one thing.

Both launch on the stand-in driver, which logs each call. Machine code, grid, block, shared memory, launch attributes
and parameters of each variant must equal those of the JIT, for each form of a launch. A launch for which the JIT would
compile other code must be a miss. The cases vary types and hints of arguments, types and values of constexprs,
options, heuristics and autotuners. `aotcuda record`, which watches the JIT, writes the variants of
`tests/packages/tritonmany`; those of the other packages were written by hand. CI runs the cases of one package.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from integration import projects
from slow.triton_differential import Case, Differential

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slow.conftest import Extent

    Once = Callable[[str, Callable[[Path], object]], Path]

pytest.importorskip("triton", reason="Triton is not installed (extra triton)")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of `tests/packages/tritonops`."""
    return _built(projects.copy("tritonops", tmp_path_factory.mktemp("triton") / "project"), "sm_80;sm_90")


@pytest.fixture
def library(once: Once) -> Path:
    """Return the stand-in driver for Triton."""
    stand_in = projects.CHECKOUT / "tests" / "support" / "fake_libcuda_triton.c"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-o", "libcuda.so.1", stand_in, "-lpthread"]
    return once("triton-driver", lambda folder: subprocess.run(command, cwd=folder, check=True)) / "libcuda.so.1"


def _built(project: Path, archs: str) -> Path:
    projects.back_end(project, AOTCUDA_ARCH=archs)
    (built,) = (project / "dist").glob("*.whl")
    return built


CASES: list[Case] = [
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
TILES: list[Case] = [
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
    library: Path,
    source: str,
    cases: list[Case],
    changed: dict[str, list[Any]],
    arch: str,
    same: int,
) -> None:
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "8.0" if arch == "sm_80" else "9.0")
    comparison = Differential(library, f"tritonops.{source}", projects.PACKAGES / "tritonops", tmp_path)
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


_POINTERS = [
    *("f4", "f4+4", "f2", "f8", "i4", "i1", "u1", "i8", "u2", "b1", "bfloat16", "float8_e5m2", "float8_e4m3fn"),
    None,
]
_NUMBERS = [1024, 7, 1, 0, -16, 1 << 31, (1 << 31) + 1, (1 << 64) - 16, True]
_CONSTANTS = [None, 1, 1.0, True, 0, False, 0.0, -0.0, 2, 3, 2.5, "relu", "1", "other", 1 << 40, -1]
_OPTIONS = {
    "num_warps": [None, 2, 8],
    "num_stages": [None, 2],
    "num_ctas": [None, 2],
    "maxnreg": [None, 64],
    "enable_fp_fusion": [None, False],
    "launch_pdl": [None, True],
    "launch_cooperative_grid": [None, True],
}
KERNELS: dict[str, dict[str, list[Any]]] = {
    "every": {
        "x": _POINTERS,
        "y": ["f4", "f2+2", "bfloat16"],
        "n": _NUMBERS,
        "factor": [0.5, 1.0, 2, 1, True],
        "BLOCK": [128, 64],
        "K": _CONSTANTS,
        **_OPTIONS,
    },
    "rigid": {"x": ["f4", "f4+4", "i4"], "y": ["f4", "f4+4"], "n": _NUMBERS, "factor": [0.5, 2], "BLOCK": [128]},
    "typed": {
        "x": ["f8", "f8+8"],
        "n": [1024, 7, 1],
        "m": [1024, 7, 1],
        "f": [0.5, 2, True],
        "flag": [True, False, 1, 0],
        "BLOCK": [64],
    },
    "cast": {"x": ["f4"], "y": ["f4"], "DT": ["tl.float16", "tl.bfloat16", "tl.int32", "tl.float32"], "BLOCK": [64]},
    "stages": {"x": ["f4"], "y": ["f4"], "n": [1024, 7], "BLOCK": [64], "num_stages": [1, 2, 3]},
    "optional": {"x": ["f4"], "bias": [None, "f4", "f4+4"], "y": ["f4"], "n": [1024, 7], "BLOCK": [64, 128]},
    "sized": {"x": ["f4", "f4+4"], "y": ["f4"], "n": [64, 60, 512, 1000], "launch_pdl": [None, True]},
    "tuned": {"x": ["f4", "f2"], "y": ["f4"], "n": [64, 60, 512, 1000], "launch_pdl": [None, True]},
    "both": {"x": ["f4"], "bias": [None, "f4"], "y": ["f4"], "n": [64, 60, 512, 1000]},
}
"""Values of each parameter and option of the kernels of `tests/packages/tritonmany`.

The first values make a case, and each other case differs from it in one value.
"""

IN_PLACE: dict[str, dict[str, list[Any]]] = {
    "norm.fn.fn": {
        "x": ["f4", "f2", "f4+4"],
        "bias": ["f4", None, "f2"],
        "out": ["f2", "f4", "f2+2"],
        "n": [4096, 7, 1, 1 << 40],
        "eps": [0.5, 1, 2],
        "HAS_BIAS": [True, False, 1],
        "EVEN": [True, False, 1],
        "BLOCK": [64, 128, 64.0],
        "DT": ["tl.float16", "tl.float32"],
        **_OPTIONS,
    }
}
"""Values for `tests/packages/tritoninplace`, in the form of KERNELS."""


def _descriptors(*texts: str) -> list[str]:
    return [f"desc:{each}" for each in texts]


_OF_TWO = (
    *("f2:128x256:32x64", "f2:128x256:64x32", "f2:128x256:16x64", "f2:512x2048:64x64", "f2:128x256:64x64:nan", "f2"),
    *(
        "bfloat16:128x256:64x64",
        "f4:128x256:64x64",
        "f4:128x256:64x64:tf32",
        "float8_e5m2:128x256:64x64",
        "float8_e4m3fn:128x256:64x64",
    ),
    *("i1:128x256:64x64", "i4:128x256:64x64", "f2:64x64x128:1x64x64", "f2:4096:64"),
)
DESCRIPTORS: dict[str, dict[str, list[Any]]] = {
    "summed": {"x": _descriptors("f2:128x256:64x64", *_OF_TWO), "y": ["f4"], "at": [32, 7, 1], "num_warps": [None, 8]},
    "summed_1": {"x": _descriptors("f4:4096:128", "f4:4096:256", "f4:128x256:64x64"), "y": ["f4"], "at": [32]},
    "summed_3": {"x": _descriptors("f2:8x64x128:2x16x64", "f2:8x64x128:2x32x64"), "y": ["f4"], "at": [32]},
    "summed_4": {
        "x": _descriptors("bfloat16:4x8x64x128:1x2x16x64", "f2:4x8x64x128:1x1x16x64"),
        "y": ["f4"],
        "at": [32],
    },
    "summed_5": {
        "x": _descriptors("i4:2x4x8x64x128:1x1x2x16x32", "i4:2x4x8x64x128:1x1x2x8x32"),
        "y": ["f4"],
        "at": [32],
    },
    "product": {
        "a": _descriptors("f2:256x512:64x32", "f2:256x512:64x64", "bfloat16:256x512:64x32", "f2:256x512:64x32:nan"),
        "b": [*_descriptors("f2:512x256:32x64", "f2:512x256:64x64"), "f2"],
        "c": _descriptors("f4:256x256:64x64", "f2:256x256:64x64"),
        "k": [512, 7],
        "num_stages": [None, 2],
    },
    "chosen": {
        "x": _descriptors("f2:128x256:1x1", "f2:128x256:8x8"),
        "y": _descriptors("f2:128x256:1x1"),
        "n": [64, 60, 512],
    },
    "made": {
        "x": ["f2", "f2+2", "bfloat16"],
        "y": ["f2"],
        "m": [128, 7],
        "n": [256, 8],
        "BM": [32, 64],
        "num_ctas": [None, 2],
    },
}
"""Values with tensor descriptors (dtype, shape, block shape, flags) for `tests/packages/tritonmany`."""

_ALL_OPTIONS = {name: values[1] for name, values in _OPTIONS.items()}
_WITHOUT_BIAS = {"bias": None, "HAS_BIAS": False, "EVEN": False, "BLOCK": 128, "DT": "tl.float32"}
IN_PLACE_VARIANTS: list[dict[str, Any]] = [
    {},
    {**_WITHOUT_BIAS, "out": "f4+4", "num_warps": 8},
    {**_WITHOUT_BIAS, "out": "f4", **_ALL_OPTIONS, "num_warps": None, "num_stages": None},
]
"""Values of the variants of IN_PLACE that replace the first ones."""


def variants(kernels: dict[str, dict[str, list[Any]]]) -> list[Case]:
    """Return the packaged cases: for each kernel the first values, and the cases that differ in one value."""
    found = []
    for kernel, values in kernels.items():
        base = {name: each[0] for name, each in values.items()}
        found += [(kernel, base), *_changed(kernel, base, values)]
        found += [(kernel, {**base, **_ALL_OPTIONS})] if "num_ctas" in values else []
    return found


def neighbours(cases: list[Case], kernels: dict[str, dict[str, list[Any]]]) -> list[Case]:
    """Return cases that differ from others in one value."""
    found = {repr(each): each for kernel, case in cases for each in _changed(kernel, case, kernels[kernel])}
    return [each for key, each in found.items() if key not in set(map(repr, cases))]


def _changed(kernel: str, case: dict[str, Any], values: dict[str, list[Any]]) -> list[Case]:
    pairs = [(name, value) for name, each in values.items() for value in each if repr(value) != repr(case[name])]
    return [(kernel, {**case, name: value}) for name, value in pairs]


PARTS: dict[str, tuple[str, str, list[Case] | None, dict[str, dict[str, list[Any]]]]] = {
    "kinds of kernels": ("tritonmany", "tritonmany.kernels", None, KERNELS),
    "tensor descriptors": ("tritonmany", "tritonmany.kernels", None, DESCRIPTORS),
    "in place": (
        "tritoninplace",
        "tritoninplace.norm",
        [
            ("norm.fn.fn", {name: values[0] for name, values in IN_PLACE["norm.fn.fn"].items()} | changed)
            for changed in IN_PLACE_VARIANTS
        ],
        IN_PLACE,
    ),
}
"""Projects, modules, packaged cases (None: recorded ones), and the values of their kernels."""


@pytest.mark.matrix
@pytest.mark.parametrize("part", PARTS)
def test_every_variant_and_its_neighbours(tmp_path: Path, library: Path, extent: Extent, part: str) -> None:
    name, source, cases, kernels = PARTS[part]
    project = projects.copy(name, tmp_path / "project")
    found = Differential(library, source, project, tmp_path)
    if cases is None:
        cases = variants(kernels)
        found.record(cases)
    found.compare(_built(project, "sm_90"), cases, neighbours(cases, kernels))
    triton = importlib.metadata.version("triton")
    extent.add("triton_differential", part, triton=triton, counts=found.counts, problems=found.problems)
    assert found.problems == []
