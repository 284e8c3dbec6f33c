"""Recorded launches of kernels with variants become tables, which cover launches."""

from __future__ import annotations

from typing import Any

import pytest

from aotcuda.builder.frontends.triton import type_notation
from aotcuda.tools.record import variants
from aotcuda.tools.record.records import Record


def launch_of(types: str, *, count: int = 1, **options: Any) -> Record:
    """Return a record of launches with types, constants (in capitals) and options."""
    constants = {name: options.pop(name) for name in [*options] if name.isupper()}
    common = {"types": type_notation.split(types), "constants": constants, "num_warps": 4, "num_ctas": 1}
    facts: dict[str, Any] = {"frontend": "triton", "kind": "kernel", "module": "m", "function": "k", "file": "m.py"}
    launched = {"line": 1, "signature": f"void({types})", "launches": {"a GPU": count}}
    return Record(**facts, **launched, options={**common, "num_stages": 3, **options})


def test_each_variant_becomes_a_table() -> None:
    records = [
        launch_of("*fp32:16, i32:1", A=1, B=None, num_warps=8),
        launch_of("*fp32:16, i32:1", A=1, B=None, num_warps=8),
        launch_of("*fp32", A={"float": "inf"}, B={"dtype": "float16"}),
    ]
    assert variants.tables(records, "m:k") == [
        {"python": "m:k", "signature": "*fp32:16, i32:1", "constexprs": {"A": 1, "B": "None"}, "num-warps": 8},
        {"python": "m:k", "signature": "*fp32", "constexprs": {"A": float("inf"), "B": "tl.float16"}},
    ]
    assert all(variants.covers(variants.tables(records, None), record) for record in records)


@pytest.mark.parametrize("packaged", [1, True, 1.0, 0.0, -0.0, float("nan"), float("inf"), "None"])
def test_constants_of_different_types_and_signs_differ(packaged: Any) -> None:
    launched = [1, True, 1.0, 0.0, -0.0, {"float": "nan"}, {"float": "inf"}, None]
    kernel = {"signature": "*fp32", "constexprs": {"A": packaged}}
    covered = [variants.covers(kernel, launch_of("*fp32", A=value)) for value in launched]
    assert covered.count(True) == 1
    assert repr(packaged) in repr(launched[covered.index(True)]) + repr("None" if launched[-1] is None else "")


@pytest.mark.parametrize(
    ("signature", "launched", "covered"),
    [
        ("*fp32, i32", "*fp32:16, i32:1", True),
        ("*fp32:16, i32", "*fp32, i32", False),
        ("*fp32, i32:16", "*fp32:16, i32:16", True),
        ("*fp32, i32:16", "*fp32:16, i32:1", False),
        ("*fp32, i64", "*fp32:16, i32:16", True),
        ("*fp32, i32", "*fp32:16, i64", False),
        ("*fp32, fp64", "*fp32, fp32", True),
        ("*fp64, fp64", "*fp32, fp32", False),
        ("*fp32, u64", "*fp32, i32", False),
        ("*fp32", "*fp32, i32", False),
        ("tensordesc<fp16[64, 32]>, i32", "tensordesc<fp16[64, 32]>, i32", True),
        ("tensordesc<fp16[64, 32]>, i32", "tensordesc<fp16[64, 64]>, i32", False),
    ],
)
def test_variant_covers_launches_for_which_its_hints_hold(signature: str, launched: str, covered: bool) -> None:
    assert variants.covers(signature, launch_of(launched)) == covered
    assert variants.covers([{"signature": "*i8"}, {"signature": signature}], launch_of(launched)) == covered


@pytest.mark.parametrize(
    ("kernel", "covered"),
    [
        ({"signature": "*fp32", "constexprs": {"A": "None"}}, True),
        ({"signature": "*fp32", "constexprs": {"A": "none"}}, False),
        ([{"signature": "*i8", "constexprs": {"A": "None"}}, {"signature": "*fp32", "constexprs": {"A": 1}}], False),
    ],
)
def test_a_launch_with_none_is_covered(kernel: Any, covered: bool) -> None:
    assert variants.covers(kernel, launch_of("*fp32:16", A=None)) == covered


@pytest.mark.parametrize("kernel", [3, [3], {}, {"constexprs": 3}, {"signature": 3}, {"signature": ["*fp32"]}, []])
def test_malformed_tables_cover_nothing(kernel: Any) -> None:
    assert not variants.covers(kernel, launch_of("*fp32", A=1))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (launch_of("*fp32:16, i32:1", A={"dtype": "float32"}, B=None), None),
        (launch_of("*fp32:16, fp16", A=1), '"fp16" is a number in half precision'),
        (launch_of("*fp4e2", A=1), '"*fp4e2" is not a type'),
        (launch_of("*fp32", A=[1, {"float": "-inf"}], B={"torch": "bfloat16"}), None),
        (launch_of("*fp32", A="a b"), None),
        (launch_of("*fp32", A="tl.float32"), "A: a constexpr is the string 'tl.float32', which stands for a type"),
        (launch_of("*fp32", A={"dtype": "pi32_t"}), 'A: a constexpr is {"dtype": "pi32_t"}'),
    ],
)
def test_launches_that_a_build_would_refuse_are_refused(record: Record, message: str | None) -> None:
    refusal = variants.refusal(record)
    assert refusal is None if message is None else (refusal or "").startswith(message)
