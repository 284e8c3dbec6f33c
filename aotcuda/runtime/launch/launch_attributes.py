"""Launch attributes beyond grid, block, stream and shared memory, and the limits of a GPU.

The driver's form is `CUlaunchAttribute` (cuda.h; CUDA Driver API, "Execution Control"). The numbers below are values of
`CUlaunchAttributeID` and `CUfunction_attribute`.
"""

from __future__ import annotations

import ctypes
import struct
from operator import mod

from ...errors import LaunchError, quoted, short_repr
from .. import driver as drivers
from .arguments.argument_layout import BLOCK, encode_config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..driver import Device
    from ..images.device_kernel import DeviceKernel
    from .arguments.argument_layout import Attributes

    Dimensions = tuple[int, int, int]

OPTIONS = ("stream", "shared", "cluster", "cooperative", "dependent", "priority", "carveout")
"""The options of `Kernel.configure`."""

_COOPERATIVE, _CLUSTER, _SCHEDULING, _DEPENDENT, _PRIORITY, _CARVEOUT = 2, 4, 5, 6, 8, 14
_SPREAD = 1
_HALF = 0xFFFFFFFF
_PORTABLE_CLUSTER = 8
"""The largest cluster that every GPU with clusters has; larger ones need a kernel attribute."""

_CARVEOUT_DRIVER = (12, 5)
"""The first CUDA version whose driver accepts a carveout for one launch."""


def too_large(kernel: DeviceKernel, grid: Dimensions, block: Dimensions, shared: int) -> str | None:
    """Return the error text for a configuration beyond the limits of the GPU or the kernel, else None."""
    device = kernel.device
    if kernel.block not in (None, block):
        return f"block {short_repr(block)} is given, and the kernel was compiled for blocks of {kernel.block} alone"
    for key, extents in (("grid", grid), ("block", block)):
        for axis, extent in zip("xyz", extents, strict=True):
            most = device.limit(f"{key}_{axis}")
            if extent > most:
                fact = f"{key} {short_repr(extents)} has {short_repr(extent)} in {axis}"
                return f"{fact}, where at most {most} are possible on {device}"
    threads = block[0] * block[1] * block[2]
    fact = f"block {block} has {threads} threads"
    if threads > device.limit("threads"):
        return f"{fact}, where at most {device.limit('threads')} are possible on {device}"
    if 0 < kernel.bound_threads < threads:
        return f"{fact}, more than the kernel's launch bounds, {kernel.bound_threads}"
    if threads > kernel.threads:
        return f"{fact}, where the kernel's registers allow {kernel.threads} on {device}"
    most = device.limit("shared_optin") - kernel.static_shared
    if shared > most:
        static = f" in addition to the kernel's own {kernel.static_shared}" if kernel.static_shared else ""
        fact = f"{short_repr(shared)} bytes of dynamic shared memory"
        return f"{fact}, where at most {most} are possible{static} on {device}"
    return None


_pack = struct.Struct("<I4x3I52x").pack
"""Write a `CUlaunchAttribute`: its number, and up to three ints of its value."""


class LaunchAttributes:
    """The attributes of a launch, after all checks that need no GPU.

    Attributes:
        cluster: Blocks of a cluster in x, y and z; None for no clusters.
        spread: Whether the blocks of a cluster are spread over all multiprocessors, as in Triton's launches.
        cooperative: Whether the grid is launched all at once, so that its blocks can wait for each other.
        dependent: Whether the kernel may begin before the previous launch on the stream has ended (programmatic
            dependent launch); the kernel itself then waits for its inputs.
        priority: The launch's priority, lower numbers first; None for the stream's.
        carveout: The share of the multiprocessor's memory to prefer as shared memory, in percent; None for the kernel's
            own.
    """

    __slots__ = ("carveout", "cluster", "cooperative", "dependent", "priority", "spread")

    def __init__(
        self,
        where: str,
        *,
        cluster: Dimensions | None = None,
        spread: bool = False,
        cooperative: object = False,
        dependent: object = False,
        priority: object = None,
        carveout: object = None,
    ) -> None:
        """Check the attributes of a launch of kernel `where`.

        Raises:
            LaunchError: An attribute has another type, or is out of its range.
        """
        for name, flag in (("cooperative", cooperative), ("dependent", dependent)):
            if not isinstance(flag, bool):
                _refuse(where, f"{name} is {quoted(flag)} where True or False belongs")
        for name, number in (("priority", priority), ("carveout", carveout)):
            if number is not None and type(number) is not int:
                _refuse(where, f"{name} is {quoted(number)} where an int or None belongs")
        if isinstance(carveout, int) and not 0 <= carveout <= 100:
            _refuse(where, f"carveout is {quoted(carveout)}, and it is a share in percent: 0 to 100")
        self.cluster = cluster
        self.spread = spread
        self.cooperative = bool(cooperative)
        self.dependent = bool(dependent)
        self.priority = priority if isinstance(priority, int) else None
        self.carveout = carveout if isinstance(carveout, int) else None

    def __bool__(self) -> bool:
        return self.values() != (None, False, False, False, None, None)

    def values(self) -> tuple[object, ...]:
        """Return the attributes as a tuple, for comparisons and cache keys."""
        return self.cluster, self.spread, self.cooperative, self.dependent, self.priority, self.carveout

    def __str__(self) -> str:
        parts = [f"clusters of {short_repr(self.cluster)} blocks"] if self.cluster else []
        parts += ["a cooperative grid"] if self.cooperative else []
        parts += ["programmatic dependence"] if self.dependent else []
        parts += [f"priority {short_repr(self.priority)}"] if self.priority is not None else []
        parts += [f"carveout {self.carveout} %"] if self.carveout is not None else []
        return ", ".join(parts)

    def encoded(self, *, cooperative: bool = False) -> bytes:
        """Return the attributes in the driver's form; `cooperative` adds the one of cooperative kernels."""
        pairs: list[tuple[int, tuple[int, ...]]] = []
        if self.cooperative or cooperative:
            pairs.append((_COOPERATIVE, (1,)))
        if self.cluster is not None:
            pairs.append((_CLUSTER, self.cluster))
        if self.spread:
            pairs.append((_SCHEDULING, (_SPREAD,)))
        if self.dependent:
            pairs.append((_DEPENDENT, (1,)))
        if self.priority is not None:
            pairs.append((_PRIORITY, (self.priority,)))
        if self.carveout is not None:
            pairs.append((_CARVEOUT, (self.carveout,)))
        return b"".join([_pack(number, *[part & _HALF for part in (*value, 0, 0)[:3]]) for number, value in pairs])

    def array(self, *, cooperative: bool = False) -> Attributes:
        """Return `encoded` in memory of its own, for `encode_config`."""
        data = self.encoded(cooperative=cooperative)
        return ctypes.create_string_buffer(data, len(data))

    def divides(self, grid: Dimensions) -> bool:
        """Return True if the clusters, if there are any, divide a grid."""
        return self.cluster is None or not any(map(mod, grid, self.cluster))

    def problem(self, kernel: DeviceKernel, numbers: tuple[int, ...]) -> str | None:
        """Return the error text for attributes that are not possible for a kernel; None if they are.

        `numbers` are those of a configuration. The driver is asked once for each kernel, block, shared memory and set
        of attributes; then a context must be current.
        """
        device = kernel.device
        if self.dependent and device.capability < (9, 0):
            return f"dependent launches need compute capability 9.0 or later, and it is launched on {device}"
        if self.priority is not None:
            least, greatest = kernel.remember(("priorities",), lambda: _priorities(device))
            if not greatest <= self.priority <= least:
                possible = f"{greatest} (first) to {least} (last) are possible on {device}"
                return f"priority is {short_repr(self.priority)}, where {possible}"
        if self.carveout is not None and device.driver_version < _CARVEOUT_DRIVER:
            return (
                "a carveout for one launch needs a driver for CUDA 12.5 or newer; any driver accepts the kernel's own "
                "key, carveout"
            )
        if self.cluster is not None:
            problem = self._cluster_problem(kernel, self.cluster, numbers)
            if problem is not None:
                return problem
        if self.cooperative:
            return _cooperative_problem(kernel, numbers)
        return None

    def _cluster_problem(self, kernel: DeviceKernel, cluster: Dimensions, numbers: tuple[int, ...]) -> str | None:
        device, size, grid = kernel.device, cluster[0] * cluster[1] * cluster[2], numbers[:3]
        if not device.limit("cluster"):
            return f"clusters need compute capability 9.0 or later, and it is launched on {device}"
        for axis, extent, part in zip("xyz", grid, cluster, strict=True):
            if extent % part:
                clusters = f"clusters of {short_repr(cluster)}"
                return (
                    f"grid {short_repr(grid)} has {short_repr(extent)} blocks in {axis}, which {clusters} do not divide"
                )

        def ask() -> int:
            if size > _PORTABLE_CLUSTER:
                kernel.allow_large_clusters()
            config, attributes = ctypes.create_string_buffer(BLOCK), self.array()
            encode_config(config, numbers, 0, attributes)
            return kernel.largest_cluster(config)

        most = kernel.remember(("cluster", *numbers[3:7], self.values()), ask)
        if size > most:
            return f"clusters of {size} blocks, where at most {most} of this block and shared memory fit on {device}"
        return None


def _priorities(device: Device) -> tuple[int, int]:
    """Return the least and the greatest priority on a GPU, which is the lower number; a context must be current."""
    least, greatest = ctypes.c_int(), ctypes.c_int()
    driver = drivers.get()
    code = driver.call["cuCtxGetStreamPriorityRange"](ctypes.byref(least), ctypes.byref(greatest))
    driver.check(code, f"GPU {device.index} did not report its priorities")
    return least.value, greatest.value


def _cooperative_problem(kernel: DeviceKernel, numbers: tuple[int, ...]) -> str | None:
    device = kernel.device
    if not device.limit("cooperative"):
        return f"a cooperative launch is not possible on {device}"
    blocks = numbers[0] * numbers[1] * numbers[2]
    most = most_cooperative_blocks(kernel, *numbers[6:])
    if blocks > most:
        return f"a cooperative grid must fit on the GPU at once: {blocks} blocks, where {most} of them fit on {device}"
    return None


def most_cooperative_blocks(kernel: DeviceKernel, shared: int, threads: int) -> int:
    """Return the most blocks that a cooperative grid may have; a context must be current the first time."""
    active: int = kernel.remember(("blocks", threads, shared), lambda: kernel.active_blocks(threads, shared))
    return active * kernel.device.limit("multiprocessors")


def _refuse(where: str, problem: str) -> None:
    message = f"{where} cannot be launched: {problem}"
    raise LaunchError(message)


def unknown_text(name: str) -> str:
    """Return the error text for an unknown argument of `Kernel.configure`."""
    from difflib import get_close_matches  # noqa: PLC0415 (only errors come here)

    near = get_close_matches(name, OPTIONS, 1)
    hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(OPTIONS)}"
    return f"configure() has no option {name!r}{hint}"
