"""Test the texts by which manifests describe dtypes: structured dtypes, and names of small floats."""

from __future__ import annotations

import random
import re
import struct
import types

import numpy as np
import pytest

from aotcuda.common import scalar_types
from aotcuda.common.scalar_types import NAMED
from aotcuda.manifest.dtypes import structured
from aotcuda.runtime.launch.arguments import array_view, arrays, dlpack, other_values


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        ([("a", "i4"), ("b", "f8")], "|V12{a:<i4@0,b:<f8@4}"),
        (np.dtype([("a", "i4"), ("b", "f8")], align=True), "|V16{a:<i4@0,b:<f8@8}"),
        ([("grid", "f4", (2, 3)), ("n", "u1")], "|V25{grid:<f4*2*3@0,n:|u1@24}"),
        ([("p", [("x", "f4"), ("y", "f4")]), ("id", "i8")], "|V16{p:{x:<f4@0,y:<f4@4}@0,id:<i8@8}"),
        ("V16", "|V16"),
        ([("when", "M8[ns]"), ("z", "c16")], "|V24{when:<M8[ns]@0,z:<c16@8}"),
    ],
)
def test_structured_types_list_fields_with_offsets(dtype, text):
    dtype = np.dtype(dtype)
    assert structured(dtype.str, dtype.descr) == text


FIELDS = ["?", "i1", "u2", "f4", "f8", "c8", "c16", "M8[ns]", "S1", "S5", "U1", "U12"]


@pytest.mark.parametrize("align", [False, True])
def test_offsets_of_fields_equal_those_of_numpy(align):
    choose = random.Random(align)
    for _ in range(50):
        kinds = choose.choices(FIELDS, k=choose.randint(1, 6))
        fields = [(f"f{at}", kind, choose.choice([(), (3,), (2, 2)])) for at, kind in enumerate(kinds)]
        dtype = np.dtype(fields, align=align)
        offsets = re.findall(r"(f\d+):[^,]*?@(\d+)", structured(dtype.str, dtype.descr))
        assert offsets == [(name, str(dtype.fields[name][1])) for name in dtype.names]


CODES = {
    "bfloat16": (4, 16),
    "float8_e4m3fn": (10, 8),
    "float8_e4m3fnuz": (11, 8),
    "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8),
    "float8_e8m0fnu": (14, 8),
}
"""The type codes and bits of DLPack (dlpack.h, version 1.1)."""


class FakeDtype:
    """Imitate a dtype: of PyTorch by its `str`, or of NumPy by its attributes."""

    def __init__(self, name, **attributes):
        self.__dict__ |= {"name": name, **attributes}

    def __str__(self):
        return f"torch.{self.name}"


@pytest.mark.parametrize("name", CODES)
def test_small_floats_have_one_name_in_every_library(name):
    size = CODES[name][1] // 8
    assert NAMED[name] == size == array_view.item_bytes(name)
    assert arrays.element(name) == arrays._torch_typestr(FakeDtype(name)) == dlpack.typestr(*CODES[name]) == name
    for typestr in (f"<V{size}", f"|V{size}", *(["<f1"] if name == "float8_e5m2" else [])):
        dtype = FakeDtype(name, str=typestr, descr=[("", typestr)])
        assert arrays.element(dtype) == name
        interface = {"typestr": typestr, "shape": (8,), "data": (1 << 41, False), "version": 3}
        array = types.SimpleNamespace(dtype=dtype, __cuda_array_interface__=interface)
        assert arrays.reader(array)(array, [], 1) == (name, 1 << 41, (8,), None, False)


@pytest.mark.parametrize("name", CODES)
def test_dtypes_of_ml_dtypes_are_known_by_their_names(name):
    dtype = np.dtype(getattr(pytest.importorskip("ml_dtypes"), name))
    assert (arrays.element(dtype), array_view.item_bytes(arrays.element(dtype))) == (name, dtype.itemsize)


def test_record_names_the_types_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    inner = np.dtype([("b", ml_dtypes.bfloat16), ("n", "<i4")], align=True)
    dtype = np.dtype([("f", ml_dtypes.float8_e4m3fn, (2,)), ("e", ml_dtypes.float8_e5m2), ("i", inner)], align=True)
    text, data = other_values.reader(np.zeros((), dtype)[()], lambda _: None)(np.zeros((), dtype)[()], [], 0)
    assert text == "|V12{f:float8_e4m3fn*2@0,e:float8_e5m2@2,i:{b:bfloat16@0,n:<i4@4}@4}"
    assert len(data) == 12


@pytest.mark.parametrize(("name", "form", "typestr"), [row[:3] for row in scalar_types.TABLE if row[2]])
def test_table_of_scalar_types_agrees_with_numpy(name: str, form: str, typestr: str) -> None:
    dtype = np.dtype(name)
    assert dtype.str == typestr
    assert not form or (np.dtype(form) == dtype and struct.calcsize(form) == dtype.itemsize)
