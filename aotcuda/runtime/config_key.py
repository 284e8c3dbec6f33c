"""The key by which a launcher is cached: the launch configuration as its user wrote it, in Python's own ints."""

from __future__ import annotations

from operator import index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def are_exact(parts: tuple[object, ...]) -> bool:
    """Return True if parts of a configuration are Python's own ints and tuples of them, which equal no others."""
    for part in parts:
        if type(part) is tuple:
            for number in part:
                if type(number) is not int:
                    return False
        elif type(part) is not int:
            return False
    return True


def exact(written: object) -> Any:
    """Return a configuration, or parts of one, in Python's own ints: a float that equals one is no number of blocks.

    Raises:
        KeyError: It has parts of other types; whoever makes the launcher raises the error.
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


def of(configuration: tuple[object, ...]) -> tuple[Any, ...] | None:
    """Return the key of a launcher's configuration; None if it has parts of other types, or holds something alive."""
    if _is_plain(configuration):
        return configuration
    if type(configuration) is not tuple:
        return None
    try:
        key: tuple[Any, ...] = exact(tuple([tuple(part) if type(part) is list else part for part in configuration]))
    except KeyError:
        return None
    return None if any(type(part) is object for part in key) else key


def _is_plain(configuration: object) -> bool:
    """Return True if a configuration is made of ints, None and tuples of them, and so holds nothing alive."""
    if type(configuration) is not tuple:  # another one may be equal to what it is not
        return False
    return all(part is None or type(part) is int or (type(part) is tuple and _is_plain(part)) for part in configuration)
