"""How many threads of a kernel a GPU holds at once, as the driver tells it; a context must be current."""

from __future__ import annotations

import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from aotcuda.runtime.driver import Device

    class Asked(Protocol):
        """A kernel on a GPU, as far as it is asked; `aotcuda.runtime.loaded_library.DeviceKernel` is one."""

        device: Device
        kernel: ctypes.c_void_p
        threads: int
        static_shared: int
        most_threads: int

        def allow_shared(self) -> None:
            """See there."""

        def ask(self, problem: str, function: str, *args: object) -> None:
            """See there."""


def best_block(kernel: Asked, shared: int) -> int:
    """The block size of most occupancy with so many bytes of dynamic shared memory."""
    most = min(kernel.threads, kernel.most_threads or kernel.threads)
    if shared > kernel.device.limit("shared") - kernel.static_shared:
        kernel.allow_shared()
    grid, result = ctypes.c_int(), ctypes.c_int()
    kernel.ask(
        "the driver could not tell a block size for {gpu}",
        "cuOccupancyMaxPotentialBlockSize",
        *(ctypes.byref(grid), ctypes.byref(result), kernel.kernel, None, shared, most),
    )
    return result.value


def active_blocks(kernel: Asked, threads: int, shared: int) -> int:
    """How many blocks of so many threads a multiprocessor holds at once."""
    result = ctypes.c_int()
    kernel.ask(
        "the driver did not tell the occupancy of a kernel on {gpu}",
        "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        *(ctypes.byref(result), kernel.kernel, threads, shared),
    )
    return result.value


def largest_cluster(kernel: Asked, config: ctypes.Array[ctypes.c_uint64]) -> int:
    """The most blocks that a cluster may have in launches of a `CUlaunchConfig`."""
    result = ctypes.c_int()
    kernel.ask(
        "the driver did not tell the largest cluster of a kernel on {gpu}",
        "cuOccupancyMaxPotentialClusterSize",
        *(ctypes.byref(result), kernel.kernel, ctypes.byref(config)),
    )
    return result.value
