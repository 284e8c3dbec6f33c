"""`AOTCUDA_SYNCHRONIZE=1`: launches that wait for their kernel, and name it when it fails.

A kernel runs after its launch has returned, so its faults show at some later call, in someone else's name. Whoever
looks for one sets this variable. It is read when images are loaded. Where it is set no fast path is learnt, so it is
free where it is not.
"""

from __future__ import annotations

import os

from aotcuda.errors import ConfigError
from aotcuda.runtime import c_types as ctypes
from aotcuda.runtime import streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.runtime.driver import Driver

_VARIABLE = "AOTCUDA_SYNCHRONIZE"
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


def wanted() -> bool:
    """Whether launches are to wait for their kernels.

    Raises:
        ConfigError: `AOTCUDA_SYNCHRONIZE` has an unknown value.
    """
    value = os.environ.get(_VARIABLE, "0") or "0"
    if value not in ("0", "1"):
        message = f"{_VARIABLE} is {value!r}; write '0' or '1'"
        raise ConfigError(message)
    return value == "1"


def wait(driver: Driver, stream: int) -> int:
    """Wait for a stream, beside captures of other streams too; the driver's code."""
    mode = ctypes.c_int(_RELAXED)
    exchange = driver.call["cuThreadExchangeStreamCaptureMode"]
    exchange(ctypes.byref(mode))
    code = driver.call["cuStreamSynchronize"](stream)
    exchange(ctypes.byref(mode))
    return code


def settle(driver: Driver, stream: int) -> int:
    """Wait for a stream, unless it is being captured; the driver's code."""
    return 0 if streams.is_captured(driver, stream) else wait(driver, stream)
