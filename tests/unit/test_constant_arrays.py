"""Test that equal constant arrays of kernels get one name, and that other text of their LLVM IR stays."""

from __future__ import annotations

import re

from aotcuda.builder.frontends.numba import constant_arrays

FIRST = """\
@plain = internal addrspace(4) constant [4 x i8] c"abcd", align 4
@"quoted one" = private unnamed_addr addrspace(4) global [4 x i8] c"abcd", align 4
@third-$.0 = internal local_unnamed_addr addrspace(4) constant [8 x i8] c"abcdefgh"
@shared = internal addrspace(3) global [4 x i8] c"abcd"
@_third = external global i32
define void @k() { use @plain @"quoted one" @third-$.0 @shared @_third @"plain " }
"""
SECOND = """\
@other = internal addrspace(4) constant [4 x i8] c"abcd", align 4
define void @plain() { use @other }
"""


def test_equal_arrays_have_one_name_and_are_defined_once_in_a_module() -> None:
    (first, second), names = constant_arrays.merge([FIRST, SECOND])
    (four, _), (eight, _) = sorted(names, key=lambda item: item[1])
    assert dict(names) == {four: 4, eight: 8}
    assert names == tuple(sorted(names))
    assert all(re.fullmatch(r"aotcuda_constant_[0-9a-f]{32}", name) for name in (four, eight))
    head = f'@{four} = linkonce_odr addrspace(4) constant [4 x i8] c"abcd", align 4\n'
    assert first == (
        f'{head}@{eight} = linkonce_odr addrspace(4) constant [8 x i8] c"abcdefgh"\n'
        '@shared = internal addrspace(3) global [4 x i8] c"abcd"\n@_third = external global i32\n'
        f'define void @k() {{ use @{four} @{four} @{eight} @shared @_third @"plain " }}\n'
    )
    assert second == f"{head}define void @plain() {{ use @{four} }}\n"


def test_module_without_constant_arrays_stays() -> None:
    text = 'define void @k() { use @k @"k" }\n'
    assert constant_arrays.merge([text]) == ([text], ())
