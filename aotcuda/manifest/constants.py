"""Constants of kernels in JSON: strict readers of JSON refuse infinity and NaN, so these are objects."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SPECIAL = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}
"""The floats that JSON lacks, by the name that they have in `{"float": "inf"}`."""


def encode(value: Any) -> Any:
    """Return a constant as JSON has it: `{"float": "inf"}` for infinity, a list for a tuple."""
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, float) and repr(value) in SPECIAL:
        return {"float": repr(value)}
    return value


def decode(value: Any) -> Any:
    """Return the constant of a value that `encode` returned. Other objects are unchanged."""
    if isinstance(value, list):
        return tuple([decode(item) for item in value])
    if isinstance(value, dict) and value.keys() == {"float"} and isinstance(value["float"], str):
        return SPECIAL.get(value["float"], value)
    return value
