"""Test errors for code that some targets cannot have, and for globals of Triton's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aotcuda.arch import parse
from aotcuda.builder.config.model import Options
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import nvrtc
from aotcuda.builder.plan import toolchain
from integration import projects

if TYPE_CHECKING:
    from pathlib import Path

DEBUG = """
from numba import cuda

@cuda.jit(debug=True, opt=False)
def a(x):
    x[0] = 1

@cuda.jit
def b(x):
    x[0] = 2
"""
CALLS = """
from numba import cuda

f = cuda.declare_device("f", "float32(float32)", abi="c")

@cuda.jit
def a(x):
    x[0] = f(x[0])
"""
PLAIN = 'extern "C" __device__ float f(float x) { return x + 1; }'
REDUX = """
extern "C" __device__ float f(float x) {
    unsigned v;
    asm volatile("redux.sync.add.s32 %0, 3, 0xffffffff;" : "=r"(v));
    return v;
}
"""


def message(folder: Path, source: str, arch: str, module: str, linked: dict[str, bytes]) -> str:
    """Return the error of a project that links files and cannot be built for a target."""
    project = projects.write(folder / "project", projects.source(source), aotcuda=f'arch = ["{arch}"]', module=module)
    for name, data in linked.items():
        (project / name).write_bytes(data)
    return projects.refused(project).message


def test_debug_kernel_for_ptx_is_refused(front_end: str, tmp_path: Path) -> None:
    kernels = 'kernels.a = "void(float32[::1])"\nkernels.b = "void(float32[::1])"'
    assert message(tmp_path, DEBUG, "compute_75", kernels, {}) == (
        f"{projects.MODULE}.kernels.a: debug=True gives machine code alone, and compute_75 of arch is PTX; "
        "remove debug=True from the kernel's decorator, or list sm_* targets only"
    )


def test_ltoir_newer_than_the_target_is_refused(tmp_path: Path) -> None:
    item = LinkInput(kind="cu", name="f.cu", data=PLAIN.encode())
    code = nvrtc.compile_source(item, parse("sm_80"), Options(), toolchain.include_dirs(), lto=True)
    module = 'link = ["f.ltoir"]\nkernels.a = "void(float32[::1])"'
    assert message(tmp_path, CALLS, "sm_75", module, {"f.ltoir": code}) == (
        "pkg.k: linking for sm_75 failed: an input holds LTOIR for compute capability 8.0, which is newer (f.ltoir); "
        "compile it for the lowest target, as with nvcc -dlto -arch, or list sm_80 and later ones in arch"
    )


def test_instruction_of_newer_gpus_is_refused(tmp_path: Path) -> None:
    module = 'link = ["f.cu"]\nkernels.a = "void(float32[::1])"'
    text = message(tmp_path, CALLS, "sm_75", module, {"f.cu": REDUX.encode()})
    assert text.startswith(f"{projects.MODULE}.link[0]: f.cu does not compile for sm_75: ")
    assert "; it compiles for sm_80: list that and later ones in arch" in text


CONVERTS = """
import triton
import triton.language as tl

@triton.jit
def f(x, y):
    offsets = tl.arange(0, 128)
    tl.store(y + offsets, tl.load(x + offsets).to(y.dtype.element_ty))
"""


@pytest.mark.parametrize(
    ("pointer", "arch", "dtype"),
    [
        ("fp8e5", "sm_80", "float8_e5m2"),
        ("fp8e4nv", "sm_80", None),
        pytest.param("fp8e4nv", "sm_89", "float8_e4m3fn", marks=pytest.mark.matrix),
    ],
)
def test_float8_pointers_are_built_where_the_target_has_the_type(
    pointer: str, arch: str, dtype: str | None, tmp_path: Path
) -> None:
    pytest.importorskip("triton")
    key = f'kernels.f = ["*{pointer}:16, *fp32", "*fp32:16, *{pointer}"]'
    module = f'frontend = "triton"\n{key}'
    if dtype is None:
        text = message(tmp_path, CONVERTS, arch, module, {})
        assert f"type {pointer} not supported in this architecture. The supported fp8 dtypes are (" in text
        assert " (pkg/_k.py:6" in text
        return
    project = projects.write(tmp_path / "project", CONVERTS, aotcuda=f'arch = ["{arch}"]', module=module)
    (kernel,) = projects.manifest_of(projects.content(projects.build_wheel(project)), "pkg.k")["kernels"]
    assert [[item["dtype"] for item in overload["parameters"][:2]] for overload in kernel["overloads"]] == [
        [dtype, "<f4"],
        ["<f4", dtype],
    ]


def test_plain_global_of_triton_kernel_is_refused_with_place(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    source = """
import triton
import triton.language as tl

N = 16

@triton.jit
def f(x, n):
    offsets = tl.arange(0, N)
    tl.store(x + offsets, 1.0, mask=offsets < n)
"""
    module = 'frontend = "triton"\nkernels.f = { signature = "*fp32:16, i32" }'
    text = message(tmp_path, source, "sm_80", module, {})
    assert "Cannot access global variable N from within @jit" in text
    assert "(pkg/_k.py:9: offsets = tl.arange(0, N))" in text
