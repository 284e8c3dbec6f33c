"""Check which kernels refer to nothing outside their LLVM IR."""

from __future__ import annotations

import pytest

from aotcuda.builder.frontends.numba.llvm_text import is_self_contained

KERNEL = "define void @k() {{\n  store i32 1, {} @x\n  ret void\n}}\n"

OWN = {
    "nothing": "",
    "a constant": "@x = internal addrspace(4) constant [2 x float] [float 1.0, float 2.0]",
    "a text": '@x = private constant [3 x i8] c"a\\0a\\00"',
    "a shared array": "@x = addrspace(3) global [32 x float] undef, align 4",
    "a list for the compiler": '@"llvm.used" = appending global [1 x i8*] [i8* @x], section "llvm.metadata"',
    "an unused variable": "@unused = common global i8* null",
    "instructions": "declare void @llvm.nvvm.barrier0()\ndeclare float @__nv_expf(float)",
    "a helper": 'declare i32 @"helper"(i8*)\ndefine linkonce_odr i32 @"helper"(i8* %".1") {\n}',
    "a longer name": '@"x" = internal global i32 0\n@xx = common global i32 0',
}
OTHERS = {
    "a variable": "@x = common global i32 0",
    "a quoted one": '@"x" = global i32 0',
    "an external variable": "@x = external addrspace(1) global i32",
    "a constant": "@x = addrspace(4) constant i32 3",
    "a function of the driver": "declare i32 @vprintf(i8*, i8*)",
    "another function": 'declare i32 @"_ZN4oneEv"()',
    "dynamic shared memory": "@x = external addrspace(3) global [0 x float]",
}


def texts(data: str) -> list[str]:
    return ["; another module", data + "\n" + KERNEL.format("i8*").replace("@x", '@"x"' if '"x"' in data else "@x")]


@pytest.mark.parametrize("data", OWN.values(), ids=OWN)
def test_private_definitions_leave_a_kernel_self_contained(data: str) -> None:
    assert is_self_contained(texts(data))


@pytest.mark.parametrize("data", OTHERS.values(), ids=OTHERS)
def test_shared_definitions_make_a_kernel_depend_on_others(data: str) -> None:
    assert not is_self_contained(texts(data))
