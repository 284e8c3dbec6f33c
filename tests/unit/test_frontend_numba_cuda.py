"""Check the steps of the front end for Numba-CUDA from LLVM IR to LTOIR."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from aotcuda.arch import parse
from aotcuda.builder.config.model import Options
from aotcuda.builder.frontends.numba_cuda import compiler
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import nvjitlink

KERNEL = """\
target triple = "nvptx64-nvidia-cuda"
target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-\
v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"

declare i32 @"llvm.nvvm.read.ptx.sreg.tid.x"()
{declared}

define void @"{name}"(float* %"x", float %"a", i64 %"n")
{{
entry:
  %"t" = call i32 @"llvm.nvvm.read.ptx.sreg.tid.x"()
  %"i" = sext i32 %"t" to i64
  %"r" = srem i64 %"i", %"n"
  %"p" = getelementptr float, float* %"x", i64 %"r"
  %"v" = load float, float* %"p"
  %"d" = fdiv float %"v", %"a"
  {called}
  store float %"d", float* %"p"
  ret void
}}

@llvm.used = appending global [1 x i8*] [i8* bitcast (void (float*, float, i64)* @"{name}" to i8*)], \
section "llvm.metadata"
!nvvm.annotations = !{{ !0 }}
!0 = !{{ void (float*, float, i64)* @"{name}", !"kernel", i32 1 }}
!nvvmir.version = !{{ !1 }}
!1 = !{{ i32 2, i32 0, i32 3, i32 1 }}
"""


def text(name: str = "k", declared: str = "", called: str = "") -> str:
    return KERNEL.format(name=name, declared=declared, called=called)


def settings(target: str) -> dict[str, object]:
    return {"fastmath": False, "opt": 3, "gen_lto": None, "arch": f"compute_{target.removeprefix('sm_')}"}


@pytest.mark.parametrize("target", ["sm_75", "sm_90", "sm_100", "sm_120"])
def test_code_linked_without_libdevice_equals_code_linked_with_it(target: str) -> None:
    code = []
    for is_shipped in (True, False):
        ltoir = compiler._compile([text()], settings(target), parse(target), is_shipped=is_shipped)
        item = LinkInput(kind="ltoir", name="code of k", data=ltoir)
        code.append((ltoir, nvjitlink.relocatable("m", [item], parse(target), Options(), [])))
    assert code[0][0] != code[1][0]  # LTOIR in wheels has the library's marks
    assert code[0][1] == code[1][1]
    assert b".text.k" in code[0][1][0]


def test_code_that_calls_libdevice_is_linked_with_it() -> None:
    sine = '%"s" = call float @"__nv_sinf"(float %"d")\n  store volatile float %"s", float* %"p"'
    called = text(declared='declare float @"__nv_sinf"(float)', called=sine)
    code = compiler._compile([text("other"), called], settings("sm_90"), parse("sm_90"))
    item = LinkInput(kind="ltoir", name="code of k", data=code)
    assert b".text.k" in nvjitlink.link("m", [item], parse("sm_90"), Options(), [])[0]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('%"s" = call float @"__nv_sinf"(float %"x")', True),
        ("%s = call float @__nv_fast_sinf(float %x)", True),
        ('%"s" = call double @"llvm.sin.f64"(double %"x")', True),
        ("%s = frem double %x, %y", True),
        ('%".3" = call i32 @"llvm.nvvm.read.ptx.sreg.tid.x"()', False),
        ("call void @llvm.nvvm.barrier0()", False),
        ("call void @llvm.memcpy.p0i8.p0i8.i64(i8* %a, i8* %b, i64 4, i1 false)", False),
        ("%freme = srem i64 %x, %y", False),
    ],
)
def test_calls_of_libdevice_are_found(line: str, *, expected: bool) -> None:
    assert bool(compiler._MAY_CALL_LIBDEVICE.search(line.encode())) == expected


def test_invalid_code_is_refused_for_each_target() -> None:
    wrong = re.sub(r"store float", "store atomic volatile float", text())
    for target in ("sm_75", "sm_80"):
        with pytest.raises(compiler.nvvm.nvvmError):
            compiler._compile([wrong], settings(target), parse(target))


INSTALLED = """
from numba.cuda import descriptor, types
from numba.cuda.extending import lower_builtin
from aotcuda.builder.frontends.numba_cuda import compiler
from aotcuda.builder.frontends.protocol import Session

compiler.FRONT_END.prepare(Session(root="/", cache=None))
context = descriptor.cuda_target.target_context
for each in (context, context.typing_context):
    assert each._registries
    each.refresh()
    for registry, loader in each._registries.items():
        assert all(not list(loader.new_registrations(name)) for name in loader.registry_items)

def extended(x): pass

@lower_builtin(extended, types.float32)
def lowered(*_): pass

context.refresh()
assert extended in context._defns
"""


def test_registered_lowerings_are_installed() -> None:
    done = subprocess.run([sys.executable, "-c", INSTALLED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
