"""Streams of every library as the driver's handle, and ordering one stream after another."""

from __future__ import annotations

from aotcuda.errors import ArgumentError
from aotcuda.runtime import c_types as ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.runtime.driver import Driver

LEGACY = 1
"""The handle that means the legacy default stream; 0 means the same to a launch."""

LAST_DEFAULT = 2
"""The handle of a thread's own default stream; like 0 and 1 it is of whatever context is current."""

_NO_TIMING = 2


def handle(stream: object) -> int:
    """The driver's handle of a stream: 0 or None for the default stream, an int, or any library's stream object.

    Raises:
        ArgumentError: The object is no stream that aotcuda knows.
    """
    if stream is None:
        return 0
    if isinstance(stream, int):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        version, value = protocol() if callable(protocol) else protocol
        if version != 0:
            message = f"{stream!r} speaks version {version} of the __cuda_stream__ protocol; aotcuda knows version 0"
            raise ArgumentError(message)
        return int(value)
    for attribute in ("ptr", "cuda_stream", "handle"):  # CuPy, PyTorch, Numba
        value = getattr(stream, attribute, None)
        if value is not None:
            value = getattr(value, "value", value)
            return 0 if value is None else int(value)
    message = (
        f"{stream!r} is no stream; pass 0, a handle, or a stream of CuPy, PyTorch, Numba or cuda.core "
        "(anything with __cuda_stream__)"
    )
    raise ArgumentError(message)


def check(stream: int) -> int:
    """A handle, as it is.

    Raises:
        ArgumentError: It is beyond what an address can be.
    """
    if not 0 <= stream < 1 << 64:
        message = f"{stream} is no handle of a stream"
        raise ArgumentError(message)
    return stream


def same(left: int, right: int) -> bool:
    """Whether two handles mean one stream."""
    return (left or LEGACY) == (right or LEGACY)


def order(driver: Driver, before: int, after: int) -> None:
    """Make work submitted to `after` from now on wait for what has been submitted to `before`."""
    event = ctypes.c_void_p()
    driver.check(driver.call["cuEventCreate"](ctypes.byref(event), _NO_TIMING), "no event could be made")
    try:
        problem = f"stream {after:#x} could not be made to wait for stream {before:#x}, which an argument's data is on"
        driver.check(driver.call["cuEventRecord"](event, before), problem)
        driver.check(driver.call["cuStreamWaitEvent"](after, event, 0), problem)
    finally:
        driver.call["cuEventDestroy_v2"](event)  # the driver keeps it until the wait is over
