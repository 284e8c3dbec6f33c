"""Match Python values with scalar parameters."""

# A Python bool, int, float or complex, a scalar of NumPy and any object with `__index__`, `__float__` or `__complex__`
# adopts the parameter's type. Its kind may widen (bool -> int -> float -> complex) and never narrows: a float does not
# fit an int parameter. An int or a bool fits a bool parameter if it is 0 or 1. Ranges are checked.
#
# The value's type alone decides the kind. `reader` reads the number once for a launch, as a plain bool, int, float or
# complex. An object of a subclass of these types (such as `numpy.float64`) has the number that it holds. NumPy's other
# scalars and all other objects have the result of the first of `__index__`, `__float__` and `__complex__` that they
# define.
#
# An `exact` parameter, of a kernel that is packaged in place, accepts only numbers that have the parameter's type in
# Numba: a Python int is an int64, a float is a float64, and NumPy's scalars have their own types. A Python int beyond
# int64 is a uint64. `separate_large` gives it another Python type, since launches cache decisions by types.
#
# If several overloads fit, the nearest kind wins, then NumPy's own type, then the widest type (int64 before int32,
# float64 before float32, signed before unsigned).

from __future__ import annotations

import sys
from operator import index

from ....common.scalar_types import FORMATS, NAMED
from . import arrays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ....manifest import Parameter

    Read = Callable[[Any, list[object], int], object]

_KINDS = ("bool", "int", "float", "complex")
_BY_WIDTH = {"bool": "?", "int": "qQiIhHbB", "float": "dfe", "complex": "df"}
_NUMPY_KINDS = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex"}
_NUMPY_CHARACTERS = {**FORMATS, "complex64": "f", "complex128": "d"}
_METHODS = (("int", "__index__"), ("float", "__float__"), ("complex", "__complex__"))
_ARRAY_ATTRIBUTES = ("__array_interface__", "__cuda_array_interface__", "__dlpack__")

PLAIN = (bool, int, float, complex)
"""The types of the values that readers return; their own values need no reader."""


def kind_of(value: object) -> str | None:
    """Return `"bool"`, `"int"`, `"float"` or `"complex"`; None if the value is no number."""
    for kind, plain in zip(_KINDS, PLAIN, strict=True):
        if isinstance(value, plain):
            return kind
    dtype = numpy_dtype(value)
    if dtype is not None:
        return "float" if dtype.name in NAMED else _NUMPY_KINDS.get(dtype.kind)
    if any(hasattr(type(value), attribute) for attribute in _ARRAY_ATTRIBUTES):
        return None
    kind_of_method = next((kind for kind, method in _METHODS if hasattr(type(value), method)), None)
    return None if kind_of_method is None or arrays.family(value) is not None else kind_of_method


def numpy_dtype(value: object) -> Any:
    """Return the dtype of a NumPy scalar; None for all other objects."""
    numpy: Any = sys.modules.get("numpy")  # a NumPy scalar exists only if NumPy is imported
    return value.dtype if numpy is not None and isinstance(value, numpy.generic) else None


class Large(int):
    """A Python int beyond int64."""

    __slots__ = ()


def separate_large(args: tuple[object, ...]) -> tuple[object, ...]:
    """Return the arguments with each Python int beyond int64 as a `Large`; without such ints, the same tuple."""
    separated = tuple([_separate_large(arg) for arg in args])
    return args if all(one is other for one, other in zip(separated, args, strict=True)) else separated


def _separate_large(arg: object) -> object:
    if isinstance(arg, tuple):
        return separate_large(arg)
    if isinstance(arg, int) and type(arg) is not Large:
        number = int.__index__(arg)
        return Large(number) if number >= 1 << 63 else arg
    return arg


def is_plain(value: object) -> bool:
    """Return True if a value is a number of Python or NumPy."""
    return isinstance(value, PLAIN) or getattr(numpy_dtype(value), "kind", "") in _NUMPY_KINDS


def is_from_other_library(value: object) -> bool:
    """Return True if a number is neither Python's nor NumPy's. Reading it then runs Python code."""
    return not isinstance(value, PLAIN) and numpy_dtype(value) is None


def reader(value: object) -> Read:
    """Return the function that reads numbers of the type of `value` as a plain bool, int, float or complex."""
    if type(value) in PLAIN:
        return read_plain
    for plain in (int, float, complex):
        if isinstance(value, plain):
            return _read_by(_BASE_METHODS[plain])
    return _read_by(_CONVERSIONS[kind_of(value) or ""])


def _read_by(number: Callable[[Any], object]) -> Read:
    return lambda value, _pending, _stream: number(value)


def _index(value: object) -> int:
    return int.__index__(index(value))  # type: ignore[arg-type]  # `kind_of` found the method


def read_plain(value: object, _pending: list[object], _stream: int) -> object:
    """Read a number of Python's own types."""
    return value


_BASE_METHODS: dict[type, Callable[[Any], object]] = {
    int: int.__index__,
    float: float.__float__,
    complex: complex.__complex__,
}
_CONVERSIONS: dict[str, Callable[[Any], object]] = {
    "bool": bool,  # NumPy's has no __index__
    "int": _index,
    "float": float,
    "complex": complex,
}


def family(parameter: Parameter) -> str:
    """Return the kind of a scalar parameter: one of the four that `kind_of` returns."""
    if parameter["kind"] == "complex":
        return "complex"
    if parameter["kind"] == "small":
        return "float"
    form = parameter["format"]
    return "bool" if form == "?" else "float" if form in "efd" else "int"


def rank(parameter: Parameter, value: object) -> int | None:
    """Return the distance from a value's type to a scalar parameter's: 0 is best; None if the type never fits."""
    kind = kind_of(value)
    if kind is None:
        return None
    if parameter.get("exact"):
        return 0 if _numba_type(value, kind) == (family(parameter), parameter["format"]) else None
    parameter_family = family(parameter)
    distance = _KINDS.index(parameter_family) - _KINDS.index(kind)
    if distance < 0:
        if (kind, parameter_family) != ("int", "bool"):
            return None
        distance = len(_KINDS)
    character = _NUMPY_CHARACTERS.get(getattr(numpy_dtype(value), "name", ""))
    if distance == 0 and character == parameter["format"]:
        return 0
    return 100 * distance + 1 + _BY_WIDTH[parameter_family].index(parameter["format"])


def _numba_type(value: object, kind: str) -> tuple[str, str]:
    """Return kind and `struct` character of a number's type in Numba."""
    character = _NUMPY_CHARACTERS.get(getattr(numpy_dtype(value), "name", ""))
    if type(value) is Large:
        return kind, "Q"
    return kind, character or {"bool": "?", "int": "q", "float": "d", "complex": "d"}[kind]


def fit_plain(number: object, values: list[object]) -> bool:
    """Append an int or a float, whose range `struct` checks."""
    values.append(number)
    return True


def fit_bool(number: object, values: list[object]) -> bool:
    """Append a bool, or a number that is equal to a bool."""
    values.append(number)
    return number == 0 or number == 1  # noqa: PLR1714 (a set would need hashing, a tuple is slower)


def fit_complex(number: Any, values: list[object]) -> bool:
    """Append the two parts of a complex number."""
    try:
        number = complex(number)
    except OverflowError:  # an int beyond all floats
        return False
    values.append(number.real)
    values.append(number.imag)
    return True
