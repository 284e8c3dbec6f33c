"""Configurations as users write them, made such that launchers can be kept by them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def exact(written: object) -> Any:
    """A configuration, or parts of one, of Python's own ints alone: a float that equals one is no number of blocks.

    Raises:
        KeyError: It has parts of other types, which whoever makes launchers has words for.
    """
    return tuple(map(_exact, written)) if type(written) is tuple else _number(written)


def _exact(part: object) -> Any:
    if type(part) is not tuple:
        return _number(part)
    for number in part:
        if type(number) is not int:
            return tuple(map(_number, part))
    return part


def _number(part: Any) -> object:
    kind = type(part)
    if kind is int or kind is object or part is None:  # an object by itself is equal to nothing else
        return part
    try:
        return int(part.__index__())
    except (MemoryError, RecursionError):
        raise
    except Exception:  # noqa: BLE001 (arrays have it, and raise)
        raise KeyError from None
