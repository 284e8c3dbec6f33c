"""Recorded launches of kernels with variants become tables, which cover launches."""

from __future__ import annotations

from typing import Any

import pytest

from aotcuda.builder.frontends.triton import type_notation
from aotcuda.tools.record import variants
from aotcuda.tools.record.records import Record

TUNED = {"chosen": ["BLOCK"]}


def launch_of(types: str, *, count: int = 1, **options: Any) -> Record:
    """Return a record of launches with types, constants (in capitals) and options."""
    constants = {name: options.pop(name) for name in [*options] if name.isupper()}
    common = {"types": type_notation.split(types), "constants": constants, "num_warps": 4, "num_ctas": 1}
    facts: dict[str, Any] = {"frontend": "triton", "kind": "kernel", "module": "m", "function": "k", "file": "m.py"}
    launched = {"line": 1, "signature": f"void({types})", "launches": {"a GPU": count}}
    return Record(**facts, **launched, options={**common, "num_stages": 3, **options})


def table_of(*records: Record) -> dict[str, Any]:
    table = variants.kernel_table(records, None)
    assert table.pop("specialise") == "exact"
    return table


def test_all_combinations_become_lists_with_defaults_first() -> None:
    records = [launch_of("*fp32:16", A=a, B=b, num_warps=w) for a in (1, 2) for b in ("x", None) for w in (8, 4)]
    assert table_of(*records) == {
        "signatures": ["*fp32:16"],
        "constexprs": {"A": [1, 2], "B": ["x", "None"]},
        "num-warps": [4, 8],
    }


def test_numbers_of_different_types_are_different_constants() -> None:
    table = table_of(*(launch_of("*fp32", A=value) for value in (1, True, 1.0)))
    assert [repr(item) for item in table["constexprs"]["A"]] == ["1", "True", "1.0"]
    kernel = {"signature": "*fp32", "constexprs": {"A": 1}}
    assert [variants.covers(kernel, launch_of("*fp32", A=value)) for value in (1, True, 1.0)] == [True, False, False]


def test_block_shapes_of_tensor_descriptors_are_part_of_a_type() -> None:
    types = [f"tensordesc<fp16[64, {size}]>, *fp32:16, i32" for size in (32, 64)]
    table = table_of(launch_of(types[0], A=1), launch_of(types[1], A=2))
    assert table["configs"] == [{"constexprs": {"A": value}, "signatures": [types[value - 1]]} for value in (1, 2)]
    kernel = {"signature": types[0], "constexprs": {"A": 1}, "specialise": "exact"}
    assert [variants.covers(kernel, launch_of(each, A=1)) for each in types] == [True, False]
    assert [str(each) for each in type_notation.parse_signature(types[0])] == type_notation.split(types[0])


def test_special_signatures_and_configs_come_first() -> None:
    table = table_of(*(launch_of(types, A=1) for types in ("*fp32, i32", "*fp32, i32:16", "*fp32:16, i32:1")))
    assert table["signatures"] == ["*fp32:16, i32:1", "*fp32, i32:16", "*fp32, i32"]
    table = table_of(
        launch_of("*fp32, i32", BLOCK=64, when={}, **TUNED),
        launch_of("*fp32, i32", BLOCK=128, num_warps=8, when={"n": 33}, **TUNED),
    )
    assert [config.get("when") for config in table["configs"]] == [{"n": 33}, None]


def test_constants_are_for_the_types_that_they_were_launched_with() -> None:
    table = table_of(launch_of("*fp32:16", A=1), launch_of("*fp32", A=2), launch_of("*fp16:16", A=3))
    assert table["configs"] == [
        {"constexprs": {"A": 1}, "signatures": ["*fp32:16", "*fp32"]},
        {"constexprs": {"A": 2}, "signatures": ["*fp32:16", "*fp32"]},
        {"constexprs": {"A": 3}, "signatures": ["*fp16:16"]},
    ]


def test_config_of_most_launches_is_written() -> None:
    records = [
        launch_of("*fp32:16, i32:16", count=2, BLOCK=64, HEAD=8, when={"n": 64}, **TUNED),
        launch_of("*fp32:16, i32:16", count=3, BLOCK=128, HEAD=8, when={"n": 64}, num_warps=8, **TUNED),
        launch_of("*fp32, i32:16", BLOCK=64, HEAD=8, when={"n": 64}, **TUNED),
        launch_of("*fp32, i32:16", BLOCK=64, HEAD=16, when={"n": 64}, **TUNED),
    ]
    table = table_of(*records)
    assert table["configs"] == [
        {"constexprs": {"BLOCK": 64, "HEAD": 8}, "when": {"n": 64}},
        {"constexprs": {"BLOCK": 64, "HEAD": 16}, "when": {"n": 64}},
    ]
    more = [*records, launch_of("*fp32, i32:16", BLOCK=128, HEAD=8, when={"n": 64}, num_warps=8, **TUNED)]
    table = table_of(*more)
    assert {"constexprs": {"BLOCK": 128, "HEAD": 8}, "num-warps": 8, "when": {"n": 64}} in table["configs"]
    assert variants.notes(more) == [
        "several configs were chosen for the same arguments: the one of most launches is written"
    ]
    assert all(variants.covers({"specialise": "exact", **table}, record) for record in more)
    other = launch_of("*fp32, i32:16", BLOCK=128, HEAD=32, when={"n": 64}, **TUNED)
    assert not variants.covers({"specialise": "exact", **table}, other)


@pytest.mark.parametrize(
    ("kernel", "covered"),
    [
        ({"signature": "*fp32", "constexprs": {"A": "None"}}, True),
        ({"signature": "*fp32", "constexprs": {"A": "none"}}, False),
        ({"signatures": ["*fp32", "*i8"], "configs": [{"constexprs": {"A": "None"}, "signature": "*i8"}]}, False),
    ],
)
def test_a_launch_with_none_is_covered(kernel: dict[str, Any], covered: bool) -> None:
    assert [variants.covers(kernel, launch_of("*fp32:16", A=value)) for value in (None, "None")] == [covered] * 2


@pytest.mark.parametrize(
    "kernel", [{"configs": 3}, {"configs": [3]}, {"constexprs": 3}, {"signatures": 3}, {"signatures": [3]}]
)
def test_malformed_tables_cover_nothing(kernel: dict[str, Any]) -> None:
    assert not variants.covers(kernel, launch_of("*fp32", A=1))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (launch_of("*fp32:16, i32:1", A={"dtype": "float32"}, B=None), None),
        (launch_of("*fp32:16, fp16", A=1), '"fp16" is a number in half precision'),
        (launch_of("*fp4e2", A=1), '"*fp4e2" is not a type'),
        (launch_of("*fp32", A="a b"), "A: 'a b' is not a number, true or false, a string of letters"),
        (launch_of("*fp32", A={"dtype": "pi32_t"}), 'A: "tl.pi32_t" is not a type that a constexpr can be'),
    ],
)
def test_launches_that_a_build_would_refuse_are_refused(record: Record, message: str | None) -> None:
    refusal = variants.refusal(record, for_table=True)
    assert refusal is None if message is None else (refusal or "").startswith(message)
