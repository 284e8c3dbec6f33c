"""Whether arrays overlap: for kernels that were compiled for arrays that do not."""

from __future__ import annotations

from aotcuda.runtime.arguments.views import contiguous_strides, item_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.runtime.arguments.views import View


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
