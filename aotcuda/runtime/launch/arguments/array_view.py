"""The view of an array: the description that readers return, and its rules."""

# `view` checks the description of an array of any library. The fast path checks the same rules, or declines:
#
# 1. The address is an unsigned int of 64 bits, and not 0 if the array has elements. There are at most 64 extents, which
#    are ints and not negative. The product of the extents that are not zero and the size of an element is below 2**63,
#    as in NumPy. Computed strides and the number of elements therefore fit into 64 bits.
# 2. There are as many strides as extents, or none. Strides are signed ints of 64 bits.
# 3. The check for contiguous arrays ignores the stride of a dimension of one element, and all strides of an array
#    without elements. A contiguous array gets the strides that follow from its shape.

from __future__ import annotations

from ....common.scalar_types import NAMED
from ... import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    View = tuple[str, int, tuple[int, ...], tuple[int, ...] | None, bool]

MOST_DIMENSIONS = 64  # NumPy's and PyTorch's
_BEYOND = 1 << 63
MOST_BYTES = _BEYOND - 1
"""The most bytes of an array."""

_MOST_TYPES = 64
_types: dict[str, tuple[str, int]] = {}
"""By the type string of an array, the canonical one and the bytes of an element."""


def view(typestr: str, address: Any, shape: Any, strides: Any, *, readonly: bool) -> View:
    """Return the view of an array with this description; the rules are at the top of this file.

    Raises:
        UnreadableError: The description breaks a rule.
    """
    element = _types.get(typestr)
    if element is None:
        element = canonical(typestr), item_bytes(typestr)
        if type(typestr) is str and len(_types) < _MOST_TYPES:  # a subclass may define equality by itself
            _types[typestr] = element
    typestr, itemsize = element
    size = itemsize
    if type(shape) is not tuple:
        shape = _extents(shape)
    for extent in shape:
        if type(extent) is not int or extent < 0:
            return view(typestr, address, _extents(shape), strides, readonly=readonly)
        size *= extent or 1
    if size >= _BEYOND or len(shape) > MOST_DIMENSIONS:
        message = f"has shape {errors.short_repr(shape)}, which no memory can hold"
        raise errors.UnreadableError(message)
    if strides is not None:
        strides = _normalize(shape, _numbers(strides, "strides"), itemsize)
    if type(address) is not int:
        address = number(address, "address")
    if not 0 <= address < 1 << 64:
        message = f"has the invalid address {errors.short_repr(address)}"
        raise errors.UnreadableError(message)
    if address == 0 and 0 not in shape:
        text = errors.short_repr(shape)
        message = f"has shape {text} and no memory: its address is 0; pass an array that was allocated"
        raise errors.UnreadableError(message)
    return typestr, address, shape, strides, readonly


def _normalize(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, ...] | None:
    """Check the strides of a shape; return None for a C-contiguous array."""
    if len(strides) != len(shape):
        short_repr = errors.short_repr
        message = f"has shape {short_repr(shape)} and strides {short_repr(strides)}, which differ in number"
        raise errors.UnreadableError(message)
    if is_contiguous(shape, strides, itemsize, "C"):
        return None
    if max(strides) >= _BEYOND or min(strides) < -_BEYOND:
        message = f"has strides {errors.short_repr(strides)}, which no memory can hold"
        raise errors.UnreadableError(message)
    return strides


def _extents(shape: object) -> tuple[int, ...]:
    extents = _numbers(shape, "shape")
    if any(extent < 0 for extent in extents):
        message = f"has shape {errors.short_repr(extents)}, and no extent can be negative"
        raise errors.UnreadableError(message)
    return extents


def _numbers(items: object, attribute: str) -> tuple[int, ...]:
    if not isinstance(items, (tuple, list)):
        message = f"has a {attribute} that is {errors.describe(items)}, and no tuple"
        raise errors.UnreadableError(message)
    for item in items:
        if type(item) is not int:
            return tuple([number(item, attribute) for item in items])
    return tuple(items)


def number(item: object, attribute: str) -> int:
    """Return the value of an int, or of an object with `__index__`; errors name the attribute."""
    if isinstance(item, int):  # C code ignores `__index__` of a subclass, too
        return int.__index__(item)
    index = getattr(type(item), "__index__", None)
    if index is None:
        message = f"has {errors.describe(item)} in its {attribute}, where an int belongs"
        raise errors.UnreadableError(message)
    return int.__index__(index(item))


def canonical(typestr: str) -> str:
    """Return a type string with NumPy's byte order: `|` for single bytes, `<` for little-endian."""
    if typestr[1:] == "f1":  # ml_dtypes
        return "float8_e5m2"
    if typestr[:1] not in ("<", "|", "=") or typestr[1:2] == "V":
        return typestr
    bytewise = typestr[1:2] in ("S", "V") or (typestr[2:] == "1" and typestr[1:2] != "U")
    return ("|" if bytewise else "<") + typestr[1:]


def item_bytes(typestr: str) -> int:
    """Return the bytes of one element of a type string; 1 for a type that NumPy has no type string for."""
    if typestr in NAMED:
        return NAMED[typestr]
    digits = typestr[2:].partition("{")[0].partition("[")[0]  # "|V16{...}", "<M8[ns]"
    count = int(digits) if digits.isdecimal() and digits.isascii() and len(digits) < 10 else 1
    return count * (4 if typestr[1:2] == "U" else 1)  # "<U5" has five characters of four bytes


def is_aligned(view: View, bytes_: int, *, with_strides: bool) -> bool:
    """Return True if an array begins at a multiple of `bytes_`, and `with_strides`, if all its elements are at one."""
    _, address, shape, strides, _ = view
    if 0 in shape:
        return True
    used = strides if strides is not None and with_strides else ()
    steps = [stride for extent, stride in zip(shape, used, strict=False) if extent > 1]
    return not any(number % bytes_ for number in (address, *steps))


def contiguous_strides(shape: tuple[int, ...], itemsize: int, layout: str) -> tuple[int, ...]:
    """Return the strides, in bytes, of a contiguous array in C or F order."""
    strides = []
    step = itemsize
    for extent in reversed(shape) if layout == "C" else shape:
        strides.append(step)
        step *= extent
    return tuple(reversed(strides)) if layout == "C" else tuple(strides)


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, layout: str) -> bool:
    """Return True if strides are contiguous in an order; the stride of a dimension of one element does not matter."""
    step, contiguous = itemsize, True
    if layout == "C":
        shape, strides = shape[::-1], strides[::-1]
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 0:
            return True
        if extent != 1 and stride != step:
            contiguous = False
        step *= extent
    return contiguous


def layout_of(view: View) -> str:
    """Return the layout of an array: `"C"` or `"F"` if it is contiguous in that order, `"C"` if in both, else `"A"`."""
    typestr, _, shape, strides, _ = view
    if strides is None:
        return "C"
    itemsize = item_bytes(typestr)
    return next((order for order in "CF" if is_contiguous(shape, strides, itemsize, order)), "A")


def count_items(shape: tuple[int, ...], itemsize: int) -> int | None:
    """Return the number of elements of an array of this shape; None if no array can have it (rule 1)."""
    items, size = 1, itemsize
    for extent in shape:
        if type(extent) is not int or extent < 0:
            return None
        items *= extent
        size *= extent or 1
    return items if size <= MOST_BYTES and len(shape) <= MOST_DIMENSIONS else None


def overlap(first: View, second: View) -> bool:
    """Return True if the address ranges of two arrays overlap."""
    if 0 in first[2] or 0 in second[2]:
        return False
    low, high = _reach(first)
    other_low, other_high = _reach(second)
    return low < other_high and other_low < high


def _reach(view: View) -> tuple[int, int]:
    """Return the lowest address of an array that has elements, and the first address after the array."""
    typestr, address, shape, strides, _ = view
    itemsize = item_bytes(typestr)
    steps = strides if strides is not None else contiguous_strides(shape, itemsize, "C")
    spans = [(extent - 1) * step for extent, step in zip(shape, steps, strict=True)]
    below, above = sum(span for span in spans if span < 0), sum(span for span in spans if span > 0)
    return address + below, address + above + itemsize
