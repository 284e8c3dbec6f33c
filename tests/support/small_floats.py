"""The numbers of bfloat16 and float8 codes, as tests compare them."""

from __future__ import annotations

import math

from aotcuda.runtime.launch.arguments.small_floats import _FORMATS, SIGNS


def decode(name: str, code: int) -> float:
    """Return the number of a code."""
    mantissa_bits, bias, largest, infinity, _ = _FORMATS[name]
    size, sign = code & ~SIGNS[name], -1.0 if code & SIGNS[name] else 1.0
    if size > largest:
        return sign * math.inf if size == infinity else math.nan
    exponent, mantissa = size >> mantissa_bits, size & ((1 << mantissa_bits) - 1)
    whole = mantissa + (1 << mantissa_bits if exponent else 0)
    return sign * math.ldexp(whole, max(exponent, 1) - bias - mantissa_bits)
