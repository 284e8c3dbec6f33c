"""An overload on one GPU, and what keeps those who use loaded images and those who unload them apart.

Launches take no lock. Who unloads puts the images out of use first: their loader has other ones or none, the marks of
their overloads are empty, and `OpenLibrary` refuses what asks the driver about them. Then it waits for the launches
that were under way, of which slots that are not back tell, and the extension's counts. `Loader.unload` does all this.
"""

from __future__ import annotations

from _thread import RLock

from aotcuda.errors import CudaError
from aotcuda.runtime import c_types as ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from aotcuda.manifest import FixedLaunch, Overload
    from aotcuda.runtime.driver import Device, Driver
    from aotcuda.runtime.images.debug_exceptions import Watch

_INVALID_HANDLE = 400
_ATTEMPTS = 30
"""Of a launch whose images other threads, or its own arguments, unload again and again."""

_MAX_THREADS, _STATIC_SHARED = 0, 1  # CU_FUNC_ATTRIBUTE_*
_MAX_DYNAMIC_SHARED, _CARVEOUT = 8, 9
_LARGE_CLUSTERS = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED


class UnloadedError(CudaError):
    """Images were unloaded by another thread while this one used them; a launch begins anew with new ones."""

    @classmethod
    def of(cls, what: str) -> UnloadedError:
        """The error for a module, or for a kernel."""
        message = f"the images of {what} were unloaded in the meantime, by another thread or by code that a launch runs"
        return cls(message, name="CUDA_ERROR_INVALID_HANDLE", code=_INVALID_HANDLE)


def again(launch: Callable[[tuple[object, ...]], None], args: tuple[object, ...]) -> None:
    """Launch, and begin anew where the images are unloaded meanwhile: who raises UnloadedError has launched nothing."""
    for _ in range(_ATTEMPTS - 1):
        try:
            launch(args)
        except UnloadedError:
            continue
        return
    launch(args)


class OpenLibrary:
    """Images in the driver, and their handle, until they are closed.

    Closing and calls with the handles of what the images hold keep each other out by a lock. Launches take none:
    images that are closed stay in the driver until those that are under way have ended (see `Loader.unload`).

    Attributes:
        driver: The driver that holds them.
        handle: The driver's handle (`CUlibrary`), once `loaded` has told it.
    """

    __slots__ = ("_closed", "_lock", "_where", "driver", "handle")

    def __init__(self, driver: Driver, where: str) -> None:
        self._closed = False
        self._lock = RLock()
        self._where = where
        self.driver = driver
        self.handle = ctypes.c_void_p()

    def loaded(self, handle: ctypes.c_void_p) -> None:
        """Note the driver's handle."""
        self.handle = handle

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._closed:
            self._lock.release()
            raise UnloadedError.of(self._where)

    def __exit__(self, *_error: object) -> None:
        self._lock.release()

    def close(self) -> None:
        """Let no more calls use the images."""
        with self._lock:
            self._closed = True


class DeviceKernel:
    """One overload on one GPU, ready to launch.

    Attributes:
        device: The GPU.
        kernel: The driver's handle (`CUkernel`).
        threads: The most threads that a block may have, by the registers it takes and its launch bounds.
        static_shared: Bytes of shared memory that every block has.
        cooperative: Whether it is launched cooperatively.
        most_threads: The most threads of a block by its author's launch bounds; 0 if there are none.
        watch: What a debug kernel raises; None for other kernels.
        fixed: Block, shared memory and cluster that it is launched with; None where users say them.
    """

    __slots__ = (
        "_best",
        "_dynamic",
        "_library",
        "_unasked",
        "cooperative",
        "device",
        "fixed",
        "kernel",
        "most_threads",
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
        bounds = record["launch_bounds"]
        self.most_threads = max(bounds[0], 0) if bounds else 0
        self.watch = watch
        self.fixed = fixed
        self._best: dict[int, int] = {}  # by the amount of dynamic shared memory
        self._unasked: tuple[int, ...] = ()
        carveout = record["carveout"]
        if carveout is not None:
            self._set(_CARVEOUT, carveout)

    def allow_shared(self) -> None:
        """Let launches have as much dynamic shared memory as the GPU has; the driver's default is 48 KiB."""
        if not self._dynamic:
            self._set(_MAX_DYNAMIC_SHARED, self.device.limit("shared_optin") - self.static_shared)
            self._dynamic = True

    def unasked(self) -> tuple[int, ...]:
        """The largest configuration that needs neither an opt-in nor a closer look.

        Grid and block in x, y and z, bytes of dynamic shared memory, threads of a block.
        """
        if not self._unasked:
            device = self.device
            extents = [device.limit(f"{what}_{axis}") for what in ("grid", "block") for axis in "xyz"]
            threads = min(device.limit("threads"), self.threads, self.most_threads or self.threads)
            self._unasked = (*extents, max(device.limit("shared") - self.static_shared, 0), threads)
        return self._unasked

    def known_block(self, shared: int) -> int | None:
        """What `best_block` has given before, None if it was not asked."""
        return self._best.get(shared)

    def best_block(self, shared: int) -> int:
        """The block size of most occupancy with so many bytes of dynamic shared memory; it needs a current context."""
        block = self._best.get(shared)
        if block is None:
            most = min(self.threads, self.most_threads or self.threads)
            if shared > self.device.limit("shared") - self.static_shared:
                self.allow_shared()
            grid, result = ctypes.c_int(), ctypes.c_int()
            problem = f"the driver could not tell a block size for {self.device}"
            self._ask(
                problem,
                "cuOccupancyMaxPotentialBlockSize",
                *(ctypes.byref(grid), ctypes.byref(result), self.kernel, None, shared, most),
            )
            block = self._best[shared] = result.value
        return block

    def active_blocks(self, threads: int, shared: int) -> int:
        """How many blocks of so many threads a multiprocessor holds at once; it needs a current context."""
        result = ctypes.c_int()
        problem = f"the driver did not tell the occupancy of a kernel on {self.device}"
        self._ask(
            problem,
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            *(ctypes.byref(result), self.kernel, threads, shared),
        )
        return result.value

    def allow_large_clusters(self) -> None:
        """Let launches have clusters of more than 8 blocks, which not every GPU with clusters has."""
        self._set(_LARGE_CLUSTERS, 1)

    def largest_cluster(self, config: ctypes.Structure) -> int:
        """The most blocks that a cluster may have in launches of a `CUlaunchConfig`; it needs a current context."""
        result = ctypes.c_int()
        problem = f"the driver did not tell the largest cluster of a kernel on {self.device}"
        self._ask(
            problem,
            "cuOccupancyMaxPotentialClusterSize",
            *(ctypes.byref(result), self.kernel, ctypes.byref(config)),
        )
        return result.value

    def attribute(self, attribute: int) -> int:
        """One of the driver's attributes of a kernel (`CU_FUNC_ATTRIBUTE_*`)."""
        value = ctypes.c_int()
        problem = f"the driver did not tell attribute {attribute} of a kernel on {self.device}"
        self._ask(problem, "cuKernelGetAttribute", ctypes.byref(value), attribute, self.kernel, self.device.handle)
        return value.value

    def load(self) -> None:
        """Load the kernel's code into the current context, which the driver else does at its first launch."""
        function = ctypes.c_void_p()
        self._ask(
            f"a kernel could not be loaded on {self.device}", "cuKernelGetFunction", ctypes.byref(function), self.kernel
        )

    def _set(self, attribute: int, value: int) -> None:
        problem = f"the driver did not take attribute {attribute} = {value} on {self.device}"
        self._ask(problem, "cuKernelSetAttribute", attribute, value, self.kernel, self.device.handle)

    def _ask(self, problem: str, function: str, *args: object) -> None:
        driver = self._library.driver
        with self._library:
            code = driver.call[function](*args)
        driver.check(code, problem)
