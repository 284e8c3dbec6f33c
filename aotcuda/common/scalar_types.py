"""Define the types of numbers: their names in NumPy, PyTorch, Triton, Numba and C, and their sizes.

This is the only such table. Front ends, manifests, launches and tools derive their own from it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

TABLE = (
    ("bool", "?", "|b1", "i1", "bool", "boolean bool_ b1"),
    ("int8", "b", "|i1", "i8", "signed char", "char i1"),
    ("int16", "h", "<i2", "i16", "short", "short i2"),
    ("int32", "i", "<i4", "i32", "int", "intc i4"),
    ("int64", "q", "<i8", "i64", "long long", "int_ long_ longlong intp ssize_t i8"),
    ("uint8", "B", "|u1", "u8", "unsigned char", "byte uchar u1"),
    ("uint16", "H", "<u2", "u16", "unsigned short", "ushort u2"),
    ("uint32", "I", "<u4", "u32", "unsigned int", "uintc u4"),
    ("uint64", "Q", "<u8", "u64", "unsigned long long", "uint ulong ulonglong uintp size_t u8"),
    ("float16", "e", "<f2", "fp16", "unsigned short", "half f2"),
    ("bfloat16", "", "", "bf16", "", ""),
    ("float32", "f", "<f4", "fp32", "float", "float_ f4"),
    ("float64", "d", "<f8", "fp64", "double", "double f8"),
    ("complex64", "", "<c8", "", "aotcuda_complex64", "c8"),
    ("complex128", "", "<c16", "", "aotcuda_complex128", "c16"),
    ("float8_e4m3fn", "", "", "fp8e4nv", "", ""),
    ("float8_e4m3fnuz", "", "", "fp8e4b8", "", ""),
    ("float8_e5m2", "", "", "fp8e5", "", ""),
    ("float8_e5m2fnuz", "", "", "fp8e5b16", "", ""),
    ("float8_e8m0fnu", "", "", "", "", ""),
)
"""The name in NumPy, PyTorch and ml_dtypes; the `struct` character; NumPy's type string; the name in Triton's
signatures; the type in C, in which a 16-bit float is its bits; and Numba's other names. A text is empty if the type has
none.
"""

TYPE_STRINGS: Mapping[str, str] = {name: typestr or name for name, _, typestr, *_ in TABLE}
"""NumPy's type strings by name; a type without one has its name instead."""

FORMATS: Mapping[str, str] = {name: form for name, form, *_ in TABLE if form}
"""`struct` characters by name."""

NAMED: Mapping[str, int] = {name: 2 if name == "bfloat16" else 1 for name, _, typestr, *_ in TABLE if not typestr}
"""The sizes in bytes of types without a type string of NumPy, by name."""

TRITON: Mapping[str, str] = {triton: name for name, *_, triton, _, _ in TABLE if triton}
"""Names by the names in Triton's signatures."""

C_TYPES: Mapping[str, str] = {name: kind for name, *_, kind, _ in TABLE if kind}
"""C types by name."""

NUMBA: Mapping[str, str] = {other: name for name, *_, others in TABLE for other in (name, *others.split()) if others}
"""Names by all of Numba's names, for the types that each of its releases has."""


def alignment(typestr: str) -> int:
    """Return the alignment in bytes of a type's elements; 1 for structured types, whose manifest entry has it."""
    if typestr in NAMED:
        return NAMED[typestr]
    code, digits = typestr[1:2], typestr[2:].partition("[")[0]
    if code == "U":
        return 4
    if code in ("S", "V") or not digits.isdecimal():
        return 1
    return max(int(digits[:9]) // (2 if code == "c" else 1), 1)
