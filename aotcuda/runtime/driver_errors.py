"""Turn the driver's errors into exceptions with their meaning and a remedy."""

from __future__ import annotations

import ctypes
import os

from ..errors import CudaError, ForkError, NoDeviceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


CONTEXT_IS_DESTROYED = 709

_STICKY = frozenset([700, 702, 710, 714, 715, 716, 717, 718, 719])
"""Errors of a kernel that already ran. The driver repeats them from every later call in the same context."""

_ASYNCHRONOUS = (
    ". The driver reports such errors late: an earlier launch in this process may be the cause, of any kernel; run it "
    "again with AOTCUDA_SYNCHRONIZE=1, which waits after each launch and names the kernel"
)
_LOST = ". Nothing more can run in this process: start it again"
_CAPTURE = (
    "a stream is being captured into a graph, which this driver does not allow at the same time; call preload() of the "
    "module (aotcuda.load(name).preload()) before the capture"
)
_HINTS = {
    900: _CAPTURE,
    901: _CAPTURE,
    906: _CAPTURE,
    46: "another process may have the GPU for itself: see the compute mode that nvidia-smi shows",
    CONTEXT_IS_DESTROYED: (
        "the GPU's context was reset, as cuDevicePrimaryCtxReset and numba's cuda.close() do, which freed its "
        "arrays and streams; make new ones, which creates a new context"
    ),
    802: "the machine's fabric manager has not started its GPUs yet: see systemctl status nvidia-fabricmanager",
    803: "the driver's library and its kernel module are of different versions: restart the machine, or the container",
    804: "the compatibility package of CUDA does not support this GPU: remove it from the library path",
}
"""The cause of an error and its remedy, by the driver's code."""


def make_error(driver: Any, code: int, problem: str, *, asynchronous: bool) -> CudaError:
    """Return the error for a `CUresult`.

    Args:
        driver: The `aotcuda.runtime.driver.Driver`, which returns the name and the text of the error.
        code: The `CUresult`.
        problem: The beginning of the message.
        asynchronous: Whether an earlier kernel than that of `problem` may have caused the error.
    """
    name = _driver_text(driver, "cuGetErrorName", code) or f"CUresult {code}"
    text = _driver_text(driver, "cuGetErrorString", code)
    message = f"{problem}: {name}" + (f", {text}" if text else "")
    if code in _HINTS:
        message += f"; {_HINTS[code]}"
    if code in _STICKY:
        message += (_ASYNCHRONOUS if asynchronous else "") + _LOST
    return CudaError(message, name=name, code=code)


def _driver_text(driver: Any, function: str, code: int) -> str:
    result = ctypes.c_char_p()
    driver.call[function](code, ctypes.byref(result))
    return (result.value or b"").decode(errors="replace")


def forked() -> ForkError:
    """Return the error for a process that forked after CUDA was started."""
    message = (
        "this process forked after CUDA was started, and CUDA cannot be used in the child; start processes with "
        'multiprocessing.get_context("spawn"), or set AOTCUDA_LOAD=first-use and fork before the first launch'
    )
    return ForkError(message)


def no_device() -> NoDeviceError:
    """Return the error for a machine on which the driver shows no GPU."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hint = f"; CUDA_VISIBLE_DEVICES is {visible!r}" if visible is not None else ""
    message = f"the CUDA driver shows no GPU{hint}"
    return NoDeviceError(message)
