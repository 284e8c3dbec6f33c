"""Encode numbers as bfloat16 and float8, rounded to the nearest and ties to even, as ml_dtypes rounds them.

The formats are those of `cuda_bf16.h` and `cuda_fp8.h`; float8 is that of the "OCP 8-bit Floating Point Specification",
version 1.0.
"""

from __future__ import annotations

import math
import struct

_FLOAT = struct.Struct("<f")
_LARGEST = 2.0**128 - 2.0**104
"""The largest number of float32."""

# By name: bits of the mantissa, bias of the exponent, the largest code, the code of infinity or None, that of NaN.
_FORMATS = {
    "bfloat16": (7, 127, 0x7F7F, 0x7F80, 0x7FC0),
    "float8_e5m2": (2, 15, 0x7B, 0x7C, 0x7E),
    "float8_e4m3fn": (3, 7, 0x7E, None, 0x7F),
}
SIGNS = {"bfloat16": 0x8000, "float8_e5m2": 0x80, "float8_e4m3fn": 0x80}
"""The bit of the sign, by the name of the format."""


def encode(name: str, value: float) -> int | None:
    """Return the code of a number; None for one that the format has no finite number for, or no infinity."""
    mantissa_bits, bias, largest, infinity, nan = _FORMATS[name]
    if value != value:  # noqa: PLR0124 (NaN)
        return nan
    sign = SIGNS[name] if math.copysign(1.0, value) < 0 else 0
    size = abs(value)
    if size == math.inf:
        return None if infinity is None else infinity | sign
    if name == "bfloat16" and size < 2.0**128:
        (size,) = _FLOAT.unpack(_FLOAT.pack(min(size, _LARGEST)))  # ml_dtypes rounds to float32 first
    if not size:
        return sign
    exponent = max(math.frexp(size)[1] - 1, 1 - bias)
    code = round(math.ldexp(size, mantissa_bits - exponent)) + ((exponent + bias - 1) << mantissa_bits)
    return code | sign if code <= largest else None
