"""What the driver's errors mean, and what to do about them."""

from __future__ import annotations

from aotcuda.errors import CudaError

CONTEXT_IS_DESTROYED = 709

_STICKY = frozenset([700, 702, 710, 714, 715, 716, 717, 718, 719])
"""Errors of a kernel that already ran. The driver repeats them from every later call in the same context."""

_LATE = (
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
        "the GPU's context was reset, as cuDevicePrimaryCtxReset and numba's cuda.close() do, and its arrays and "
        "streams are gone with it; make new ones, which makes a new context"
    ),
    802: "the machine's fabric manager has not started its GPUs yet: see systemctl status nvidia-fabricmanager",
    803: "the driver's library and its kernel module are of different versions: restart the machine, or the container",
    804: "the compatibility package of CUDA does not serve this GPU: take it out of the library path",
}
"""What is behind an error, and what to do, by the driver's code."""


def of(code: int, name: str, text: str, problem: str, *, late: bool) -> CudaError:
    """The error for a `CUresult`.

    Args:
        code: The `CUresult`.
        name: The driver's name of it, empty for one that it does not know.
        text: The driver's text for it, likewise.
        problem: How the message begins.
        late: Whether a kernel that failed may be another one than the problem names.
    """
    name = name or f"CUresult {code}"
    message = f"{problem}: {name}" + (f", {text}" if text else "")
    if code in _HINTS:
        message += f"; {_HINTS[code]}"
    if code in _STICKY:
        message += (_LATE if late else "") + _LOST
    return CudaError(message, name=name, code=code)
