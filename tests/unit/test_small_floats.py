"""Check bfloat16 and float8 numbers by value: their codes, and launches of kernels that take them."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import random
import struct

import numpy as np
import pytest

from aotcuda.errors import ArgumentError
from aotcuda.runtime.launch.arguments import small_floats
from support.manifests import kernel
from support.small_floats import decode

BITS = {"bfloat16": 16, "float8_e4m3fn": 8, "float8_e5m2": 8}

KNOWN = [
    ("bfloat16", -0.0, 0x8000),
    ("bfloat16", 1 + 2**-8, 0x3F80),  # a tie, to even
    ("bfloat16", 1 + 3 * 2**-8, 0x3F82),
    ("bfloat16", 3.4e38, None),
    ("bfloat16", -math.inf, 0xFF80),
    ("float8_e4m3fn", 464, 0x7E),  # a tie, to even
    ("float8_e4m3fn", 465, None),
    ("float8_e4m3fn", math.inf, None),
    ("float8_e4m3fn", 2.0**-10, 0x00),
    ("float8_e5m2", 61440, None),
    ("float8_e5m2", math.inf, 0x7C),
]


@pytest.mark.parametrize(("name", "value", "code"), KNOWN)
def test_numbers_are_rounded_to_nearest_code(name, value, code):
    assert small_floats.encode(name, value) == code


@pytest.mark.parametrize("name", BITS)
def test_number_of_every_code_is_encoded_as_that_code(name):
    for code in range(1 << BITS[name]):
        value = decode(name, code)
        assert math.isnan(value) or small_floats.encode(name, value) == code
    assert math.isnan(decode(name, small_floats.encode(name, math.nan)))


@pytest.mark.parametrize("name", BITS)
def test_codes_equal_those_of_ml_dtypes(name):
    dtype = getattr(pytest.importorskip("ml_dtypes"), name)
    codes = np.arange(1 << BITS[name], dtype=f"u{BITS[name] // 8}")
    numbers = sorted({value for value in map(float, codes.view(dtype)) if math.isfinite(value)})
    assert numbers == sorted({value for code in codes if math.isfinite(value := decode(name, int(code)))})
    between = [(one + other) / 2 for one, other in itertools.pairwise(numbers)]
    near = [math.nextafter(value, way) for value in between for way in (-math.inf, math.inf)]
    choose = random.Random(name)
    others = [choose.uniform(-1, 1) * 10 ** choose.randint(-45, 39) for _ in range(20_000)]
    for value in [*numbers, *between, *near, *others]:
        code = small_floats.encode(name, value)
        with np.errstate(all="ignore"):
            expected = np.array(dtype(value))
            expected = int(expected.view(codes.dtype)) if math.isfinite(float(expected)) else None
        assert expected == code, value


def kernel_of(name):
    """Return a kernel of a small float and an int."""
    small = {"name": "a", "type": f"__nv_{name}", "kind": "small", "dtype": name, "offset": 0}
    number = {"name": "n", "type": "int", "kind": "scalar", "format": "i", "offset": 4}
    return kernel("k", "void()", parameters=[small, number], parameter_bytes=8)


@pytest.mark.parametrize("name", BITS)
@pytest.mark.usefixtures("path")
def test_launch_rounds_numbers_of_every_type(cuda, name):
    k = cuda.package(kernel_of(name)).k
    values = [1, True, 0.5, -3, np.float32(1.5), np.float64(0.1), np.float16(2), np.int64(7)]
    with contextlib.suppress(ImportError):
        values.append(getattr(importlib.import_module("ml_dtypes"), name)(0.75))
    for value in values:
        k[1, 32](value, 5)
        assert cuda.parameters() == struct.pack("<HxxI", small_floats.encode(name, float(value)), 5)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("float8_e4m3fn", 500, "is 500, which is out of range for __nv_float8_e4m3fn"),
        ("float8_e4m3fn", math.inf, "is inf, which is out of range for __nv_float8_e4m3fn"),
        ("bfloat16", 10**400, "out of range for __nv_bfloat16"),
        ("bfloat16", 1j, "is complex where __nv_bfloat16 is packaged"),
        ("bfloat16", "1", "is str where __nv_bfloat16 is packaged"),
    ],
)
@pytest.mark.usefixtures("path")
def test_values_out_of_range_are_refused(cuda, name, value, problem):
    with pytest.raises(ArgumentError, match=problem):
        cuda.package(kernel_of(name)).k[1, 32](value, 5)
    assert cuda.launches() == []
