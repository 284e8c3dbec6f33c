"""Test that signatures spell types differently if a launch distinguishes them."""

from __future__ import annotations

import enum
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from support import front_ends


@pytest.fixture(scope="module", params=front_ends.ALL)
def notation(request: pytest.FixtureRequest) -> Any:
    package = request.param.replace("-", "_")
    if find_spec(package) is None:
        pytest.skip(f"{request.param} is not installed")
    return import_module(f"aotcuda.builder.frontends.{package}.types").notation


SINGLE = st.sampled_from(["?", "M8[ns]", "U2", "S2"])  # Numba has no subarrays of these


def records(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[np.dtype[Any]]:
    shapes = st.sampled_from([(), (2,), (3,), (2, 3), (3, 2)])
    fields = st.lists(st.tuples(inner, shapes) | st.tuples(SINGLE, st.just(())), min_size=1, max_size=3)
    return st.builds(
        lambda found, align: np.dtype([(f"f{at}", *field) for at, field in enumerate(found)], align=align),
        fields,
        st.booleans(),
    )


NUMBERS = st.sampled_from(["i1", "i4", "f8", "c8"])
RECORDS = records(NUMBERS | records(NUMBERS))


@settings(max_examples=50)
@given(RECORDS, RECORDS)
def test_records_of_different_layouts_are_spelled_differently(
    notation: Any, first_dtype: np.dtype, second_dtype: np.dtype
) -> None:
    first, second = (notation.parse("void(r)", {"r": dtype})[0][0] for dtype in (first_dtype, second_dtype))
    assume(notation.dtype_text(first) != notation.dtype_text(second))
    assert notation.spell(first) != notation.spell(second)


@settings(max_examples=50)
@given(RECORDS, st.integers(0, 3), st.integers(0, 3))
def test_records_with_gaps_are_spelled_differently(notation: Any, dtype: np.dtype, before: int, after: int) -> None:
    assert dtype.names is not None
    fields = [dtype.fields[name] for name in dtype.names]  # type: ignore[index]
    with_gaps = {
        "names": list(dtype.names),
        "formats": [field[0] for field in fields],
        "offsets": [field[1] + before for field in fields],
        "itemsize": dtype.itemsize + before + after,
    }
    spelled = [
        notation.spell(notation.parse("void(r)", {"r": np.dtype(item)})[0][0])  # type: ignore[call-overload]
        for item in (dtype, with_gaps)
    ]
    assert (spelled[0] == spelled[1]) == (before == after == 0)


PADDED = [("a", "u1"), ("", "V3"), ("b", "f4")]
UNSUPPORTED = [np.dtype(kind) for kind in (">f4", ">i8", "V4", PADDED, [("a", ">f4")], "O", "(2,)f4")]


@pytest.mark.parametrize("dtype", UNSUPPORTED, ids=str)
def test_dtypes_of_module_that_numba_lacks_are_ignored(notation: Any, dtype: np.dtype) -> None:
    args, _ = notation.parse("void(float32[::1])", {"D": dtype})
    assert notation.spell(args[0]) == "float32[::1]"


@pytest.mark.parametrize("dtype", UNSUPPORTED[:4], ids=str)
def test_dtype_in_signature_that_numba_lacks_is_refused(notation: Any, dtype: np.dtype) -> None:
    with pytest.raises(ValueError, match=r"^D is dtype.*, and Numba has no type for it; use a dtype"):
        notation.parse("void(D[::1])", {"D": dtype})


class Level(enum.IntEnum):
    HIGH = 1


class Ratio(float): ...


@pytest.mark.parametrize(
    ("value", "written"), [(Level, "int64"), (Ratio, "float64"), (bool, "bool"), (np.int8, "int8"), (np.object_, None)]
)
def test_pythons_types_are_refused_with_the_type_to_write(notation: Any, value: type, written: str | None) -> None:
    remedy = rf"^D is (NumPy's|Python's) type, .*; write {written}$" if written else "^'D' is not a Numba type"
    with pytest.raises(ValueError, match=remedy):
        notation.parse("void(D)", {"D": value})
