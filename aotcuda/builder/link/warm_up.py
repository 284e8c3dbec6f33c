"""Linking and packing a little, so that a process that stands by has what they need in its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuda.bindings import nvvm

from aotcuda.builder.config.model import Options
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import nvfatbin, nvjitlink
from aotcuda.builder.link.images import described

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aotcuda.arch import Target

_KERNEL = b"""\
target triple = "nvptx64-nvidia-cuda"
target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-\
v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"

declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()

define void @warm_up(float* %x, float %a, i64 %n) {
entry:
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %first = sext i32 %t to i64
  %any = icmp slt i64 %first, %n
  br i1 %any, label %loop, label %end
loop:
  %i = phi i64 [ %first, %entry ], [ %next, %loop ]
  %p = getelementptr float, float* %x, i64 %i
  %v = load float, float* %p
  %d = fdiv float %v, %a
  store float %d, float* %p
  %next = add i64 %i, 32
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}

!nvvm.annotations = !{!0}
!0 = !{void (float*, float, i64)* @warm_up, !"kernel", i32 1}
!nvvmir.version = !{!1}
!1 = !{i32 2, i32 0, i32 3, i32 1}
"""


def warm_up(targets: Iterable[Target]) -> None:
    """Do what links of kernels do for each of the targets, and throw it away."""
    for target in targets:
        if target.kind != "sass":
            continue
        code = LinkInput(kind="ltoir", name="warm-up", data=_ltoir(target))
        data, _ = nvjitlink.relocatable("warm-up", [code], target, Options(), [])
        linked, _ = nvjitlink.link(
            "warm-up", [LinkInput(kind="cubin", name="warm-up", data=data)], target, Options(), []
        )
        for pack in nvfatbin.packing([described(target, linked, nvjitlink.number())], "warm-up"):
            pack()


def _ltoir(target: Target) -> bytes:
    program = nvvm.create_program()
    try:
        nvvm.add_module_to_program(program, _KERNEL, len(_KERNEL), "warm-up")
        options = ["-gen-lto", f"-arch=compute_{target.number}"]
        nvvm.compile_program(program, len(options), options)
        buffer = bytearray(nvvm.get_compiled_result_size(program))
        nvvm.get_compiled_result(program, buffer)
        return bytes(buffer)
    finally:
        nvvm.destroy_program(program)
