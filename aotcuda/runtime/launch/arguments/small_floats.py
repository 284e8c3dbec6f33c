"""Encode numbers as bfloat16 and float8, rounded to the nearest, ties to even, as in ml_dtypes.

Sources: `cuda_bf16.h`, `cuda_fp8.h`, and the "OCP 8-bit Floating Point Specification", version 1.0.
"""

from __future__ import annotations

import math
import struct

_FLOAT = struct.Struct("<f")
_LARGEST = 2.0**128 - 2.0**104
"""The largest number of float32."""

# By name: bits of the mantissa, bias of the exponent, largest code, code of infinity (or None), code of NaN.
_FORMATS = {
    "bfloat16": (7, 127, 0x7F7F, 0x7F80, 0x7FC0),
    "float8_e5m2": (2, 15, 0x7B, 0x7C, 0x7E),
    "float8_e4m3fn": (3, 7, 0x7E, None, 0x7F),
}
SIGNS = {"bfloat16": 0x8000, "float8_e5m2": 0x80, "float8_e4m3fn": 0x80}
"""The sign bit of each format."""


def encode(name: str, value: float) -> int | None:
    """Return the code of a number; None for a number beyond the format's range, or an infinity that it lacks."""
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
