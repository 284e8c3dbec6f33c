"""Find the cached launcher of a configuration.

The key is the configuration in Python's own ints. For a stream object the key has the stream's handle, and each lookup
returns a new launcher, which keeps the stream object alive.
"""

from __future__ import annotations

from aotcuda.runtime import importing, integer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_MOST_TYPES = 16

_readers: dict[type, Callable[[object], int | None]] = {}
"""By type of stream object: the function that reads the handle."""


def find(launchers: dict[object, Any], configuration: object) -> Any:
    """Return the cached launcher of a configuration; None without one, or if the configuration needs checks."""
    if type(configuration) is not tuple:
        return None
    for part in configuration:
        if type(part) is not int and not are_exact((part,)):
            break
    else:
        return launchers.get(configuration)
    if len(configuration) == 3:
        grid, block, stream = configuration
        shared = 0
    elif len(configuration) == 4:
        grid, block, stream, shared = configuration
    else:
        return None
    read = _readers.get(type(stream))
    if read is None:
        return None
    try:
        handle = read(stream)
    except Exception:  # noqa: BLE001 (the caller then makes a launcher, which raises the error)
        return None
    key = grid, block, handle, shared
    launcher = launchers.get(key) if type(handle) is int and are_exact(key) else None
    return None if launcher is None else launcher.with_stream(stream)


def handle_of(stream: object) -> int:
    """Return the handle of a stream object; from now on, `find` reads handles of stream objects of this type.

    Raises:
        ArgumentError: The object is not a stream.
    """
    with importing:
        from aotcuda.runtime import streams  # noqa: PLC0415 (few programs have stream objects)

    handle = streams.handle(stream) or 0
    if len(_readers) < _MOST_TYPES:
        _readers[type(stream)] = streams.reader_for(type(stream))
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
