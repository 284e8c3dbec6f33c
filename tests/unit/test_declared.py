"""Check values against types: manifests, files of variants and entries of the build cache share this checker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest

from aotcuda.arch import Target, parse
from aotcuda.common import declared
from aotcuda.common.declared import Integer, ListOf, Named, OneOf, Text, Whole


class Size(TypedDict):
    word: str
    more: NotRequired[list[Size]]


class Table(TypedDict):
    sizes: Annotated[dict[str, Size], Named(Text("[a-z]+", "a name"))]


@dataclass(frozen=True)
class Item:
    target: Target
    pairs: tuple[tuple[str, int], ...] = ()
    size: Size | None = None


ITEM = Item(parse("sm_90"))

CASES: list[tuple[Any, Any, str]] = [
    # A type, a value of another type, and the fault. The lists of good values follow.
    (str, b"", "x is not a string"),
    (bool, 1, "x is not true or false"),
    (int, True, "x is not an integer"),
    (float, 1, "x is not a float"),
    (bytes, "", "x is not bytes"),
    (None, 0, "x is not null"),
    (Whole, -1, "x is not a whole number from 0 to 2**63 - 1"),
    (Annotated[int, Integer(4)], 4, "x is not a whole number below 4"),
    (Annotated[int, OneOf(1, 2)], True, "x is not one of 1, 2"),
    (Literal["a", "b"], "c", "x is not one of a, b"),
    (int | None, "1", "x is not an integer"),
    (list[int], (1,), "x is not a list"),
    (list[int], [1, 2, "3"], "x[2] is not an integer"),
    (list, (), "x is not a list"),
    (tuple[int, ...], [1], "x is not a tuple of any items"),
    (tuple[int, str], (1,), "x is not a tuple of 2 items"),
    (tuple[int, str], (1, 2), "x[1] is not a string"),
    (dict[str, int], {"a": "b"}, "x['a'] is not an integer"),
    (dict[int, int], {"1": 1}, "x['1'] is not an integer"),
    (dict[Literal["a"], int], {"a": ""}, "x.a is not an integer"),
    (Annotated[list[str], ListOf(str.isdigit, "a list of digits")], ["1", "b"], "x is not a list of digits"),
    (Size, [], "x is not an object"),
    (Size, {}, "x.word is missing"),
    (Size, {"word": "a", "more": [{"word": 1}]}, "x.more[0].word is not a string"),
    (Table, {"sizes": {"A": {"word": ""}}}, "x.sizes.A is not a name"),
    (Table, {"sizes": {"a": {}}}, "x.sizes.a.word is missing"),
    (Item, Target, "x is not of the class Item"),
    (Item, Item(target="sm_90"), "x.target is not of the class Target"),  # type: ignore[arg-type]
    (Item, Item(ITEM.target, pairs=(("a",),)), "x.pairs[0] is not a tuple of 2 items"),  # type: ignore[arg-type]
    (Item, Item(ITEM.target, size={}), "x.size.word is missing"),  # type: ignore[typeddict-item]
]


@pytest.mark.parametrize(("hint", "value", "fault"), CASES)
def test_fault_has_the_place_and_the_type(hint: Any, value: Any, fault: str) -> None:
    assert list(declared.problems(value, hint, "x")) == [fault]
    assert not declared.fits(value, hint)


GOOD: list[tuple[Any, list[Any]]] = [
    (Any, [None, {}, object()]),
    (object, [None, [object()]]),
    (Whole, [0, 2**63 - 1]),
    (int, [-1, 2**70]),
    (int | None, [None, 3]),
    (list, [[], [1, None]]),
    (tuple[int, ...], [(), (1, 2)]),
    (dict[Target, Target], [{}, {parse("sm_80"): parse("compute_90a")}]),
    (dict[Literal["a", "b"], int], [{}, {"b": 1}]),
    (Size, [{"word": "", "more": [{"word": "b", "more": []}], "other": 1}]),
    (Table, [{"sizes": {}}, {"sizes": {"abc": {"word": ""}}}]),
    (Item, [ITEM, Item(ITEM.target, (("a", -1),), {"word": ""})]),
]


@pytest.mark.parametrize(("hint", "values"), GOOD)
def test_values_of_the_type_fit(hint: Any, values: list[Any]) -> None:
    assert all(declared.fits(value, hint) for value in values)
    assert [*map(list, (declared.problems(value, hint) for value in values))] == [[] for _ in values]
