"""Test that packaged signatures accept the signatures of launches."""

from __future__ import annotations

import pytest

from aotcuda.tools.record import notation

SAME = [
    ("void(f4[:], i8)", "void(float32[:], int64)"),
    ("none(types.float32[:, ::1])", "void(Array(float32, 2, 'C'))"),
    ("(double, intp, b1)", "void(float64, int64, boolean)"),
    ("void(UniTuple(int64, 2))", "void(Tuple((int64, int64)))"),
    ("void(There[::1], Random[::1])", "void(point[::1], xoroshiro128p_type[::1])"),
    ("void(CPointer(f4))", "void(CPointer(float32))"),
]
NAMES = {"There": "pkg.types:point", "Random": "xoroshiro128p_type"}

ACCEPTED = [
    ("void(float32[:])", "void(float32[::1])"),
    ("void(Array(float32, 1, 'C', readonly=True))", "void(float32[::1])"),
    ("void(Tuple((float32[:], int64)))", "void(Tuple((float32[::1], int64)))"),
]
REFUSED = [
    ("void(float32[::1])", "void(float32[:])"),
    ("void(float32[:, ::1])", "void(float32[::1, :])"),
    ("void(float32[::1])", "void(float64[::1])"),
    ("void(float32[::1])", "void(Array(float32, 1, 'C', readonly=True))"),
    ("void(int64)", "void(int64, int64)"),
    ("void(int32)", "void(uint32)"),
]
ADOPTED = [("void(int32)", "void(int64)"), ("void(float32)", "void(int64)"), ("void(float32)", "void(float64)")]


@pytest.mark.parametrize(("text", "other_text"), SAME)
def test_names_of_one_type_are_equal(text: str, other_text: str) -> None:
    assert notation.parse(text, NAMES) == notation.parse(other_text, NAMES)


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("[::1]", "C"),
        ("[:]", "A"),
        ("[:, ::1]", "C"),
        ("[::1, :]", "F"),
        ("[:, :]", "A"),
        ("[:, ::1, :]", "A"),
        ("[::1, :, :]", "F"),
    ],
)
def test_layout_is_that_of_numbas_notation(text: str, layout: str) -> None:
    (array,) = notation.parse(f"void(float32{text})", {}).args
    assert (array.ndim, array.layout) == (text.count(",") + 1, layout)


@pytest.mark.parametrize(("packaged", "launched"), ACCEPTED + SAME)
def test_a_wider_signature_accepts_a_narrower_one(packaged: str, launched: str) -> None:
    assert notation.accepts(notation.parse(packaged, NAMES), notation.parse(launched, NAMES), adopt=False)


@pytest.mark.parametrize("adopt", [False, True])
@pytest.mark.parametrize(("packaged", "launched"), REFUSED)
def test_signature_that_a_launch_would_refuse_does_not_match(packaged: str, launched: str, adopt: bool) -> None:
    assert not notation.accepts(notation.parse(packaged, {}), notation.parse(launched, {}), adopt=adopt)


@pytest.mark.parametrize(("packaged", "launched"), ADOPTED)
def test_python_numbers_adopt_types_outside_modules_in_place(packaged: str, launched: str) -> None:
    signatures = notation.parse(packaged, {}), notation.parse(launched, {})
    assert notation.accepts(*signatures, adopt=True)
    assert not notation.accepts(*signatures, adopt=False)


@pytest.mark.parametrize("text", ["void(", "float32", "void(x=1)"])
def test_text_that_is_no_signature_raises(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        notation.parse(text, {})


def test_names_in_a_circle_are_no_endless_loop() -> None:
    assert notation.parse("void(A)", {"A": "B[:]", "B": "A"}).args[0].name == "array"
