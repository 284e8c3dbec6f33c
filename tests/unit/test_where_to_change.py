"""Test CONTRIBUTING: a parameter kind is one class, and an array protocol is one reader."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from aotcuda.errors import ArgumentError
from aotcuda.runtime.launch.arguments import array_view, arrays, parameter_kinds
from support.manifests import kernel, overload


class Percent(parameter_kinds.Scalar):
    """A float that is an int32 of hundredths in the parameter block."""

    def rank(self, parameter, value):
        return 0 if type(value) is float else None

    def fit(self, parameter):
        def fit(read, values):
            values.append(round(read * 100))
            return True

        return fit

    def fields(self, parameter):
        return [(parameter["offset"], "i", False)]

    def record(self, parameter):
        return None


class Lines:
    """An array of another protocol."""

    def __init__(self, memory):
        self.memory = memory


def read_lines(array, pending, stream):
    return array_view.view("<f4", array.memory.address, array.memory.shape, None, readonly=False)


def test_parameter_kind_is_one_class(cuda, monkeypatch):
    monkeypatch.setitem(parameter_kinds._KINDS, "percent", Percent())
    record = kernel("k", "void(int32, int32)")
    record["overloads"][0]["parameters"][1] = {"name": "p", "type": "percent", "kind": "percent", "offset": 4}
    record["overloads"].append(overload("void(int32, int32)", "k_1"))
    k = cuda.package(record).k
    for _ in range(3):
        k[1, 1](7, 0.25)
    k[1, 1](7, 25)
    launches = [(call["kernel"], call["parameters"]) for call in cuda.launches()]
    assert launches == [("k_0", struct.pack("<2i", 7, 25).hex())] * 3 + [("k_1", struct.pack("<2i", 7, 25).hex())]
    with pytest.raises(ArgumentError, match="packaged"):
        k[1, 1](7, "a quarter")


def test_array_protocol_is_one_reader(cuda, monkeypatch):
    monkeypatch.setitem(arrays._READERS, "lines", read_lines)
    monkeypatch.setitem(arrays._families, Lines, "lines")  # `_family_of` would find it by the class's attributes
    k = cuda.package(kernel("k", "void(float32[::1])", "void(float64[::1])")).k
    array = cuda.array(np.zeros(5, "<f4"))
    for _ in range(3):
        k[1, 1](Lines(array))
    k[1, 1](array)
    assert len({(call["kernel"], call["parameters"]) for call in cuda.launches()}) == 1
    assert len(cuda.launches()) == 4
    with pytest.raises(ArgumentError, match=r"is float32\[:,::1\] where float32\[::1\] is packaged"):
        k[1, 1](Lines(cuda.array(np.zeros((2, 2), "<f4"))))
