"""Test that parameters in PTX are read with their places, and that unknown forms are refused."""

from __future__ import annotations

import pytest

from aotcuda.builder.link import ptx_parameters


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("\n", []),
        (".param .u64 a,\n\t.param .u8 b,\n\t.param .f64 c\n", [(0, 8, 1), (8, 1, 1), (16, 8, 1)]),
        (".param .u64 .ptr .global .align 16 a, .param .b32 b", [(0, 8, 1), (8, 4, 1)]),
        (".param .u64 .ptr a, .param .u64 .ptr .align 4 b", [(0, 8, 1), (8, 8, 1)]),
        (".param .u8 a, .param .align 64 .b8 map[128]", [(0, 1, 1), (64, 128, 64)]),
        (".param .align 1 .b8 a[3],.param .align 4 .b8 b[0],.param .b16 c", [(0, 3, 1), (4, 0, 4), (4, 2, 1)]),
        (".param .b32 a, .param .align 8 .b8 %VAParam[]", [(0, 4, 1)]),
    ],
)
def test_parameters_have_the_places_of_the_abi(text: str, expected: list[tuple[int, int, int]]) -> None:
    assert ptx_parameters.read(text) == expected


@pytest.mark.parametrize("text", [".param .b8 a[4]", ".param .align 8 .b8 a[]", ".reg .b32 a", ".param .pred a", "a"])
def test_other_declarations_are_refused_with_their_text(text: str) -> None:
    with pytest.raises(ValueError, match="^" + text.replace("[", r"\[") + "$"):
        ptx_parameters.read(f".param .u64 first,\n\t{text}\n")
