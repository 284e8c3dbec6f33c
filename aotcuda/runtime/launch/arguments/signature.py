"""Write the signature of a call's arguments in Numba's notation; the JIT fallback compiles it.

Arguments have the same types as in Numba: a Python int is an int64 (a uint64 beyond int64), a float a float64, a
complex a complex128. NumPy's scalars have their own types. An array that is contiguous in both orders has layout C.
"""

from __future__ import annotations

from ....common.scalar_types import NAMED, TYPE_STRINGS
from ....errors import UnreadableError
from . import array_view, arrays, host_arrays, other_values, scalars, type_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .array_view import View

_SCALARS = frozenset(name for name in TYPE_STRINGS if name != "bool" and name not in NAMED)


def from_arguments(args: tuple[object, ...]) -> str | None:
    """Return the signature; None if no packaged kernel can have a parameter for one of the arguments.

    Raises:
        UnreadableError: An argument cannot be read.
    """
    try:
        types = [_type(arg) for arg in args]
    except (UnreadableError, MemoryError, RecursionError):
        raise
    except Exception as error:
        raise UnreadableError.from_error(error) from error
    return f"void({', '.join([name for name in types if name])})" if None not in types else None


def _type(arg: object) -> str | None:
    read = arrays.reader(arg)
    if read is not None:
        view = read(arg, [], 0)
        return None if view is None else _array(view)
    if isinstance(arg, tuple):
        members = [_type(item) for item in arg]
        return f"Tuple(({', '.join([name for name in members if name])},))" if arg and None not in members else None
    return None if host_arrays.is_host(arg) else _scalar(arg)


def _array(view: View) -> str | None:
    typestr, _, shape, _, readonly = view
    element = type_names.type_name(typestr)
    if element == "bool":
        element = "boolean"
    elif element not in _SCALARS and "CharSeq" not in element:
        return None
    ndim, layout = len(shape), array_view.layout_of(view)
    if readonly or ndim == 0:
        extra = ", readonly=True" if readonly else ""
        return f"Array({element}, {ndim}, {layout!r}{extra})"
    return type_names.array_name(typestr, ndim, layout).replace(type_names.type_name(typestr), element)


def _scalar(value: object) -> str | None:
    name = other_values.type_of(value)
    if name is not None:
        element = type_names.type_name(name)
        return f"NumberClass({element})" if element in _SCALARS else None
    kind = scalars.kind_of(value)
    numpy_name = getattr(scalars.numpy_dtype(value), "name", "")
    if numpy_name:  # a NumPy scalar has its own type
        return "boolean" if numpy_name == "bool" else str(numpy_name) if numpy_name in _SCALARS else None
    if kind == "int":
        number: Any = scalars.reader(value)(value, [], 0)
        return "int64" if -(2**63) <= number < 2**63 else "uint64" if 0 <= number < 2**64 else None
    return {"bool": "boolean", "float": "float64", "complex": "complex128"}.get(kind or "")
