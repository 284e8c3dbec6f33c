"""Test which packaged functions kernels of another compiler can call."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from aotcuda.integrations.interop import packaged


def module(built_with):
    return SimpleNamespace(name="a.k", manifest={"frontend": built_with})


def records(*signatures):
    return [{"name": f"f{index}", "signature": signature} for index, signature in enumerate(signatures)]


SAME = [
    "float32(float32, int8)",
    "void(CPointer(float32))",
    "complex64(float32)",
    "datetime64[ns](datetime64[ns], timedelta64[ns])",
    "float32(Record(x: float32, n: int32))",
]
DIFFERENT = [
    "float32(complex64)",
    "float32(float32[::1])",
    "float32(UniTuple(float32, 2))",
    "Tuple((int64, Tuple((float32, bool))))(float32)",
    "UniTuple(float32, 2)(float32)",
    "float32(Tuple((int8, complex64)), int8)",
]


def test_functions_passed_alike_are_callable():
    every, alike = records(*SAME, *DIFFERENT), records(*SAME)
    assert packaged.callable_from(module("numba-cuda"), every, "numba-cuda") == every
    assert packaged.callable_from(module("numba-cuda-mlir"), every, "numba-cuda") == alike


@pytest.mark.parametrize("signature", DIFFERENT)
def test_types_passed_differently_are_refused(signature):
    with pytest.raises(TypeError) as caught:
        packaged.callable_from(module("numba-cuda"), records(signature), "numba-cuda-mlir")
    message = str(caught.value)
    assert message.startswith("a.k.f0 cannot be called from a kernel of numba-cuda-mlir: the module was built with ")
    assert signature in message
