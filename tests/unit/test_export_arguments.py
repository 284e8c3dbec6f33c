"""Test the arguments for which exports make variants without a GPU."""

from __future__ import annotations

import itertools
import types

import pytest

from aotcuda.builder.frontends.triton.type_notation import parse_signature
from aotcuda.tools.export.arguments import combinations


def made(signature, annotated=True, do_not_specialize=False):
    """Return the combinations of arguments for a signature whose parameters are all alike."""
    kinds = parse_signature(signature)
    parameter = types.SimpleNamespace(annotation_type="i32" if annotated else "", do_not_specialize=do_not_specialize)
    return [*combinations(kinds, [parameter] * len(kinds))]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("i1", True),
        ("u1", True),
        ("fp32", 1.5),
        ("fp64", 1.5),
        ("i32:16", 16),
        ("i32", 17),
        ("i32:1", 1),
        ("i8:16", 16),
        ("u32", 17),
        ("i64:16", 2**31),
        ("i64", 2**31 + 1),
        ("u64:16", 2**63),
        ("u64", 2**63 + 1),
        ("none", None),
    ],
)
def test_numbers_have_the_type_and_the_divisibility(kind, value):
    ((argument,),) = made(kind, annotated=False)
    assert (type(argument), argument) == (type(value), value)


@pytest.mark.parametrize(
    ("kind", "itemsize"),
    [("*fp32", 4), ("*fp16", 2), ("*bf16", 2), ("*i64", 8), ("*u8", 1), ("*i1", 1), ("*fp8e4nv", 1), ("*kfp64", 8)],
)
@pytest.mark.parametrize("hint", ["", ":16"])
def test_arrays_have_an_aligned_address_only_with_a_hint(kind, itemsize, hint):
    ((array,),) = made(kind + hint)
    assert (array.dtype, array.dtype.itemsize) == (kind.lstrip("*").removeprefix("k"), itemsize)
    assert (array.data_ptr() % 16 == 0) is bool(hint)
    assert array.data_ptr() % 8 == 0


@pytest.mark.parametrize(
    ("signature", "options", "values"),
    [
        ("i32", {}, [(17,), (1,)]),
        ("i32, u64", {}, [(17, 2**63 + 1), (17, 1), (1, 2**63 + 1), (1, 1)]),
        ("i32, i32, i32, i32", {}, [(*each, 17) for each in itertools.product((17, 1), repeat=3)]),
        ("i32", {"annotated": False}, [(17,)]),
        ("i32", {"do_not_specialize": True}, [(17,)]),
        ("i32:16", {}, [(16,)]),
        ("i32:1", {}, [(1,)]),
        ("i1, u1, fp32, none", {}, [(True, True, 1.5, None)]),
        ("fp32, i32", {}, [(1.5, 17), (1.5, 1)]),
    ],
)
def test_an_annotated_integer_is_also_made_as_one(signature, options, values):
    """At most three are, since there are `2**n` combinations."""
    assert [*map(tuple, made(signature, **options))] == values


def test_annotated_arrays_and_truth_values_are_made_once():
    assert len(made("*i32, *u8:16, i1, u1")) == 1


@pytest.mark.parametrize(
    ("kind", "shape", "strides"),
    [("tensordesc<fp16[64]>", [1024], [1]), ("tensordesc<i32[8, 4, 2]>", [128, 64, 32], [2048, 32, 1])],
)
def test_descriptors_have_contiguous_arrays_of_several_blocks(kind, shape, strides):
    pytest.importorskip("triton", reason="Triton is not installed (extra triton)")
    ((descriptor,),) = made(kind)
    assert (descriptor.shape, descriptor.strides) == (shape, strides)
    assert descriptor.base.data_ptr() % 16 == 0
