"""Names of element types in tables, with NumPy's type strings."""

from __future__ import annotations

from aotcuda.manifest.dtypes import NAMED

ELEMENTS = {
    "bool": "|b1",
    "int8": "|i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "uint8": "|u1",
    "uint16": "<u2",
    "uint32": "<u4",
    "uint64": "<u8",
    "float16": "<f2",
    "bfloat16": "bfloat16",
    "float32": "<f4",
    "float64": "<f8",
}
"""Type strings of the elements of arrays in every front end, by NumPy's names."""

MORE = {"complex64": "<c8", "complex128": "<c16", **{name: name for name in NAMED}}
"""Type strings that C++ kernels have in addition."""
