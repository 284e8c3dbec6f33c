"""Structured types as text."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from aotcuda.manifest.dtypes import structured


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        ([("a", "i4"), ("b", "f8")], "|V12{a:<i4@0,b:<f8@4}"),
        (np.dtype([("a", "i4"), ("b", "f8")], align=True), "|V16{a:<i4@0,b:<f8@8}"),
        ([("grid", "f4", (2, 3)), ("n", "u1")], "|V25{grid:<f4*2*3@0,n:|u1@24}"),
        ([("p", [("x", "f4"), ("y", "f4")]), ("id", "i8")], "|V16{p:{x:<f4@0,y:<f4@4}@0,id:<i8@8}"),
        ([("when", "M8[ns]"), ("z", "c16")], "|V24{when:<M8[ns]@0,z:<c16@8}"),
    ],
)
def test_fields_stand_with_their_types_and_offsets(dtype, text):
    dtype = np.dtype(dtype)
    assert structured(dtype.str, dtype.descr) == text


FIELDS = ["?", "i1", "u2", "f4", "f8", "c8", "c16", "M8[ns]", "S1", "S5", "U1", "U12"]


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("seed", range(50))
def test_offsets_are_those_of_numpy(seed, align):
    choose = random.Random(seed)
    kinds = choose.choices(FIELDS, k=choose.randint(1, 6))
    dtype = np.dtype(
        [(f"f{at}", kind, choose.choice([(), (3,), (2, 2)])) for at, kind in enumerate(kinds)], align=align
    )
    said = re.findall(r"(f\d+):[^,]*?@(\d+)", structured(dtype.str, dtype.descr))
    assert [(name, int(offset)) for name, offset in said] == [(name, dtype.fields[name][1]) for name in dtype.names]


def test_a_type_without_fields_is_itself():
    plain = np.dtype("V16")
    assert structured(plain.str, plain.descr) == "|V16"
    assert structured("|V16", None) == "|V16"
