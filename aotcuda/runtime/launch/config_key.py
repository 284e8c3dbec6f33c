"""Read the parts of a launch configuration that a user wrote: integers of any kind, and stream objects."""

from __future__ import annotations

from .. import importing, integer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_MOST_TYPES = 16

readers: dict[type, Callable[[object], int | None]] = {}
"""By type of stream object: the function that reads the handle, for the launchers in C."""


def handle_of(stream: object) -> int:
    """Return the handle of a stream object; from now on, C reads handles of stream objects of this type.

    Raises:
        ArgumentError: The object is not a stream.
    """
    with importing:
        from .. import streams  # noqa: PLC0415 (few programs have stream objects)

    handle = streams.handle(stream) or 0
    if len(readers) < _MOST_TYPES:
        readers[type(stream)] = streams.reader_for(type(stream))
    return handle


def are_exact(parts: tuple[object, ...]) -> bool:
    """Return True if all parts of a configuration are None, ints or tuples of ints; 1.0 equals 1, and is not an int."""
    for part in parts:
        if type(part) is tuple:
            for number in part:
                if type(number) is not int:
                    return False
        elif type(part) is not int and part is not None:
            return False
    return True


def exact_key(configuration: tuple[object, ...]) -> tuple[Any, ...] | None:
    """Return a configuration with its lists as tuples, and its integers, such as NumPy's, as ints; None otherwise."""
    key = []
    for part in configuration:
        exact_part = tuple(map(integer, part)) if type(part) in (tuple, list) else integer(part)  # type: ignore[call-overload]
        if not are_exact((exact_part,)) or (exact_part is None and part is not None):
            return None
        key.append(exact_part)
    return tuple(key)
