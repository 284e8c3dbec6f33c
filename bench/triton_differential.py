"""Compare packaged Triton kernels with Triton's JIT: every variant, and each launch that differs in one thing.

Both launch on the stand-in driver, which logs each call; no GPU is needed. Machine code, grid, block, shared memory,
launch attributes and parameters of each variant must equal those of the JIT, for each form of a launch. A launch for
which the JIT would compile other code must be a miss. The cases vary types and hints of arguments, types and values of
constexprs, options, heuristics and autotuners. `aotcuda record`, which watches the JIT, writes the variants of
`bench/tritonmany`. Those of `tests/packages/tritoninplace` were written by hand.

    python bench/triton_differential.py               # about two minutes on two cores
    python bench/triton_differential.py --descriptors --out docs/results/triton_descriptors.json
"""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support import triton_differential as differential

ROOT = Path(__file__).resolve().parent.parent

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
"""Values of each parameter and option of the kernels of `bench/tritonmany`.

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
"""Values with tensor descriptors (dtype, shape, block shape, flags) for `bench/tritonmany`."""

_ALL_OPTIONS = {name: values[1] for name, values in _OPTIONS.items()}
_WITHOUT_BIAS = {"bias": None, "HAS_BIAS": False, "EVEN": False, "BLOCK": 128, "DT": "tl.float32"}
IN_PLACE_VARIANTS: list[dict[str, Any]] = [
    {},
    {**_WITHOUT_BIAS, "out": "f4+4", "num_warps": 8},
    {**_WITHOUT_BIAS, "out": "f4", **_ALL_OPTIONS, "num_warps": None, "num_stages": None},
]
"""Values of the variants of IN_PLACE that replace the first ones."""


def variants(kernels: dict[str, dict[str, list[Any]]]) -> list[differential.Case]:
    """Return the packaged cases: for each kernel the first values, and the cases that differ in one value."""
    found = []
    for kernel, values in kernels.items():
        base = {name: each[0] for name, each in values.items()}
        found += [(kernel, base), *_changed(kernel, base, values)]
        found += [(kernel, {**base, **_ALL_OPTIONS})] if "num_ctas" in values else []
    return found


def neighbours(cases: list[differential.Case], kernels: dict[str, dict[str, list[Any]]]) -> list[differential.Case]:
    """Return cases that differ from others in one value."""
    found = {repr(each): each for kernel, case in cases for each in _changed(kernel, case, kernels[kernel])}
    return [each for key, each in found.items() if key not in set(map(repr, cases))]


def _changed(kernel: str, case: dict[str, Any], values: dict[str, list[Any]]) -> list[differential.Case]:
    pairs = [(name, value) for name, each in values.items() for value in each if repr(value) != repr(case[name])]
    return [(kernel, {**case, name: value}) for name, value in pairs]


def main() -> int:
    parser = machine.parser(__doc__, "triton_differential")
    parser.add_argument("--kernels", nargs="*", choices=[*KERNELS], default=[*KERNELS])
    parser.add_argument("--descriptors", action="store_true", help="kernels with tensor descriptors alone")
    arguments = parser.parse_args()
    here = machine.describe()
    kernels = {name: KERNELS[name] for name in arguments.kernels}
    base = {name: values[0] for name, values in IN_PLACE["norm.fn.fn"].items()}
    written = [("norm.fn.fn", base | changed) for changed in IN_PLACE_VARIANTS]
    counts, problems = {}, []
    many, in_place = ROOT / "bench" / "tritonmany", ROOT / "tests" / "packages" / "tritoninplace"
    parts = [(many, "tritonmany.kernels", None, kernels), (in_place, "tritoninplace.norm", written, IN_PLACE)]
    if arguments.descriptors:
        parts = [(many, "tritonmany.kernels", None, DESCRIPTORS)]
    for project, source, cases, others in parts:
        with tempfile.TemporaryDirectory() as temporary:
            found = _compare(Path(temporary), project, source, cases, others)
        counts[source], problems = found.counts, problems + found.problems
        print(source, found.counts)
    print("\n".join(problems) or "no difference")
    triton = importlib.metadata.version("triton")
    machine.write(arguments.out, here, triton=triton, counts=counts, problems=problems)
    return 1 if problems else 0


def _compare(
    folder: Path,
    original: Path,
    source: str,
    cases: list[differential.Case] | None,
    kernels: dict[str, dict[str, list[Any]]],
) -> differential.Differential:
    """Build a copy of a project, and compare it; without cases its variants are recorded."""
    stand_in = ROOT / "tests" / "support" / "fake_libcuda_triton.c"
    library = folder / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, stand_in, "-lpthread"], check=True)
    project = Path(shutil.copytree(original, folder / "project"))
    found = differential.Differential(library, source, project, folder)
    if cases is None:
        cases = variants(kernels)
        found.record(cases)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist", project]
    subprocess.run(command, env=machine.environment(AOTCUDA_ARCH="sm_90"), check=True)
    found.compare(next((folder / "dist").glob("*.whl")), cases, neighbours(cases, kernels))
    return found


if __name__ == "__main__":
    sys.exit(main())
