"""Configurations as users write them, made such that launchers can be kept by them."""

from __future__ import annotations

from operator import index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def are_exact(parts: tuple[object, ...]) -> bool:
    """Whether parts of a configuration are Python's own ints and tuples of them: each is equal to no other one then."""
    for part in parts:
        if type(part) is tuple:
            for number in part:
                if type(number) is not int:
                    return False
        elif type(part) is not int:
            return False
    return True


def exact(written: object) -> Any:
    """A configuration, or parts of one, of Python's own ints alone: a float that equals one is no number of blocks.

    Raises:
        KeyError: It has parts of other types, which whoever makes launchers has words for.
    """
    return tuple(map(_exact, written)) if type(written) is tuple else _number(written)


def _exact(part: object) -> object:
    return tuple(map(_number, part)) if type(part) is tuple else _number(part)


def _number(part: Any) -> object:
    kind = type(part)
    if kind is int or kind is object or part is None:  # an object by itself is equal to nothing else
        return part
    if isinstance(part, int):  # it may say of itself what it likes
        raise KeyError
    try:
        return index(part)
    except (MemoryError, RecursionError):
        raise
    except Exception:  # noqa: BLE001 (arrays have it, and raise)
        raise KeyError from None
