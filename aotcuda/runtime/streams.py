"""Read the handles of all libraries' streams, make streams wait for each other, and wait for streams.

A kernel runs after its launch has returned, so a later call of another library reports its errors. With
`AOTCUDA_SYNCHRONIZE=1` launches wait for their kernel, and name it if it fails. The variable is read when images are
loaded, and launches then take the general path.
"""

from __future__ import annotations

import ctypes
import os
import sys
from operator import attrgetter

from . import driver as drivers
from . import errors, module_of
from .driver import LAST_DEFAULT_STREAM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from .driver import Driver

LEGACY = 1
"""A handle of the legacy default stream; for a launch, 0 is the same stream."""

_ATTRIBUTES = {"cupy": "ptr", "torch": "cuda_stream"}
"""The attribute of a library's streams that has the handle; reading it is faster than the protocol."""

_NO_TIMING = 2
_CAPTURE_IMPLICIT = 906
_VARIABLE = "AOTCUDA_SYNCHRONIZE"
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


class Ready(int):
    """The handle of a stream that a launch has to wait for, because an array's data is on it.

    Attributes:
        mutual: Whether that stream has to wait for the launch as well.
    """

    __slots__ = ()
    mutual = False


class MutuallyReady(Ready):
    """The handle of a stream that the array's protocol orders in both directions; see `Ready`."""

    __slots__ = ()
    mutual = True


def handle(stream: object) -> int | None:
    """Return the driver's handle of a stream: an int, or any library's stream object; None for None.

    Raises:
        ArgumentError: The object is not a stream, or was closed, or its handle is impossible.
    """
    if stream is None:
        return None
    number = stream if isinstance(stream, int) else _handle(stream)
    if not 0 <= number < 1 << 64:
        raise no_handle_error(number)
    return number


def no_handle_error(handle: int) -> Exception:
    """Return the error for an int that cannot be a handle."""
    return errors.ArgumentError(f"{errors.quoted(handle)} is no handle of a stream")


def _handle(stream: object) -> int:
    """Return the handle of a stream object."""
    try:
        number = _read_handle(stream)
    except (errors.ArgumentError, MemoryError, RecursionError):
        raise
    except Exception as error:
        reason = errors.text_of(error).partition("\n")[0]
        message = f"a {type(stream).__name__} was given as the stream, and its handle cannot be read: {reason}"
        raise errors.ArgumentError(message) from error
    if number is not None:
        return number
    message = (
        f"{errors.quoted(stream)} is no stream; pass 0, a handle, or a stream of CuPy, PyTorch, Numba or "
        "cuda.core (anything with __cuda_stream__)"
    )
    raise errors.ArgumentError(message)


def reader_for(kind: type) -> Callable[[Any], int | None]:
    """Return a function that reads the handle of stream objects of a type, by an attribute for some libraries."""
    attribute = _ATTRIBUTES.get(module_of(kind).partition(".")[0])
    return attrgetter(attribute) if attribute is not None else handle


def _read_handle(stream: Any) -> int | None:
    """Return the handle of a stream object by the protocol or an attribute; None if the object is not a stream."""
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        version, value = protocol() if callable(protocol) else protocol
        if version != 0:
            fact = f"{errors.quoted(stream)} has version {errors.quoted(version)}"
            message = f"{fact} of the __cuda_stream__ protocol; aotcuda reads version 0"
            raise errors.ArgumentError(message)
        value = int(value)
        if value == 0 and module_of(type(stream)).startswith("cuda.core"):  # its default streams are 1 and 2
            message = f"{errors.quoted(stream)} was closed; pass a stream that is open"
            raise errors.ArgumentError(message)
        return value
    for attribute in ("ptr", "cuda_stream", "handle"):  # CuPy, PyTorch, Numba
        value = getattr(stream, attribute, None)
        if value is not None:
            value = getattr(value, "value", value)
            return 0 if value is None else int(value)
    return None


def is_same(left: int, right: int) -> bool:
    """Return True if two handles are of the same stream."""
    return (left or LEGACY) == (right or LEGACY)


def is_dead(driver: Driver, stream: int) -> bool:
    """Return True if the driver reports that a stream was destroyed. A context must be current.

    For a destroyed stream, `cuStreamIsCapturing` returns CUDA_ERROR_INVALID_CONTEXT and `cuStreamGetCtx` crashes; other
    functions would end a capture. All functions crash if the memory has another use now, or never was a stream.
    """
    status = ctypes.c_int()
    code = driver.call["cuStreamIsCapturing"](stream, ctypes.byref(status)) if stream > LAST_DEFAULT_STREAM else 0
    return code == drivers.INVALID_CONTEXT


def destroyed_text(stream: int) -> str:
    """Return the error text for a destroyed stream."""
    return (
        f"stream {stream:#x} does not exist any more; keep a reference to the object that made it while the "
        "stream is used"
    )


def is_captured(driver: Driver, stream: int) -> bool:
    """Return True if a stream is being captured: its work does not run yet, and waiting would end the capture."""
    status = ctypes.c_int()
    code = driver.call["cuStreamIsCapturing"](stream, ctypes.byref(status))
    return code == _CAPTURE_IMPLICIT or (code == 0 and status.value != 0)


def _is_in_graph(driver: Driver, stream: int) -> bool:
    """Return True if work on a stream becomes part of a graph; work on the default stream breaks a capture."""
    status = ctypes.c_int()
    return driver.call["cuStreamIsCapturing"](stream, ctypes.byref(status)) == 0 and status.value != 0


def order(driver: Driver, before: int, after: int, origin: str) -> None:
    """Make work that is submitted to `after` from now on wait for the work that was submitted to `before`.

    Raises:
        ArgumentError: One stream is captured into a graph and the other cannot be, or one was destroyed. The message
            begins with `origin`, a text that names the streams' use.
        CudaError: The driver refuses for another reason.
    """
    for stream in (before, after):
        _check_exists(driver, stream, origin)
    if is_same(after, LEGACY) and _is_in_graph(driver, before):
        message = (
            f"{origin}, which is captured into a graph, and the launch is on the default stream, which cannot join the "
            "capture; launch on the stream of the data"
        )
        raise errors.ArgumentError(message)
    if is_captured(driver, after):
        _check_in_graph(driver, before, after, origin)
    event = Event(driver)
    problem = f"stream {after:#x} could not be made to wait for stream {before:#x}: {origin}"
    driver.check(event.order(before, after), problem)


class Event:
    """An event of the driver. It is destroyed with the object; the driver delays that until the streams have waited.

    Attributes:
        handle: The driver's handle.
    """

    __slots__ = ("_driver", "handle")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.handle = ctypes.c_void_p()
        driver.check(driver.call["cuEventCreate"](ctypes.byref(self.handle), _NO_TIMING), "no event could be made")

    def order(self, before: int, after: int) -> int:
        """Make `after` wait for the work that was submitted to `before`; return the driver's code."""
        call = self._driver.call
        return call["cuEventRecord"](self.handle, before) or call["cuStreamWaitEvent"](after, self.handle, 0)

    def __del__(self) -> None:
        handle = getattr(self, "handle", None)  # unset after an interrupt
        if handle and not drivers.forked and not sys.is_finalizing():
            self._driver.call["cuEventDestroy_v2"](handle)


def unique(pending: Iterable[object]) -> list[Ready]:
    """Return the streams among the `pending` items, each stream once."""
    by_stream: dict[int, Ready] = {}
    for item in pending:
        if isinstance(item, Ready):
            key = item or LEGACY  # both are handles of the legacy default stream
            if key not in by_stream or item.mutual:
                by_stream[key] = item
    return list(by_stream.values())


def _check_exists(driver: Driver, stream: int, origin: str) -> None:
    if is_dead(driver, stream):
        message = f"{origin}: {destroyed_text(stream)}"
        raise errors.ArgumentError(message)


def _check_in_graph(driver: Driver, stream: int, captured: int, origin: str) -> None:
    if not _is_in_graph(driver, stream):
        message = (
            f"{origin}, which is not part of the graph that stream {captured:#x} is captured into, so a launch there "
            "cannot wait for it; use arrays of that stream, or make it wait before the capture begins"
        )
        raise errors.ArgumentError(message)


def order_launch(driver: Driver, pending: Iterable[object], stream: int, where: str, *, launched: bool) -> None:
    """Make a launch of kernel `where` wait for the `pending` streams; after the launch, make streams wait for it.

    Errors as for `order`.
    """
    others = unique(pending)

    def origin(ready: int) -> str:
        return f"{where}{' was launched, and' if launched else ':'} an argument's data is on stream {ready:#x}"

    if len(others) > 1 and not launched:  # all checks come first: a wait may let the launch's stream join a capture
        for ready in others:
            _check_exists(driver, ready, origin(ready))
        captured = next((each for each in (stream, *others) if is_captured(driver, each)), None)
        for ready in others:
            if captured is not None:
                _check_in_graph(driver, ready, captured, origin(ready))
    for ready in others:
        if not launched:
            order(driver, ready, stream, origin(ready))
        elif ready.mutual or is_captured(driver, ready):  # a stream that joined a capture has to return to it
            order(driver, stream, ready, origin(ready))


def launch_in_order(
    driver: Driver, pending: Iterable[object], stream: int, where: str, launch: Callable[[], int]
) -> int:
    """Launch kernel `where` between the two halves of `order_launch`; return the driver's code of the launch.

    Errors as for `order`.
    """
    order_launch(driver, pending, stream, where, launched=False)
    code = launch()
    if not code:
        order_launch(driver, pending, stream, where, launched=True)
    return code


def launches_wait() -> bool:
    """Return True if launches have to wait for their kernels.

    Raises:
        ConfigError: `AOTCUDA_SYNCHRONIZE` has an unknown value.
    """
    value = os.environ.get(_VARIABLE, "0") or "0"
    if value not in ("0", "1"):
        message = f"{_VARIABLE} is {value!r}; write '0' or '1'"
        raise errors.ConfigError(message)
    return value == "1"


def wait(driver: Driver, stream: int) -> int:
    """Wait for a stream, also during captures of other streams; return the driver's code."""
    exchange, synchronize = driver.call["cuThreadExchangeStreamCaptureMode"], driver.call["cuStreamSynchronize"]
    mode = ctypes.byref(ctypes.c_int(_RELAXED))
    try:  # Python raises an interrupt after a call, so nothing else is called in between
        exchange(mode)
        code = synchronize(stream)
    finally:
        exchange(mode)
    return code


def wait_unless_captured(driver: Driver, stream: int) -> int:
    """Wait for a stream, unless it is being captured; return the driver's code."""
    return 0 if is_captured(driver, stream) else wait(driver, stream)
