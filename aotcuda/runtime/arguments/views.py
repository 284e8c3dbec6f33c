"""The view of an array: what any device array says of itself, whatever its library, and the rules that it is held to.

`view` says what any array may say of itself, whatever its library; the fast paths hold themselves to it, or decline:

1. The address is an int of 64 bits. Extents are ints and not negative, at most 64 of them; all but those that are zero
   multiplied with each other and the size of an element stay below 2**63, as in NumPy. So a stride that is computed,
   and the number of elements, always fit.
2. Strides, if there are any, are as many as extents, and ints of 64 bits.
3. To tell whether an array is contiguous, the stride of a dimension of one element is not looked at, and neither are
   those of an array without elements. One that is has the strides that follow from its shape, whatever it says.
"""

from __future__ import annotations

from aotcuda import lazy_errors as errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    View = tuple[str, int, tuple[int, ...], tuple[int, ...] | None, bool]

_MOST_DIMENSIONS = 64  # NumPy's and PyTorch's
_BEYOND = 1 << 63


class UnreadableError(Exception):
    """An argument cannot be read: what it says of itself is impossible, or asking it raised.

    The text goes on from the argument's name: "has a mask". `aotcuda.runtime.arguments.overloads` makes an
    ArgumentError of it, which names the kernel and the argument.
    """

    @classmethod
    def of(cls, error: Exception) -> UnreadableError:
        """That asking an argument raised `error`."""
        text = errors.text_of(error).partition("\n")[0]
        return cls(f"cannot be read: {type(error).__name__}{f': {text}' if text else ''}")


def view(typestr: str, address: Any, shape: Any, strides: Any, *, readonly: bool) -> View:
    """The view of an array of which its library says this; the rules are at the top of this file.

    Raises:
        UnreadableError: No array can be so.
    """
    typestr, itemsize = _KNOWN.get(typestr) or (canonical(typestr), item_bytes(typestr))
    size = itemsize
    if type(shape) is not tuple:
        shape = _extents(shape)
    for extent in shape:
        if type(extent) is not int or extent < 0:
            return view(typestr, address, _extents(shape), strides, readonly=readonly)
        size *= extent or 1
    if size >= _BEYOND or len(shape) > _MOST_DIMENSIONS:
        message = f"has shape {shown(shape)}, which no memory can hold"
        raise UnreadableError(message)
    if strides is not None:
        strides = _normal(shape, _numbers(strides, "strides"), itemsize)
    if type(address) is not int:
        address = number(address, "address")
    if not 0 <= address < 1 << 64:
        message = f"lies at {shown(address)}, which is no address"
        raise UnreadableError(message)
    return typestr, address, shape, strides, readonly


def _normal(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, ...] | None:
    """Strides that belong to a shape; None for those of a C-contiguous array."""
    if len(strides) != len(shape):
        message = f"has shape {shown(shape)} and strides {shown(strides)}, which are not as many"
        raise UnreadableError(message)
    if is_contiguous(shape, strides, itemsize, "C"):
        return None
    if max(strides) >= _BEYOND or min(strides) < -_BEYOND:
        message = f"has strides {shown(strides)}, which no memory can hold"
        raise UnreadableError(message)
    return strides


def _extents(shape: object) -> tuple[int, ...]:
    found = _numbers(shape, "shape")
    if any(extent < 0 for extent in found):
        message = f"has shape {shown(found)}, and no extent can be negative"
        raise UnreadableError(message)
    return found


def _numbers(items: object, what: str) -> tuple[int, ...]:
    if not isinstance(items, tuple | list):
        message = f"has a {what} that is {describe(items)}, and no tuple"
        raise UnreadableError(message)
    return tuple([item if type(item) is int else number(item, what) for item in items])


def number(item: object, what: str) -> int:
    """An int, or what stands for one; `what` an array has it in, for an error."""
    index = getattr(type(item), "__index__", None)
    if index is None:
        message = f"has {describe(item)} in its {what}, where an int belongs"
        raise UnreadableError(message)
    return int.__index__(index(item))


def describe(value: object) -> str:
    """A value with its type, for a message: at most a line, whatever it is."""
    kind = type(value)
    if value is None:
        return "None"
    if kind is str:
        return f"str {value[:20]!r}"  # type: ignore[index]
    return f"{kind.__name__} {shown(value)}" if kind in (bool, int, float) else kind.__name__


def shown(value: object) -> str:
    """The `repr` of a number or of several; as a power of two what has too many digits to be read, or to be written."""
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, int) and int.bit_length(value) > 80:
        return f"{'-' if value < 0 else ''}2**{int.bit_length(value) - 1} and more"
    return repr(value)


def canonical(typestr: str) -> str:
    """A type string with the byte order as NumPy writes it: `|` for single bytes, `<` for little-endian."""
    if typestr[:1] not in ("<", "|", "=") or typestr[1:2] == "V":
        return typestr
    bytewise = typestr[1:2] in ("S", "V") or (typestr[2:] == "1" and typestr[1:2] != "U")
    return ("|" if bytewise else "<") + typestr[1:]


def item_bytes(typestr: str) -> int:
    """Bytes of one element of a type string; 1 for one that NumPy has no such text for."""
    if typestr == "bfloat16":
        return 2
    digits = typestr[2:].partition("{")[0].partition("[")[0]  # "|V16{...}", "<M8[ns]"
    count = int(digits) if digits.isdecimal() and digits.isascii() and len(digits) < 10 else 1
    return count * (4 if typestr[1:2] == "U" else 1)  # of strings it counts the characters


def contiguous_strides(shape: tuple[int, ...], itemsize: int, layout: str) -> tuple[int, ...]:
    """The strides, in bytes, of a contiguous array in C or F order."""
    strides = []
    step = itemsize
    for extent in reversed(shape) if layout == "C" else shape:
        strides.append(step)
        step *= extent
    return tuple(reversed(strides)) if layout == "C" else tuple(strides)


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, layout: str) -> bool:
    """Whether strides are contiguous in an order; the stride of a dimension of one element does not matter."""
    step, contiguous = itemsize, True
    pairs = zip(shape, strides, strict=True) if layout == "F" else zip(shape[::-1], strides[::-1], strict=True)
    for extent, have in pairs:
        if extent == 0:
            return True
        if extent != 1 and have != step:
            contiguous = False
        step *= extent
    return contiguous


def overlap(first: View, second: View) -> bool:
    """Whether two arrays may have bytes in common, by the addresses that each reaches from and to."""
    if 0 in first[2] or 0 in second[2]:
        return False
    low, high = _reach(first)
    other_low, other_high = _reach(second)
    return low < other_high and other_low < high


def _reach(view: View) -> tuple[int, int]:
    """The lowest address of an array that has elements, and the first one after it."""
    typestr, address, shape, strides, _ = view
    itemsize = item_bytes(typestr)
    steps = strides if strides is not None else contiguous_strides(shape, itemsize, "C")
    ways = [(extent - 1) * step for extent, step in zip(shape, steps, strict=True)]
    return address + sum(way for way in ways if way < 0), address + sum(way for way in ways if way > 0) + itemsize


_PLAIN = (
    "|b1",
    "<b1",
    "bfloat16",
    *[f"{'|' if size == 1 else '<'}{kind}{size}" for kind in "ui" for size in (1, 2, 4, 8)],
)
_KNOWN = {text: (canonical(text), item_bytes(text)) for text in (*_PLAIN, "<f2", "<f4", "<f8", "<c8", "<c16")}
"""What `view` sees most."""
