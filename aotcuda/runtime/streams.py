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

_DESTROYED, _IN_GRAPH, _CAPTURED = "destroyed", "in a graph", "captured"
_DATA = "an argument's data is on stream "
_AFTER = f" was launched, and {_DATA}"

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


def _state(driver: Driver, stream: int) -> str:
    """Return "destroyed", "in a graph", "captured" if its work would break a capture, or "". A context must be current.

    For a destroyed stream, `cuStreamIsCapturing` returns CUDA_ERROR_INVALID_CONTEXT and `cuStreamGetCtx` crashes; other
    functions would end a capture. All functions crash if the memory has another use now, or never was a stream.
    """
    status = ctypes.c_int()
    code = driver.call["cuStreamIsCapturing"](stream, ctypes.byref(status))
    if code == 0:
        return _IN_GRAPH if status.value else ""
    if code == drivers.INVALID_CONTEXT and stream > LAST_DEFAULT_STREAM:
        return _DESTROYED
    return _CAPTURED if code == _CAPTURE_IMPLICIT else ""


def is_dead(driver: Driver, stream: int) -> bool:
    """Return True if the driver reports that a stream was destroyed. A context must be current."""
    return stream > LAST_DEFAULT_STREAM and _state(driver, stream) == _DESTROYED


def destroyed_text(stream: int) -> str:
    """Return the error text for a destroyed stream."""
    return (
        f"stream {stream:#x} does not exist any more; keep a reference to the object that made it while the "
        "stream is used"
    )


def is_captured(driver: Driver, stream: int) -> bool:
    """Return True if a stream is being captured: its work does not run yet, and waiting would end the capture."""
    return _state(driver, stream) in (_IN_GRAPH, _CAPTURED)


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

    def order(self, before: int, after: int, where: str) -> None:
        """Make work that is submitted to `after` from now on wait for the work that was submitted to `before`.

        Raises:
            CudaError: The driver refuses. The message ends with `where`, which names the cause of the order.
        """
        call = self._driver.call
        code = call["cuEventRecord"](self.handle, before) or call["cuStreamWaitEvent"](after, self.handle, 0)
        if code:
            problem = f"stream {after:#x} could not be made to wait for stream {before:#x}: {where}"
            raise self._driver.error(code, problem)

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


def launch_in_order(
    driver: Driver, pending: Iterable[object], stream: int, where: str, launch: Callable[[], int]
) -> int:
    """Launch kernel `where` after the work of the `pending` streams, and make streams wait for it.

    Return the driver's code of the launch.

    Raises:
        ArgumentError: One stream is captured into a graph and another cannot be, or one was destroyed.
        CudaError: The driver refuses for another reason.
    """
    others = unique(pending)
    captured = _check_order(driver, others, stream, f"{where}: {_DATA}")
    event = Event(driver)
    for ready in others:
        event.order(ready, stream, f"{where}: {_DATA}{ready:#x}")
    code = launch()
    if not code:
        _order_back(event, [ready for ready in others if ready.mutual or ready in captured], stream, where)
    return code


def order_after_launch(driver: Driver, pending: Iterable[object], stream: int, where: str) -> None:
    """Make streams wait for a launch that was made outside of any capture; errors as for `launch_in_order`."""
    others = [ready for ready in unique(pending) if ready.mutual]
    _check_order(driver, others, stream, f"{where}{_AFTER}")
    _order_back(Event(driver), others, stream, where)


def _order_back(event: Event, others: list[Ready], stream: int, where: str) -> None:
    for ready in others:
        event.order(stream, ready, f"{where}{_AFTER}{ready:#x}")


def _check_order(driver: Driver, others: list[Ready], stream: int, data: str) -> list[int]:
    """Return the captured ones of the streams with the data of a launch.

    All checks come before the first wait, which may let the launch's stream join a capture.

    Raises:
        ArgumentError: A stream was destroyed, or cannot be in the graph of another one. The message begins with `data`.
    """
    states = {each: _state(driver, each) for each in (*others, stream)}
    candidates = (stream, *others) if len(others) > 1 else (stream,)
    captured = next((each for each in candidates if states[each]), None)
    for ready in others:
        state, problem = states[ready], ""
        if _DESTROYED in (state, states[stream]):
            problem = f": {destroyed_text(ready if state == _DESTROYED else stream)}"
        elif state == _IN_GRAPH and is_same(stream, LEGACY):
            problem = (
                ", which is captured into a graph, and the launch is on the default stream, which cannot join the "
                "capture; launch on the stream of the data"
            )
        elif captured is not None and state != _IN_GRAPH:
            problem = (
                f", which is not part of the graph that stream {captured:#x} is captured into, so a launch there "
                "cannot wait for it; use arrays of that stream, or make it wait before the capture begins"
            )
        if problem:
            message = f"{data}{ready:#x}{problem}"
            raise errors.ArgumentError(message)
    return [each for each in others if states[each]]


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
