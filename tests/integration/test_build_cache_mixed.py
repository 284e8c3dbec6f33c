"""Modules of all front ends in one project: after an edit of any, the cache gives what a build without it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from integration.projects import build_with, put

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("numba_cuda_mlir", reason="numba-cuda-mlir is not installed (extra mlir-cu13)")
pytest.importorskip("triton", reason="Triton is not installed (extra triton)")

FILES = {
    "pyproject.toml": """\
[tool.aotcuda]
arch = ["sm_80", "sm_90"]
fallback = "error"
[tool.aotcuda.modules."pkg.f"]
source = "csrc/f.cu"
frontend = "cuda-cpp"
functions = { twice = {} }
[tool.aotcuda.modules."pkg.k"]
source = "pkg._k"
frontend = "numba-cuda"
link = [{ module = "pkg.f" }]
kernels = { k = "void(float32[::1])" }
functions = { scaled = "float32(float32)" }
[tool.aotcuda.modules."pkg.m"]
source = "pkg._m"
frontend = "numba-cuda-mlir"
kernels = { m = "void(float32[::1])" }
functions = { exported = "float32(float32)" }
[tool.aotcuda.modules."pkg.t"]
source = "pkg._t"
frontend = "triton"
kernels = { t = { signature = "*fp32", specialise = "exact", constexprs = { BLOCK = 64 } } }
""",
    "pkg/__init__.py": "",
    "csrc/f.cu": '#include "f.h"\nextern "C" __device__ float twice(float x) { return F * x; }\n',
    "csrc/f.h": "#define F 11.0f\n",
    "pkg/_k.py": """\
from numba import cuda

twice = cuda.declare_device("twice", "float32(float32)", abi="c")


@cuda.jit
def k(x):
    x[0] = twice(x[0])


def scaled(x):
    return x * 12
""",
    "pkg/_m.py": """\
from numba_cuda_mlir import cuda


@cuda.jit(device=True)
def helper(x):
    return x * 13


@cuda.jit
def m(x):
    x[0] = helper(x[0])


def exported(x):
    return helper(x)
""",
    "pkg/_t.py": """\
import triton
import triton.language as tl


@triton.jit
def t(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) * 14)
""",
}

EDITS = {
    # The number that is edited, and the files of the wheel that have it.
    ("csrc/f.h", "11"): {"pkg/f.aotcuda/functions.fatbin", "pkg/k.aotcuda/kernels.fatbin"},
    ("pkg/_k.py", "12"): {"pkg/k.aotcuda/functions.fatbin"},
    ("pkg/_m.py", "13"): {"pkg/m.aotcuda/functions.fatbin", "pkg/m.aotcuda/kernels.fatbin"},
    ("pkg/_t.py", "14"): {"pkg/t.aotcuda/kernels.fatbin"},
}


@pytest.mark.matrix  # test_stamp_inputs has edits of each front end
def test_edit_changes_only_images_that_contain_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = put(tmp_path.resolve() / "project", FILES)

    def build(cache: str) -> dict[str, bytes]:
        return build_with(root, cache, monkeypatch).files

    before = build(str(tmp_path / "cache"))
    for (file, number), concerned in EDITS.items():
        assert FILES[file].count(number) == 1
        (root / file).write_text(FILES[file].replace(number, f"{number}5"))
        built = build(str(tmp_path / "cache"))
        changed = {name for name in built if name.endswith(".fatbin") and built[name] != before[name]}
        assert changed == concerned, file
        assert build_with(root, str(tmp_path / "cache"), monkeypatch).summary.whole, file
        before = built
    assert before == build("0")


@pytest.mark.matrix  # a file that includes the name of its folder; test_stamp_inputs has other headers
def test_header_that_uses_its_path_is_compiled_in_each_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = "__device__ inline const char *name() { return __FILE__; }\n#define F (11.0f + name()[(int)x])\n"
    cache = str(tmp_path / "cache")
    for folder in ("one", "another"):
        root = put(tmp_path.resolve() / folder / "project", {**FILES, "csrc/f.h": header})
        built, plain = build_with(root, cache, monkeypatch), build_with(root, "0", monkeypatch)
        assert built.files == plain.files
    assert (built.summary.whole, built.summary.reused > 0) == (False, True)  # what has no such header
