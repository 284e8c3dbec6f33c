"""One overload on one GPU, ready to launch, and the library that holds it until it is closed."""

from __future__ import annotations

import ctypes

import aotcuda
from aotcuda.runtime import new_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.manifest import FixedLaunch, Overload
    from aotcuda.runtime.driver import Device, Driver
    from aotcuda.runtime.images.debug_exceptions import Watch

_MAX_THREADS, _STATIC_SHARED = 0, 1  # CU_FUNC_ATTRIBUTE_*
_MAX_DYNAMIC_SHARED, _CARVEOUT = 8, 9
_LARGE_CLUSTERS = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED


class OpenLibrary:
    """Images in the driver, and their handle, until they are closed.

    A lock excludes closing from calls with the handles of the images. Launches take no lock: closed images stay in the
    driver until the launches in progress have ended (see `Loader.unload`).

    Attributes:
        driver: The driver that holds them.
        handle: The driver's handle (`CUlibrary`), once `loaded` has set it.
        lock: LauncherWithStream around calls with the handles; `check_open` is called while it is held.
    """

    __slots__ = ("_closed", "_where", "driver", "handle", "lock")

    def __init__(self, driver: Driver, where: str) -> None:
        self._closed = False
        self.lock = new_lock()
        self._where = where
        self.driver = driver
        self.handle = ctypes.c_void_p()

    def loaded(self, handle: ctypes.c_void_p) -> None:
        """Store the driver's handle."""
        self.handle = handle

    # No context manager of its own: an interrupt between a lock and the block that holds it would leave it locked.
    def check_open(self) -> None:
        """Refuse calls with images that are closed.

        Raises:
            UnloadedError: The images are closed.
        """
        if self._closed:
            raise aotcuda.errors.UnloadedError.for_kernel(self._where)

    def close(self) -> None:
        """Refuse further calls with the images."""
        with self.lock:
            self._closed = True


class DeviceKernel:
    """One overload on one GPU, ready to launch.

    Attributes:
        device: The GPU.
        kernel: The driver's handle (`CUkernel`).
        threads: The most threads that a block may have, by the kernel's registers and launch bounds.
        static_shared: Bytes of shared memory that every block has.
        cooperative: Whether it is launched cooperatively.
        most_threads: The most threads of a block by the launch bounds in the source; 0 if there are none.
        watch: The exceptions of a debug kernel; None for other kernels.
        fixed: Block, shared memory and cluster that it is launched with; None where users set them.
        verified: Configurations that were checked.
        blocks: Block sizes of most occupancy, by bytes of dynamic shared memory.
    """

    __slots__ = (
        "_dynamic",
        "_library",
        "_unasked",
        "blocks",
        "cooperative",
        "device",
        "fixed",
        "kernel",
        "most_threads",
        "static_shared",
        "threads",
        "verified",
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
        bounds = record["launch_bounds"]
        self.most_threads = max(bounds[0], 0) if bounds else 0
        self.watch = watch
        self.fixed = fixed
        self.blocks: dict[int, int] = {}
        self.verified: set[object] = set()
        self._unasked: tuple[int, ...] = ()
        carveout = record["carveout"]
        if carveout is not None:
            self._set(_CARVEOUT, carveout)

    def allow_shared(self) -> None:
        """Allow launches as much dynamic shared memory as the GPU has; the driver's default is 48 KiB."""
        if not self._dynamic:
            self._set(_MAX_DYNAMIC_SHARED, self.device.limit("shared_optin") - self.static_shared)
            self._dynamic = True

    def unchecked_limits(self) -> tuple[int, ...]:
        """Return the largest configuration that needs neither an opt-in nor further checks.

        Grid and block in x, y and z, bytes of dynamic shared memory, threads of a block.
        """
        if not self._unasked:
            device = self.device
            extents = [device.limit(f"{what}_{axis}") for what in ("grid", "block") for axis in "xyz"]
            threads = min(device.limit("threads"), self.threads, self.most_threads or self.threads)
            self._unasked = (*extents, max(device.limit("shared") - self.static_shared, 0), threads)
        return self._unasked

    def best_block(self, shared: int) -> int:
        """Return the block size of most occupancy with `shared` bytes of dynamic shared memory.

        A context must be current.
        """
        block = self.blocks.get(shared)
        if block is None:
            most = min(self.threads, self.most_threads or self.threads)
            if shared > self.device.limit("shared") - self.static_shared:
                self.allow_shared()
            grid, result = ctypes.c_int(), ctypes.c_int()
            self.ask(
                "the driver did not report a block size for {gpu}",
                "cuOccupancyMaxPotentialBlockSize",
                *(ctypes.byref(grid), ctypes.byref(result), self.kernel, None, shared, most),
            )
            block = self.blocks[shared] = result.value
        return block

    def active_blocks(self, threads: int, shared: int) -> int:
        """Return the number of blocks that a multiprocessor holds at once; a context must be current."""
        result = ctypes.c_int()
        self.ask(
            "the driver did not report the occupancy of a kernel on {gpu}",
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            *(ctypes.byref(result), self.kernel, threads, shared),
        )
        return result.value

    def largest_cluster(self, config: ctypes.Array[ctypes.c_uint64]) -> int:
        """Return the size of the largest cluster for a `CUlaunchConfig`; a context must be current."""
        result = ctypes.c_int()
        self.ask(
            "the driver did not report the largest cluster of a kernel on {gpu}",
            "cuOccupancyMaxPotentialClusterSize",
            *(ctypes.byref(result), self.kernel, ctypes.byref(config)),
        )
        return result.value

    def allow_large_clusters(self) -> None:
        """Allow clusters of more than 8 blocks, which not every GPU with clusters has."""
        self._set(_LARGE_CLUSTERS, 1)

    def attribute(self, attribute: int) -> int:
        """Return one of the driver's attributes of a kernel (`CU_FUNC_ATTRIBUTE_*`)."""
        value = ctypes.c_int()
        problem = f"the driver did not report attribute {attribute} of a kernel on {{gpu}}"
        self.ask(problem, "cuKernelGetAttribute", ctypes.byref(value), attribute, self.kernel, self.device.handle)
        return value.value

    def load(self) -> None:
        """Load the kernel's code into the current context; otherwise the driver loads it at its first launch."""
        function = ctypes.c_void_p()
        self.ask("a kernel could not be loaded on {gpu}", "cuKernelGetFunction", ctypes.byref(function), self.kernel)

    def _set(self, attribute: int, value: int) -> None:
        problem = f"the driver refused attribute {attribute} = {value} on {{gpu}}"
        self.ask(problem, "cuKernelSetAttribute", attribute, value, self.kernel, self.device.handle)

    def ask(self, problem: str, function: str, *args: object) -> None:
        """Call a function of the driver with this kernel's handle among its arguments.

        The error begins with `problem`, in which the GPU's name replaces `{gpu}`.
        """
        driver = self._library.driver
        with self._library.lock:
            self._library.check_open()
            code = driver.call[function](*args)
        if code:
            raise driver.error(code, problem.format(gpu=self.device))
