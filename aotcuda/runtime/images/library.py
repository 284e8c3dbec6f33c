"""A module's images in the driver, and what keeps those who use them and those who unload them apart.

Launches take no lock. Who unloads puts the images out of use first: their module has other ones or none, the marks of
their overloads are empty, and `Library` refuses what asks the driver about them. Then it waits for the launches that
were under way, of which slots that are not back tell, and the accelerator's counts. `Module.unload` does all this.
"""

from __future__ import annotations

import ctypes
from _thread import RLock

from aotcuda.errors import CudaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from aotcuda.runtime.driver import Driver

_INVALID_HANDLE = 400
_ATTEMPTS = 30
"""Of a launch whose images other threads, or its own arguments, unload again and again."""


class UnloadedError(CudaError):
    """Images were unloaded by another thread while this one used them; a launch begins anew with new ones."""

    @classmethod
    def of(cls, what: str) -> UnloadedError:
        """The error for a module, or for a kernel."""
        message = f"the images of {what} were unloaded in the meantime, by another thread or by code that a launch runs"
        return cls(message, name="CUDA_ERROR_INVALID_HANDLE", code=_INVALID_HANDLE)


def again(launch: Callable[[tuple[object, ...]], None], args: tuple[object, ...]) -> None:
    """Launch, and begin anew where the images are unloaded meanwhile: who raises UnloadedError has launched nothing."""
    for _ in range(_ATTEMPTS - 1):
        try:
            launch(args)
        except UnloadedError:
            continue
        return
    launch(args)


class Library:
    """Images in the driver, and their handle, until they are closed.

    Closing and calls with the handles of what the images hold keep each other out by a lock. Launches take none:
    images that are closed stay in the driver until those that are under way have ended (see `Module.unload`).

    Attributes:
        driver: The driver that holds them.
        handle: The driver's handle (`CUlibrary`).
    """

    __slots__ = ("_closed", "_lock", "_where", "driver", "handle")

    def __init__(self, driver: Driver, where: str) -> None:
        self._closed = False
        self._lock = RLock()
        self._where = where
        self.driver = driver
        self.handle = ctypes.c_void_p()

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._closed:
            self._lock.release()
            raise UnloadedError.of(self._where)

    def __exit__(self, *_error: object) -> None:
        self._lock.release()

    def close(self) -> None:
        """Let no more calls use the images."""
        with self._lock:
            self._closed = True
