"""Test that the quick check of array descriptions agrees with the rules of `array_view`."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from aotcuda.errors import UnreadableError
from aotcuda.runtime.launch.arguments import array_view, arrays


class Text(str):
    """A string of another type that equals a type string."""

    __slots__ = ()


class Number(int):
    """A number of another type that equals an int."""


NUMBERS = st.sampled_from([0, 1, 2, 3, 7, 2**16, 2**31, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -1, -8])
LIKE_NUMBERS = st.one_of(NUMBERS, NUMBERS.map(Number), st.booleans(), st.sampled_from([None, 1.0, "3"]))
TYPES = st.sampled_from([*arrays.TORCH.values(), "=f4", "<f1", "|u2", ">f4", "<U3", "|V8", "f4", "", "|S3", "=i1"])
SHAPES = st.lists(LIKE_NUMBERS, max_size=4).map(tuple) | st.sampled_from([None, [3], (1,) * 64, (1,) * 65, 3])
STRIDES = st.none() | st.lists(LIKE_NUMBERS, max_size=4).map(tuple) | st.just([4])


def outcome(function, *args, **named):
    try:
        typestr, *rest = function(*args, **named)
    except UnreadableError as error:
        return str(error)
    return typestr, [type(item) for item in rest], rest


@given(TYPES | TYPES.map(Text), LIKE_NUMBERS, SHAPES, STRIDES)
@example("<f4", 2**64 - 1, (2**61 - 1,), None)
@example("<f4", 2**64, (3,), None)
@example("<f4", 0, (2**61,), None)
@example("<f4", True, (3,), None)
@example("<f4", 4096, (3,), (4.0,))
@example(Text("<f4"), 4096, (Number(3),), None)
@settings(max_examples=1000)
def test_quick_check_agrees_with_all_rules(typestr, address, shape, strides):
    interface = {"typestr": typestr, "data": (address, False), "shape": shape, "strides": strides, "version": 3}
    array = SimpleNamespace(__cuda_array_interface__=interface)
    read = arrays.reader(array)
    found = outcome(read, array, [], 0)
    assert found == outcome(array_view.view, typestr, address, shape, strides, readonly=False)


VIEWS = st.builds(
    lambda address, dims: (
        "<i2",
        100 + address,
        tuple(extent for extent, _ in dims),
        tuple(step for _, step in dims),
        False,
    ),
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([-6, -4, -2, 0, 2, 4, 6])), max_size=3),
)


def byte_range(view):
    """Return all addresses between the first and the last byte of a view's elements."""
    _, address, shape, strides, _ = view
    starts = [
        address + sum(index * step for index, step in zip(place, strides, strict=True))
        for place in itertools.product(*map(range, shape))
    ]
    return set(range(min(starts), max(starts) + 2)) if starts else set()


@given(VIEWS, VIEWS)
@example(("<i2", 110, (3,), (-2,), False), ("<i2", 106, (1,), (2,), False))
@example(("<i2", 100, (3,), (2,), False), ("<i2", 106, (1,), (2,), False))
@settings(max_examples=300)
def test_arrays_overlap_if_their_bytes_do(first, second):
    assert array_view.overlap(first, second) == bool(byte_range(first) & byte_range(second))
