"""Test types and strings as arguments of packaged kernels."""

from __future__ import annotations

import re
import struct

import numpy as np
import pytest

from aotcuda.errors import ArgumentError
from aotcuda.runtime.launch.arguments import other_values
from aotcuda.runtime.launch.arguments import signature as signatures
from support.manifests import kernel

INTEGERS = [f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")]
NUMBERS = ["bool", *INTEGERS, "float16", "float32", "float64", "complex64", "complex128"]
numba_types = pytest.importorskip("numba.core.types", reason="numba's types are among those that are passed")


class dtype:  # noqa: N801 (PyTorch's name)
    """A stand-in for PyTorch's dtypes."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"torch.{self.name}"


dtype.__module__ = "torch"


def kernel_of_types(*names):
    """Return a kernel of a type and an int32, with an overload for each of these types."""
    overloads = []
    for index, name in enumerate(names):
        type_ = {"name": "t", "type": f"NumberClass({name})", "kind": "type", "offset": 0, "words": ["zero"]}
        type_["dtype"] = np.dtype(name).str
        number = {"name": "x", "type": "int32", "kind": "scalar", "format": "i", "offset": 8}
        (overload,) = kernel("k", "void()", parameters=[type_, number], parameter_bytes=12)["overloads"]
        overloads.append({**overload, "symbol": f"k__{index}", "signature": f"void(NumberClass({name}), int32)"})
    return {"name": "k", "origin": "mypkg._k:k", "overloads": overloads}


def spellings(name):
    numbas = getattr(numba_types, "boolean" if name == "bool" else name, None)
    numpys = np.dtype(name).type
    return [numpys, np.dtype(name), dtype(name), *([numbas] if numbas is not None else [])]


@pytest.mark.parametrize("name", NUMBERS)
def test_types_of_all_libraries_have_one_type_string(name):
    assert {other_values.type_of(value) for value in spellings(name)} == {np.dtype(name).str}


@pytest.mark.parametrize("value", [int, float, str, type, np.generic, np.number, "float32", 3, None, np.zeros(2), list])
def test_other_objects_are_no_number_types(value):
    assert other_values.type_of(value) is None


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.usefixtures("path")
def test_types_are_zeros_in_parameter_block(cuda, name):
    k = cuda.package(kernel_of_types(name)).k
    for value in spellings(name):
        k[1, 32](value, 7)
        k[1, 32](value, 8)
        assert [bytes.fromhex(launch["parameters"]) for launch in cuda.launches()[-2:]] == [
            struct.pack("<qi", 0, number) for number in (7, 8)
        ]


@pytest.mark.usefixtures("path")
def test_each_type_takes_its_own_overload_in_any_order(cuda):
    k = cuda.package(kernel_of_types("float32", "float64", "int32")).k
    order = [np.float64, np.float32, np.int32, np.float32, np.dtype("f8"), np.int32, np.float64, np.float32]
    names = ["float32", "float64", "int32"]
    for value in order:
        k[1, 32](value, 1)
        assert cuda.launches()[-1]["kernel"] == f"k__{names.index(np.dtype(value).name)}"


@pytest.mark.parametrize("wrong", [np.float32, np.dtype("f4"), numba_types.float32, float, "float64", 1.0, None])
@pytest.mark.usefixtures("path")
def test_another_type_is_refused_by_name(cuda, wrong):
    k = cuda.package(kernel_of_types("float64")).k
    k[1, 32](np.float64, 1)
    problem = "the type float32" if other_values.type_of(wrong) else type(wrong).__name__
    with pytest.raises(ArgumentError, match=rf"argument 1, t, is {problem} where NumberClass\(float64\) is packaged"):
        k[1, 32](wrong, 1)
    assert len(cuda.launches()) == 1


@pytest.mark.parametrize("text", ["<U1", "<U5", "|S1", "|S5"])
@pytest.mark.usefixtures("path")
def test_arrays_of_strings_are_passed_like_other_arrays(cuda, text):
    record = kernel("k", "void(float32[:])")
    (parameter,) = record["overloads"][0]["parameters"]
    parameter["dtype"] = text
    k = cuda.package(record).k
    for like in (np.zeros(6, text), np.zeros(6, text)[::2]):
        array = cuda.array(like)
        k[1, 32](array)
        k[1, 32](array)
        words = (0, 0, like.size, like.itemsize, array.address, *like.shape, *like.strides)
        assert cuda.parameters() == struct.pack("<7q", *words)
    longer = text[:2] + str(int(text[2:]) + 1)
    name = "UnicodeCharSeq" if "U" in text else "CharSeq"
    problem = f"is {name}({longer[2:]})[::1] where {name}({text[2:]})[:] is packaged"
    with pytest.raises(ArgumentError, match=re.escape(problem)):
        k[1, 32](cuda.array(np.zeros(6, longer)))


def test_signatures_for_fallback_have_types_and_strings(cuda):
    assert signatures.from_arguments((np.float32, np.dtype("i8"))) == "void(NumberClass(float32), NumberClass(int64))"
    assert signatures.from_arguments((np.dtype("M8[ns]"),)) is None
    assert signatures.from_arguments((cuda.array(np.zeros(3, "U5")),)) == "void(UnicodeCharSeq(5)[::1])"
    assert signatures.from_arguments((cuda.array(np.zeros((3, 2), "S5")[:, ::2]),)) == "void(CharSeq(5)[:,:])"
