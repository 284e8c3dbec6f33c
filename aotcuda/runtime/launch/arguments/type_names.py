"""Name arguments and array types in errors and signatures."""

from __future__ import annotations

from ... import module_of
from .. import arguments
from . import array_view, arrays, host_arrays, other_values, scalars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .array_view import View

_NAMES = {"f": "float", "i": "int", "u": "uint", "c": "complex"}


def type_name(typestr: str) -> str:
    """Return the type of an element as signatures write it: `float32`."""
    if array_view.canonical(typestr) == "|b1":
        return "bool"
    if typestr[:1] in ("<", "|", "=") and typestr[1:2] in _NAMES and typestr[2:].isdigit():
        return f"{_NAMES[typestr[1]]}{8 * int(typestr[2:])}"
    if typestr[1:2] in ("S", "U"):
        return f"{'UnicodeCharSeq' if typestr[1] == 'U' else 'CharSeq'}({typestr[2:]})"
    return typestr


def array_name(typestr: str, ndim: int, layout: str) -> str:
    """Return an array's type as signatures write it: `float32[:,::1]`."""
    parts = [":"] * ndim
    if parts and layout != "A":
        parts[-1 if layout == "C" else 0] = "::1"
    return f"{type_name(typestr)}[{','.join(parts)}]"


def view_name(view: View) -> str:
    """Return `array_name` of an array that was read."""
    return array_name(view[0], len(view[2]), array_view.layout_of(view))


def name_of(arg: object) -> str:
    """Return an argument's type as signatures write it; the name of its class if it cannot be read."""
    return readable_name(arg) or class_of(arg)


def readable_name(arg: object) -> str | None:
    """Return an argument's type as signatures write it; None if it cannot be read."""
    try:
        read = arrays.reader(arg)
        view = read(arg, [], 0) if read else None
        if view is not None:
            return view_name(view)
        if isinstance(arg, tuple):
            return f"({', '.join(map(name_of, arg))})"
        if host_arrays.is_host(arg):
            return f"host {class_of(arg)}"
        typestr = other_values.type_of(arg)
        if typestr is not None:
            return f"the type {type_name(typestr)}"
        read_value = arguments.reader(arg)
        if read_value is not None:
            read_value(arg, [], 0)
        dtype = scalars.numpy_dtype(arg)
        return str(dtype) if dtype is not None and scalars.kind_of(arg) else class_of(arg)
    except (MemoryError, RecursionError):
        raise
    except Exception:  # noqa: BLE001 (the caller writes the text of another error)
        return None


def class_of(arg: object) -> str:
    """Return the name of an argument's class, with its module; without it for Python's built-in classes."""
    kind = type(arg)
    module = module_of(kind)
    return kind.__qualname__ if module in ("builtins", "") else f"{module}.{kind.__qualname__}"
