"""Sizes of Triton kernels: integers that vary together among recorded launches."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from aotcuda.tools.record import report, sizes, variant_files
from aotcuda.tools.record.sizes import Integers


def launches(names: str, *rows: tuple[int, ...], equal: tuple[str, ...] = ()) -> Integers:
    facts: dict[str, Any] = {"module": "m", "function": "k", "path": "k", "equal": [*equal]}
    return Integers(names=names.split(), rows=[[*row] for row in rows], **facts)


@pytest.mark.parametrize(
    ("items", "wanted"),
    [
        ([launches("n s", (8, 8))], []),
        ([launches("n s", (8, 8), (9, 9))], [["n", "s"]]),
        ([launches("n s t", (8, 16, 1), (9, 18, 1), (10, 20, 1))], [["n", "s"]]),
        ([launches("n s", (8, 8), (9, 8))], [["n"]]),
        ([launches("m n s", (1, 8, 8), (2, 8, 8), (1, 9, 9), (3, 9, 9))], [["m"], ["n", "s"]]),
        ([launches("n s", (8, 8), (9, 8), (9, 9))], [["n"], ["s"]]),
        ([launches("n s", (8, 1)), launches("n s", (7, 2))], [["n", "s"]]),
    ],
)
def test_integers_whose_values_map_one_to_one_are_one_size(items: list[Integers], wanted: list[list[str]]) -> None:
    assert sizes.of(sizes.merged(items)) == wanted


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ([["n", "s"]], [["n", "s"]], [["n", "s"]]),
        ([["n", "s"]], [["n"], ["s"]], [["n"], ["s"]]),
        ([["n", "s"], ["m"]], [["n", "s", "m"]], [["n", "s"], ["m"]]),
        ([["n", "s"]], [["n"]], [["n"], ["s"]]),
        ([], [["n"]], [["n"]]),
        ([["a", "b", "c", "d"]], [["a", "b"], ["c", "d"]], [["a", "b"], ["c", "d"]]),
    ],
)
def test_integers_stay_together_only_if_both_records_say_so(
    one: list[list[str]], other: list[list[str]], wanted: list[list[str]]
) -> None:
    assert sizes.join(one, other) == wanted


def record(constants: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {"constants": constants, **options}


@pytest.mark.parametrize(
    ("records", "equal", "wanted"),
    [
        ([record({"D": 64})], (), []),
        ([record({"D": 64}), record({"D": 128})], (), ["D"]),
        ([record({"D": 64, "BLOCK": 64})], ("D",), ["D"]),
        ([record({"D": 64}, chosen=["D"]), record({"D": 128}, chosen=["D"])], ("D",), []),
        ([record({"D": 64}, computed=["D"])], ("D",), []),
        ([record({"D": True}), record({"D": False}), record({"D": "a"})], (), []),
        ([record({"num_warps": 4}), record({"num_warps": 8})], (), []),
    ],
)
def test_constants_that_users_may_vary_are_named(
    records: list[dict[str, Any]], equal: tuple[str, ...], wanted: list[str]
) -> None:
    assert sizes.fixed(records, [launches("n", (8,), equal=equal)]) == wanted


def test_constants_are_named_with_the_kernel_and_without_decorators(capsys: pytest.CaptureFixture[str]) -> None:
    record = SimpleNamespace(options={"constants": {"BLOCK": 64, "D": 8}})
    kernel: Any = SimpleNamespace(has_variants=True, source="m", path="by_size[2].fn.fn", records=[record])
    item = dataclasses.replace(launches("n", (8,), equal=("BLOCK",)), path="by_size[2].fn.fn")
    report.print_fixed_constants([kernel], [item])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("aotcuda: m.by_size[2]: BLOCK is packaged for 64; ")


def test_merged_variants_files_join_sizes() -> None:
    entry = {"parameters": ["n", "s"], "variants": [], "sizes": [["n", "s"]], "fixed": ["D"]}
    one, other = ({"kernels": {"k": each}} for each in (entry, {**entry, "sizes": [["n"], ["s"]], "fixed": ["E"]}))
    merged = variant_files._merge_variants(one, other)["kernels"]["k"]
    assert (merged["sizes"], merged["fixed"]) == ([["n"], ["s"]], ["D", "E"])
    without = {name: value for name, value in entry.items() if name not in ("sizes", "fixed")}
    merged = variant_files._merge_variants(one, {"kernels": {"k": without}})["kernels"]["k"]
    assert (merged["sizes"], merged["fixed"]) == ([["n", "s"]], ["D"])
