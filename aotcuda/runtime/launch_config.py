"""A launch configuration as the driver takes it: `CUlaunchConfig`, made once for a launcher.

With it a launch is a call of four arguments, where `cuLaunchKernel` takes eleven; ctypes needs time for each.
"""

from __future__ import annotations

import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.runtime.launch_limits import Dimensions

_COOPERATIVE = 2  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE


class _Attribute(ctypes.Structure):
    """`CUlaunchAttribute`, as far as it is used."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60))


class _Config(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


def make(grid: Dimensions, block: Dimensions, shared: int, stream: int, *, cooperative: bool) -> object:
    """A configuration for `Driver.launch`.

    Args:
        grid: Blocks of the grid in x, y and z.
        block: Threads of a block, likewise.
        shared: Bytes of dynamic shared memory for each block.
        stream: The stream's handle.
        cooperative: Whether the grid is launched all at once.
    """
    config = _Config(grid=grid, block=block, shared=shared, stream=stream)
    if cooperative:
        config.attributes = ctypes.pointer(_Attribute(id=_COOPERATIVE, value=1))
        config.count = 1
    return ctypes.byref(config)
