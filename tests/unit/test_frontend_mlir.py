"""Check the changes of numba-cuda-mlir's front end to LLVM IR, in both dialects."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba_cuda_mlir", reason="extra mlir-cu13")

from aotcuda.builder.frontends.numba_cuda_mlir import llvm_ir, types
from aotcuda.builder.frontends.protocol import External

OLD = """\
target datalayout = "e-p:64:64:64-i32:32:32-i64:64:64-f32:32:32"

@__dynamic_shmem__0 = internal addrspace(3) global [0 x i8] zeroinitializer, align 16
@static_shared_memory_1 = private addrspace(3) global [64 x float] zeroinitializer, align 8
@__numba_cuda_mlir_error_code = common global i32 0

define ptx_kernel void @k(float*, float) !dbg !5 {
  %3 = load float, float* %0
  %4 = fdiv float %3, %1, !dbg !9
  %5 = fadd float %4, 1.000000e+00
  %6 = call float @__nv_sinf(float %5)
  %7 = cmpxchg i32* @__numba_cuda_mlir_error_code, i32 0, i32 1000 monotonic monotonic, !dbg !9
  ret void
}

declare float @__nv_sinf(float)

declare { float, i32 } @other(float, { i8*, i64 }, i1 zeroext, half)

declare void @gone()

!llvm.dbg.cu = !{!0}
!nvvm.annotations = !{!3}

!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, emissionKind: , enums: !2)
!1 = !DIFile(filename: "k.py", directory: "/home/me/\\C3\\BC \\22x\\22/pkg")
!3 = !{void (float*, float)* @k, !"kernel", i32 1}
!5 = !DILocalVariable(name: "a", arg: 1, scope: !6, line: 8)
!7 = !DILocalVariable(name: "b", arg: 1, scope: !6, line: 4)
"""
NEW = OLD.replace("float*", "ptr").replace("i32*", "ptr").replace("i8*", "ptr").replace("void (ptr, float)* @", "ptr @")
BOTH = pytest.mark.parametrize("text", [OLD, NEW], ids=["LLVM 7", "LLVM 20"])


@BOTH
def test_shared_memory_is_undefined_and_dynamic_memory_external(text: str) -> None:
    settled = llvm_ir.normalize(text, "/nowhere")
    assert "@__dynamic_shmem__0 = external addrspace(3) global [0 x i8], align 16" in settled
    assert "@static_shared_memory_1 = private addrspace(3) global [64 x float] undef, align 8" in settled


@BOTH
def test_paths_are_relative_to_projects_of_any_name(text: str) -> None:
    settled = llvm_ir.normalize(text, '/home/me/ü "x"')
    assert '!DIFile(filename: "k.py", directory: "pkg")' in settled


@BOTH
def test_debug_information_is_in_the_form_of_libnvvm(text: str) -> None:
    settled = llvm_ir.normalize(text, "/nowhere")
    assert "emissionKind: DebugDirectivesOnly," in settled
    assert '!8 = !{i32 1, !"Debug Info Version", i32 3}' in settled
    assert '!7 = !DILocalVariable(name: "b", scope: !6, line: 4)' in settled
    assert '!5 = !DILocalVariable(name: "a", arg: 1, scope: !6, line: 8)' in settled


@BOTH
def test_fast_math_is_in_the_instructions(text: str) -> None:
    fast = llvm_ir.with_fast_math(text)
    assert "%4 = call float @__nv_fast_fdividef(float %3, float %1), !dbg !9" in fast
    assert fast.count("declare float @__nv_fast_fdividef(float, float)") == 1
    assert "%5 = fadd fast float %4, 1.000000e+00" in fast
    assert "@__nv_sinf" not in fast
    assert llvm_ir.with_fast_math(fast) == fast


@BOTH
def test_register_limit_is_an_annotation_of_the_kernel(text: str) -> None:
    limited = llvm_ir.with_register_limit(text, "k", 32)
    assert "!nvvm.annotations = !{!3, !8}" in limited
    (node,) = [line for line in limited.splitlines() if line.startswith("!8 = ")]
    assert node.endswith('@k, !"maxnreg", i32 32}')


@BOTH
def test_debug_kernel_stores_error_code_and_place_by_name(text: str) -> None:
    reporting = llvm_ir.with_reports(text, "k")
    assert "__numba_cuda_mlir_error_code" not in reporting
    assert reporting.count("@k__errcode__ = global i32 0") == 1
    for name in ("tidx", "tidy", "tidz", "ctaidx", "ctaidy", "ctaidz"):
        assert f"@k__{name}__ = global i32 0" in reporting
    assert 'asm "mov.u32 $0, %ctaid.z;"' in reporting
    stores = [line for line in reporting.splitlines() if line.lstrip().startswith("store i32 %")]
    assert len(stores) == 6
    assert all(line.endswith(", !dbg !9") for line in stores)


@BOTH
def test_foreign_functions_are_known_by_their_declarations(text: str) -> None:
    assert llvm_ir.externals(text) == (
        External(name="other", result="struct", parameters=("float32", "struct", "int8", "float16")),
        External(name="gone", result="void", parameters=()),
    )


def test_arrays_are_memrefs_and_complex_numbers_one_parameter() -> None:
    args, _ = types.notation.parse("void(boolean, complex64, float32[:, ::1])", {})
    layout = types.convention.layout("k", ["flag", "z", "x"], args)
    assert layout.fields == [(0, 1), (4, 8), (16, 8), (24, 8), (32, 8), (40, 8), (48, 8), (56, 8), (64, 8)]
    assert layout.parameters[2]["words"] == ["data", "data", "zero", "shape0", "shape1", "step0", "step1"]
    assert layout.size == 72


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        ("void(float32[::1])", {2: 0, 4: 1}),
        ("void(float32, float32[:, ::1])", {3: 0, 7: 1}),
        ("void(float32[::1, :])", {2: 0, 5: 1}),
        ("void(float32[:], r[:, :])", {}),
        ("void(int8, UniTuple(r[::1], 2), complex64)", {3: 0, 5: 1, 8: 0, 10: 1}),
        ("void(Array(float32, 0, 'C'))", {}),
    ],
)
def test_offsets_and_steps_of_contiguous_arrays_are_known(signature: str, expected: dict[int, int]) -> None:
    args, _ = types.notation.parse(signature, {"r": np.dtype([("a", "i4"), ("b", "f8")])})
    layout = types.convention.layout("k", [f"x{number}" for number in range(len(args))], args)
    assert types.constants(layout) == expected


@pytest.mark.parametrize("head", ["{ float, float }, i8*, i64, i64", "{ float, float } %0, ptr %1, i64 %2, i64 %3"])
def test_known_parameters_are_constants_in_the_kernel_alone(head: str) -> None:
    body = "  %5 = mul i64 %3, %20\n  %6 = phi i64 [ %2, %4 ], [ %3, %9 ]\n"
    text = f"define ptx_kernel void @k({head}) !dbg !5 {{\n{body}}}\n"
    other = "define void @k2(i64, i64, i64, i64) {\n  %5 = add i64 %2, %3\n}\n"
    made = llvm_ir.with_constants(other + text + other, "k", {2: 0, 3: 1})
    body = "  %5 = mul i64 1, %20\n  %6 = phi i64 [ 0, %4 ], [ 1, %9 ]\n"
    assert made == f"{other}define ptx_kernel void @k({head}) !dbg !5 {{\n{body}}}\n{other}"
