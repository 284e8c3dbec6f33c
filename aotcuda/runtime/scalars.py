"""Which Python values count as scalars, and which scalar parameters take them.

A Python bool, int, float or complex adopts the parameter's type, and so do NumPy's scalars and anything with
`__index__`, `__float__` or `__complex__`. It may widen in kind (bool -> int -> float -> complex), never narrow: a float
does not fit an int parameter. An int or a bool fits a bool parameter if it is 0 or 1. Ranges are checked.

Where several overloads fit, the nearest kind wins, then NumPy's own type, then the widest type (int64 before int32,
float64 before float32, signed before unsigned).
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from aotcuda.manifest import Parameter

    Convert = Callable[[object, list[object], list[object], int], bool]

_KINDS = ("bool", "int", "float", "complex")
_BY_WIDTH = {"bool": "?", "int": "qQiIhHbB", "float": "dfe", "complex": "df"}
_NUMPY_KINDS = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex"}
_NUMPY_CHARACTERS = {
    "bool": "?",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
    "complex64": "f",
    "complex128": "d",
}

_TYPES = {"bool": "|b1", "boolean": "|b1", "int8": "|i1", "uint8": "|u1"} | {
    f"{kind}{bits}": f"<{kind[0]}{bits // 8}"
    for kind, widths in (("int", (16, 32, 64)), ("uint", (16, 32, 64)), ("float", (16, 32, 64)), ("complex", (64, 128)))
    for bits in widths
}


def kind_of(value: object) -> str | None:
    """`"bool"`, `"int"`, `"float"` or `"complex"`, or None if the value is no scalar."""
    for kind, plain in zip(_KINDS, (bool, int, float, complex), strict=True):
        if isinstance(value, plain):
            return kind
    numpy = sys.modules.get("numpy")  # who holds a NumPy scalar has imported NumPy
    if numpy is not None and isinstance(value, numpy.generic):
        known = _NUMPY_KINDS.get(value.dtype.kind)
        if known is not None:
            return known
    elif any(hasattr(value, mark) for mark in ("__array_interface__", "__cuda_array_interface__", "__dlpack__")):
        return None
    for kind, method in (("int", "__index__"), ("float", "__float__"), ("complex", "__complex__")):
        if hasattr(type(value), method):
            return kind
    return None


def family(parameter: Parameter) -> str:
    """The kind of a scalar parameter: one of the four that `kind_of` tells."""
    if parameter["kind"] == "complex":
        return "complex"
    form = parameter["format"]
    return "bool" if form == "?" else "float" if form in "efd" else "int"


def rank(parameter: Parameter, value: object) -> int | None:
    """How near a scalar parameter is to a value's type: 0 is best; None means it never takes such a value."""
    kind = kind_of(value)
    if kind is None:
        return None
    wanted = family(parameter)
    distance = _KINDS.index(wanted) - _KINDS.index(kind)
    if distance < 0:
        if (kind, wanted) != ("int", "bool"):
            return None
        distance = len(_KINDS)
    own = _NUMPY_CHARACTERS.get(getattr(getattr(value, "dtype", None), "name", ""))
    if distance == 0 and own == parameter["format"]:
        return 0
    return 100 * distance + 1 + _BY_WIDTH[wanted].index(parameter["format"])


def converter(parameter: Parameter, value: object) -> Convert:
    """A function that appends values like `value` to a parameter block's; `struct` checks their range."""
    kind = kind_of(value)
    wanted = family(parameter)
    if wanted == "complex":
        return _complex
    if wanted == "bool":
        return _bool
    if kind == "bool" and type(value) is not bool:
        return _from_bool  # NumPy's bool has no __index__
    return _plain


def _plain(value: object, values: list[object], _pending: list[object], _stream: int) -> bool:
    values.append(value)
    return True


def _from_bool(value: object, values: list[object], _pending: list[object], _stream: int) -> bool:
    values.append(bool(value))
    return True


def _bool(value: object, values: list[object], _pending: list[object], _stream: int) -> bool:
    values.append(value)
    return value == 0 or value == 1  # noqa: PLR1714 (a set would need hashing, a tuple is slower)


def _complex(value: object, values: list[object], _pending: list[object], _stream: int) -> bool:
    number = complex(value)  # type: ignore[call-overload]
    values.append(number.real)
    values.append(number.imag)
    return True


def datetime_rank(value: object) -> int | None:
    """Like `rank`, for a datetime or timedelta parameter: it takes NumPy's scalars of its unit, and counts of it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return 1
    return 0 if getattr(getattr(value, "dtype", None), "kind", "") in ("M", "m") else None


def datetime_converter(parameter: Parameter) -> Convert:
    """A function that appends such a value's count."""
    dtype = parameter["dtype"]

    def convert(value: object, values: list[object], _pending: list[object], _stream: int) -> bool:
        if isinstance(value, int):
            values.append(value)
            return True
        if getattr(value, "dtype", None) is None or value.dtype.str != dtype:  # type: ignore[attr-defined]
            return False
        values.append(int(value.view("i8")))  # type: ignore[attr-defined]
        return True

    return convert


def type_of(value: object) -> str | None:
    """The type string that a class or dtype of NumPy, a dtype of PyTorch or a type of Numba stands for, else None."""
    numpy = sys.modules.get("numpy")  # as in kind_of
    if numpy is not None and (isinstance(value, numpy.dtype) or (isinstance(value, type) and _is_numpys(value, numpy))):
        return str(numpy.dtype(value).str)
    kind = type(value)
    package, _, rest = kind.__module__.partition(".")
    if (package, kind.__name__) == ("torch", "dtype"):
        return _TYPES.get(str(value).removeprefix("torch."))
    if package in ("numba", "numba_cuda", "numba_cuda_mlir") and "types" in rest.split("."):
        return _TYPES.get(str(value))
    return None


def _is_numpys(value: type, numpy: Any) -> bool:
    return issubclass(value, numpy.generic) and value not in (numpy.generic, numpy.number)


def type_rank(value: object) -> int | None:
    """Like `rank`, for a parameter that is a type; all classes have one type, so the converter tells them apart."""
    return 0 if isinstance(value, type) or type_of(value) is not None else None


def type_converter(parameter: Parameter) -> Convert:
    """A function that checks such a value; nothing of it is packed."""
    dtype = parameter["dtype"]

    def convert(value: object, _values: list[object], _pending: list[object], _stream: int) -> bool:
        return type_of(value) == dtype

    return convert


def pointer_rank(value: object) -> int | None:
    """Like `rank`, for a pointer parameter: it takes an address, as an int or a `ctypes.c_void_p`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return 0
    ctypes = sys.modules["ctypes"]
    return 0 if isinstance(value, ctypes.c_void_p) else None


def pointer(value: object, values: list[object], _pending: list[object], _stream: int) -> bool:
    """Append an address."""
    values.append(value if isinstance(value, int) else getattr(value, "value", 0) or 0)
    return True
