"""Launchers for stream objects: found by the streams' handles, and keeping the objects alive for as long as they last.

The extension does the same in C, as far as it knows the objects' types.
"""

from __future__ import annotations

from _operator import attrgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, Protocol

    class _Launches(Protocol):
        """What is kept with a stream: an `aotcuda.runtime.launcher.Launcher`."""

        def __call__(self, *args: Any, **none: Any) -> None: ...
        def quick(self, args: tuple[object, ...]) -> int: ...
        def go_on(self, code: int, args: tuple[object, ...]) -> None: ...
        def reduced(self) -> NoReturn: ...


_MOST_HANDLES = 16

_handles: dict[type, Callable[[Any], object]] = {}
"""Types of stream objects that were met, and what reads the attribute with the handle."""


def held(launcher: _Launches, stream: object, handle: int) -> Any:
    """A launcher for a stream object, of this handle, which it keeps alive."""
    from aotcuda.runtime import fast as extension  # noqa: PLC0415
    from aotcuda.runtime import streams  # noqa: PLC0415 (few programs have stream objects)

    attribute = streams.attribute_of(stream, handle)
    extension.know_stream(type(stream), attribute)
    if attribute is not None and len(_handles) < _MOST_HANDLES:
        _handles[type(stream)] = attrgetter(attribute)
    return extension.hold(launcher, stream) or Held(launcher, stream)


_new = object.__new__


class Configurations:
    """What the extension has of this name: a stream object is asked for its handle, and not for a hash."""

    __slots__ = ("_launchers",)

    def __init__(self, launchers: dict[object, Any]) -> None:
        self._launchers = launchers

    def __getitem__(self, configuration: Any) -> Any:
        """The launcher of a configuration.

        Raises:
            KeyError: There is none yet, or the stream is for the general path.
        """
        if type(configuration) is tuple and 2 < len(configuration) < 5:
            tell = _handles.get(type(configuration[2]))
            if tell is not None:
                if len(configuration) == 3:
                    grid, block, stream = configuration
                    shared = 0
                else:
                    grid, block, stream, shared = configuration
                try:
                    handle = tell(stream)
                except MemoryError:
                    raise
                except Exception:  # noqa: BLE001 (which is for the general path to say)
                    raise KeyError from None
                if type(handle) is not int:
                    raise KeyError
                found = _new(Held)  # a call of the class would take as long as all of this
                found.launcher, found.owner = self._launchers[grid, block, handle, shared], stream
                return found
        return self._launchers[configuration]

    def clear(self) -> None:
        """Drop all launchers."""
        self._launchers.clear()


class Held:
    """A launcher, and the stream object that its stream's handle came from: a stream lives as long as that does."""

    __slots__ = ("launcher", "owner")

    def __init__(self, launcher: _Launches, owner: object) -> None:
        self.launcher = launcher
        self.owner = owner

    def __call__(self, *args: object, **named: object) -> None:
        """As for `Launcher`."""
        launcher = self.launcher
        if named:
            launcher(*args, **named)  # of grids alone take them, others refuse them
            return
        code = launcher.quick(args)
        if code:
            launcher.go_on(code, args)

    def __reduce__(self) -> NoReturn:
        self.launcher.reduced()

    def __getattr__(self, name: str) -> object:
        return getattr(self.launcher, name)

    def __repr__(self) -> str:
        return repr(self.launcher)
