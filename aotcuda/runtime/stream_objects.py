"""Launchers for stream objects: found by the streams' handles, and keeping the objects alive for as long as they last.

The extension does the same in C, as far as it knows the objects' types.
"""

from __future__ import annotations

from aotcuda.runtime.config_key import are_exact, exact
from aotcuda.runtime.launcher import OfThisProcess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from aotcuda.runtime.launcher import Launcher


_MOST_TYPES = 16

_attributes: dict[type, str | None] = {int: None, type(None): None}
"""Types of streams that were met, and the attribute with the handle; None for what is no object."""


def held(launcher: Launcher, stream: object, handle: int) -> Any:
    """Return a launcher for a stream object, of this handle, which it keeps alive."""
    from aotcuda.runtime import fast as extension  # noqa: PLC0415
    from aotcuda.runtime import streams  # noqa: PLC0415 (few programs have stream objects)

    attribute = streams.attribute_of(stream, handle)
    extension.know_stream(type(stream), attribute)
    if attribute is not None and len(_attributes) < _MOST_TYPES:
        _attributes[type(stream)] = attribute
    return extension.hold(launcher, stream) or _held(launcher, stream)


class Configurations:
    """The Python twin of the extension's class: it uses a stream's handle as the key, not its hash."""

    __slots__ = ("_launchers",)

    def __init__(self, launchers: dict[object, Any]) -> None:
        self._launchers = launchers

    def __getitem__(self, configuration: Any) -> Any:  # noqa: PLR0912 (a function more would be a fiftieth of a launch)
        """Return the launcher of a configuration.

        Raises:
            KeyError: There is none yet, or the stream is for the general path.
        """
        # Written for the launch that names its stream each time: in few steps, and such as Python has short ways for.
        if type(configuration) is not tuple:
            raise KeyError
        if len(configuration) == 2:
            grid, block = configuration
            if (type(grid) is not int or type(block) is not int) and not are_exact(configuration):
                configuration = exact(configuration)
            return self._launchers[configuration]
        if len(configuration) == 3:
            grid, block, stream = configuration
            kind = type(stream)
            if type(grid) is int and type(block) is int:
                if kind is int:
                    return self._launchers[configuration]
            elif not are_exact((grid, block)):
                grid, block = exact((grid, block))
                configuration = grid, block, stream
            shared = 0
        elif len(configuration) == 4:
            grid, block, stream, shared = configuration
            kind = type(stream)
            parts = grid, block, shared
            if not are_exact(parts):
                grid, block, shared = exact(parts)
                configuration = grid, block, stream, shared
        else:
            raise KeyError
        attribute = _attributes[kind]
        try:
            if attribute == "ptr":
                handle = stream.ptr
            elif attribute == "cuda_stream":
                handle = stream.cuda_stream
            elif attribute is None:
                return self._launchers[configuration]
            else:
                handle = getattr(stream, attribute)
        except (MemoryError, RecursionError):
            raise
        except Exception:  # noqa: BLE001 (which is for the general path to say)
            raise KeyError from None
        if type(handle) is not int:
            raise KeyError
        found = Held()
        found.__call__ = self._launchers[grid, block, handle, shared]
        found.owner = stream
        return found

    def clear(self) -> None:
        """Drop all launchers."""
        self._launchers.clear()


class Held(OfThisProcess):
    """A launcher, and the stream object that its stream's handle came from: a stream lives as long as that does.

    Attributes:
        owner: The stream object.
    """

    # A call looks `__call__` up in the class and finds a slot: what the object has there, the launcher, is called.
    # A method would have to read it, which takes long of a class with `__getattr__`.
    __slots__ = ("__call__", "owner")

    owner: object

    if TYPE_CHECKING:

        @property
        def __call__(self) -> Launcher:
            """Return the launcher."""

        @__call__.setter
        def __call__(self, launcher: Launcher) -> None: ...

    def __reduce__(self) -> str | tuple[Any, ...]:
        launcher: object = self.__call__
        return launcher.__reduce__()

    def __getattr__(self, name: str) -> object:
        if name in Held.__slots__:  # of one that is empty
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)
        return getattr(self.__call__, name)

    def __repr__(self) -> str:
        return repr(self.__call__)


def _held(launcher: Launcher, owner: object) -> Held:
    found = Held()  # as in `Configurations`
    found.__call__ = launcher
    found.owner = owner
    return found
