"""The signature that the JIT fallback compiles for the arguments of a launch."""

from __future__ import annotations

import numpy as np
import pytest

from aotcuda.runtime.launch.arguments import signature as signatures


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (True, "boolean"),
        (1, "int64"),
        (2**63, "uint64"),
        (1.5, "float64"),
        (1j, "complex128"),
        (np.bool_(1), "boolean"),
        (np.uint64(1), "uint64"),
        (np.float32(1), "float32"),
        (np.complex64(1), "complex64"),
        ((1, (2.0, np.int32(3))), "Tuple((int64, Tuple((float64, int32,)),))"),
    ],
)
def test_scalars_have_numbas_own_types(value, name):
    assert signatures.from_arguments((value,)) == f"void({name})"


@pytest.mark.parametrize("value", [None, "text", 2**64, -(2**63) - 1, (), object(), np.zeros(3), np.datetime64(1, "s")])
def test_values_without_a_type_have_no_signature(value):
    assert signatures.from_arguments((value,)) is None
    assert signatures.from_arguments((1, (2, value))) is None


@pytest.mark.parametrize(
    ("like", "name"),
    [
        (np.zeros(4, "f4"), "float32[::1]"),
        (np.zeros(8, "f4")[::2], "float32[:]"),
        (np.zeros((4, 3), "i2"), "int16[:,::1]"),
        (np.zeros((4, 3), "i2").T, "int16[::1,:]"),
        (np.zeros((1, 3), "c8"), "complex64[:,::1]"),
        (np.zeros(3, "?"), "boolean[::1]"),
        (np.zeros((), "u1"), "Array(uint8, 0, 'C')"),
    ],
)
def test_arrays_have_dtype_dimensions_and_layout(cuda, like, name):
    assert signatures.from_arguments((cuda.array(like),)) == f"void({name})"
    if name == "float32[::1]":
        locked = cuda.array(like, data=(4096, True))
        assert signatures.from_arguments((locked,)) == "void(Array(float32, 1, 'C', readonly=True))"
