"""Explain why a parameter does not accept an argument. Only errors need this module."""

from __future__ import annotations

import struct

from ... import errors
from . import array_view, type_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ....manifest import Parameter
    from .array_view import View

    Kind = Any  # an `aotcuda.runtime.launch.arguments.parameter_kinds.Kind`


WRITABLE = "pass a writable array, or declare the parameter read-only"


def array_problem(kind: Kind, parameter: Parameter, read: Any, *, counts_elements: bool) -> str | None:
    """Return the problem of an array, or None.

    `counts_elements` is True if the kernel counts strides in elements, not in bytes.
    """
    view: View = read
    typestr, _, shape, strides, readonly = view
    layout, itemsize = parameter["layout"], array_view.item_bytes(typestr)
    name = type_names.array_name(parameter["dtype"], parameter["ndim"], layout)
    if typestr != parameter["dtype"] or len(shape) != parameter["ndim"]:
        return f"is {type_names.view_name(view)} where {name} is packaged"
    if strides is None:
        strides = array_view.contiguous_strides(shape, itemsize, "C")
    if layout != "A" and not array_view.is_contiguous(shape, strides, itemsize, layout):
        return (
            f"has shape {shape} and strides {strides} in bytes, which is not contiguous in {layout} "
            f"order as {name} promises; pass a contiguous copy"
        )
    if readonly and not parameter.get("readonly", False):
        return f"is read-only, and {name} was compiled as writable; {WRITABLE}"
    if layout == "A" and counts_elements and any(stride % itemsize for stride in strides):
        return (
            f"has strides {strides} in bytes, and this kernel counts them in elements of {itemsize} bytes; "
            "pass a contiguous copy"
        )
    return _promise_problem(kind, parameter, view) or size_problem(kind, parameter, view)


def _promise_problem(kind: Kind, parameter: Parameter, view: View) -> str | None:
    """Return the promise of the parameter's type (divisor or sign) that an array breaks, or None."""
    divisor = parameter.get("divisor", 1)
    if view[1] % divisor:
        return f"has the address {view[1]:#x}, which {divisor} does not divide as {parameter['type']} promises"
    for size in parameter.get("sizes", ()):
        lenient: Parameter = {**parameter, "sizes": [{**size, "divisor": 1}]}  # only this size, without its promises
        lenient["sizes"][0].pop("least", None)
        values: list[Any] = []
        if kind.fit(lenient)(view, values) and not kind.fit({**parameter, "sizes": [size]})(view, []):
            number = values[-1]
            problem = f"{size['divisor']} does not divide" if number >= 0 else "is negative, and must not be,"
            name = size["name"].partition(".")[2]
            return f"has {name} = {number}, which {problem} as {parameter['type']} promises"
    return None


def size_problem(kind: Kind, parameter: Parameter, read: Any) -> str | None:
    """Return the problem of a shape or stride that exceeds the type of its kernel parameter, or None."""
    if packs(kind, parameter, read):
        return None
    sizes = " and ".join([f"{size['name']} ({size['type']})" for size in parameter.get("sizes", ())])
    return f"has shape {read[2]}, which exceeds the range of the kernel's {sizes}; pass parts of the array"


def range_problem(kind: Kind, parameter: Parameter, arg: object, read: object) -> str | None:
    """Return the problem of a number that exceeds its parameter's type, or None."""
    if packs(kind, parameter, read):
        return None
    return f"is {errors.short_repr(arg)}, which is out of range for {parameter['type']}"


def packs(kind: Kind, parameter: Parameter, read: object) -> bool:
    """Return True if a parameter accepts the value that was read, and its numbers are in range."""
    values: list[object] = []
    forms = "".join(form for _, form, _ in kind.fields(parameter))
    try:
        if not kind.fit(parameter)(read, values):
            return False
        struct.pack(f"<{forms}", *values)
    except (struct.error, OverflowError):
        return False
    return True
