"""One overload on one GPU, ready to launch, and the library that holds it until it is closed."""

from __future__ import annotations

import ctypes

from .. import errors, new_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ...manifest import FixedLaunch, Overload
    from ..driver import Device, Driver
    from .debug_exceptions import Watch

_MAX_THREADS, _STATIC_SHARED = 0, 1  # CU_FUNC_ATTRIBUTE_*
_MAX_DYNAMIC_SHARED, _CARVEOUT = 8, 9
_LARGE_CLUSTERS = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
_MOST_REMEMBERED = 1024


class OpenLibrary:
    """Images in the driver, until they are closed.

    A lock excludes closing from calls with the handles of the images. Launches take no lock: closed images stay in the
    driver until the launches in progress have ended (see `Images.unload`).

    Attributes:
        driver: The driver that holds them.
        is_closed: Whether `close` was called.
        lock: The lock that a thread holds while it calls the driver with the handles; it calls `check_open` first.
    """

    __slots__ = ("_where", "driver", "is_closed", "lock")

    def __init__(self, driver: Driver, where: str) -> None:
        self.is_closed = False
        self.lock = new_lock()
        self._where = where
        self.driver = driver

    # This is no context manager: an interrupt between its entry and its block would leave the lock held.
    def check_open(self) -> None:
        """Refuse calls with images that are closed.

        Raises:
            UnloadedError: The images are closed.
        """
        if self.is_closed:
            raise errors.UnloadedError.for_kernel(self._where)

    def close(self) -> None:
        """Refuse further calls with the images."""
        with self.lock:
            self.is_closed = True


class DeviceKernel:
    """One overload on one GPU, ready to launch.

    Attributes:
        device: The GPU.
        kernel: The driver's handle (`CUkernel`).
        threads: The most threads that a block may have, by the driver.
        static_shared: Bytes of shared memory that every block has.
        cooperative: Whether launches are cooperative.
        block: The only block that launches may have, in x, y and z; None for any.
        bound_threads: The most threads that a block may have by the launch bounds in the source; 0 without bounds.
        watch: The exceptions of a debug kernel; None for other kernels.
        fixed: Block, shared memory and cluster of every launch; None where users set them.
        best_blocks: Block sizes of most occupancy, by bytes of dynamic shared memory.
    """

    __slots__ = (
        "_dynamic",
        "_library",
        "_limits",
        "_remembered",
        "best_blocks",
        "block",
        "bound_threads",
        "cooperative",
        "device",
        "fixed",
        "kernel",
        "static_shared",
        "threads",
        "watch",
    )

    def __init__(
        self,
        library: OpenLibrary,
        device: Device,
        kernel: ctypes.c_void_p,
        record: Overload,
        watch: Watch | None = None,
        fixed: FixedLaunch | None = None,
    ) -> None:
        self._library = library
        self._dynamic = False
        self.device = device
        self.kernel = kernel
        self.cooperative = record["cooperative"]
        self.threads = self.attribute(_MAX_THREADS)
        self.static_shared = self.attribute(_STATIC_SHARED)
        x, y, z = record.get("block") or (0, 1, 1)
        self.block = (x, y, z) if x else None
        bounds = record["launch_bounds"]
        self.bound_threads = max(bounds[0], 0) if bounds else 0
        self.watch = watch
        self.fixed = fixed
        self.best_blocks: dict[int, int] = {}
        self._remembered: dict[tuple[object, ...], Any] = {}
        self._limits: tuple[int, ...] = ()
        carveout = record["carveout"]
        if carveout is not None:
            self._set(_CARVEOUT, carveout)

    def allow_shared(self) -> None:
        """Let launches have as much dynamic shared memory as the GPU has; the driver's default is 48 KiB."""
        if not self._dynamic:
            self._set(_MAX_DYNAMIC_SHARED, self.device.limit("shared_optin") - self.static_shared)
            self._dynamic = True
            self._limits = ()

    def allow_for(self, shared: int) -> None:
        """Call `allow_shared` if `shared` bytes of dynamic shared memory exceed the driver's default."""
        if shared > self.device.limit("shared") - self.static_shared:
            self.allow_shared()

    def remember(self, key: tuple[object, ...], ask: Callable[[], Any]) -> Any:
        """Return the driver's answer for a key: `ask()` the first time."""
        if key not in self._remembered:
            answer = ask()
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = answer
            return answer
        return self._remembered[key]

    def unchecked_limits(self) -> tuple[int, ...]:
        """Return the largest configuration that needs no opt-in beyond those that were made, and no further checks.

        Its numbers are grid and block in x, y and z, bytes of dynamic shared memory, and threads of a block.
        """
        limits = self._limits
        if not limits:
            device = self.device
            extents = [device.limit(f"{kind}_{axis}") for kind in ("grid", "block") for axis in "xyz"]
            threads = min(device.limit("threads"), self.threads, self.bound_threads or self.threads)
            shared = device.limit("shared_optin" if self._dynamic else "shared") - self.static_shared
            limits = self._limits = (*extents, max(shared, 0), threads)
        return limits

    def best_block(self, shared: int) -> int:
        """Return the block size of most occupancy with `shared` bytes of dynamic shared memory.

        A context must be current. The block of a kernel that has only one is the block's extent in x.
        """
        block = self.best_blocks.get(shared)
        if block is None and self.block is not None:
            block = self.best_blocks[shared] = self.block[0]
        if block is None:
            limit = min(self.threads, self.bound_threads or self.threads)
            self.allow_for(shared)
            grid, result = ctypes.c_int(), ctypes.c_int()
            self._call(
                "the driver did not report a block size for {gpu}",
                "cuOccupancyMaxPotentialBlockSize",
                *(ctypes.byref(grid), ctypes.byref(result), self.kernel, None, shared, limit),
            )
            block = self.best_blocks[shared] = result.value
        return block

    def active_blocks(self, threads: int, shared: int) -> int:
        """Return the number of blocks that a multiprocessor holds at once; a context must be current."""
        result = ctypes.c_int()
        self._call(
            "the driver did not report the occupancy of a kernel on {gpu}",
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            *(ctypes.byref(result), self.kernel, threads, shared),
        )
        return result.value

    def largest_cluster(self, config: ctypes.Array[ctypes.c_char]) -> int:
        """Return the size of the largest cluster for a `CUlaunchConfig`; a context must be current."""
        result = ctypes.c_int()
        self._call(
            "the driver did not report the largest cluster of a kernel on {gpu}",
            "cuOccupancyMaxPotentialClusterSize",
            *(ctypes.byref(result), self.kernel, ctypes.byref(config)),
        )
        return result.value

    def allow_large_clusters(self) -> None:
        """Let launches have clusters of more than 8 blocks, where the GPU has them."""
        self._set(_LARGE_CLUSTERS, 1)

    def attribute(self, attribute: int) -> int:
        """Return an attribute of the kernel from the driver; `attribute` is a `CU_FUNC_ATTRIBUTE_*`."""
        value = ctypes.c_int()
        problem = f"the driver did not report attribute {attribute} of a kernel on {{gpu}}"
        self._call(problem, "cuKernelGetAttribute", ctypes.byref(value), attribute, self.kernel, self.device.handle)
        return value.value

    def load(self) -> None:
        """Load the kernel's code into the current context; otherwise the driver loads it at its first launch."""
        function = ctypes.c_void_p()
        self._call("a kernel could not be loaded on {gpu}", "cuKernelGetFunction", ctypes.byref(function), self.kernel)

    def handles(self) -> tuple[int, int]:
        """Return the driver's handles `CUfunction` and `CUmodule` of the kernel; a context must be current."""
        function, module = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("a kernel could not be loaded on {gpu}", "cuKernelGetFunction", ctypes.byref(function), self.kernel)
        self._call("the driver reported no module on {gpu}", "cuFuncGetModule", ctypes.byref(module), function)
        return function.value or 0, module.value or 0

    def _set(self, attribute: int, value: int) -> None:
        problem = f"the driver refused attribute {attribute} = {value} on {{gpu}}"
        self._call(problem, "cuKernelSetAttribute", attribute, value, self.kernel, self.device.handle)

    def _call(self, problem: str, function: str, *args: object) -> None:
        """Call a function of the driver; its error begins with `problem`, in which the GPU's name replaces `{gpu}`."""
        driver = self._library.driver
        with self._library.lock:
            self._library.check_open()
            code = driver.call[function](*args)
        if code:
            raise driver.error(code, problem.format(gpu=self.device))
