"""Prepare launches for programs that XLA compiles, before the arrays have addresses.

Shapes, dtypes and numbers are known when such a program is traced. A launch then takes the general path once with
placeholders for the arrays: it selects an overload, checks limits and packs the block. The extension gets the block
with the places of the addresses, and launches it from XLA's threads (`launch/fast/xla.c`).
"""

from __future__ import annotations

import ctypes
import math
import struct

from ...errors import ArgumentError, DependencyError, LaunchError, RuntimeUnavailableError
from .. import driver as drivers
from .. import new_lock
from . import fast as extension
from . import specialize
from .arguments import parameter_kinds
from .arguments.argument_layout import BLOCK
from .arguments.overloads import OverloadTable
from .launch_config import (
    Configuration,
    block_of_elements,
    bytes_of_shared_memory,
    number_of_elements,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ...manifest import Parameter
    from ..images.device_kernel import DeviceKernel
    from ..images.images import Images
    from ..images.kernel_table import KernelTable
    from .arguments.overloads import Selection

NOWHERE = -1
"""The number of a launch that was traced on a machine without a GPU: its program can be compiled, but not run."""

_STEP = 1 << 20
"""The distance between the addresses of placeholders, a multiple of every divisor that a signature may promise."""

_numbers: dict[object, int] = {}
_flags: list[drivers.ValidityFlag] = []  # alive until the process ends, because the extension reads them
_lock = new_lock()


class Shaped:
    """A placeholder for a C-contiguous array on the GPU that does not exist yet.

    Attributes:
        address: A unique number in place of the array's address.
    """

    __slots__ = ("__cuda_array_interface__", "address")

    def __init__(self, number: int, shape: tuple[int, ...], typestr: str) -> None:
        """Take the array's number in a launch; `typestr` as NumPy writes it, or `"bfloat16"`."""
        self.address = (number + 1) * _STEP
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": typestr,
            "data": (self.address, False),
            "strides": None,
            "stream": None,
        }


class Place:
    """The place of an array in an XLA call: among its arguments or its results.

    Attributes:
        index: The array's number among them.
        is_result: Whether the array is among the results.
    """

    __slots__ = ("index", "is_result")

    def __init__(self, index: int, *, is_result: bool) -> None:
        self.index = index
        self.is_result = is_result


def handlers() -> tuple[Any, Any, Any]:
    """Return the extension's handlers of XLA's FFI: for launches, for pinned launches, and for other devices.

    Raises:
        DependencyError: This installation has no extension.
    """
    functions: tuple[Any, Any, Any] = _extension().xla_handlers()
    return functions


def prepare(
    images: Images,
    name: str,
    where: str,
    args: Sequence[object],
    places: Sequence[Place | None],
    counts: tuple[int, int],
    configuration: tuple[object, object, int],
    n: int | None,
    *,
    pinned: bool,
) -> tuple[int, int]:
    """Prepare a launch: return its number, and a token that distinguishes it from launches of other processes.

    On a machine without a GPU, check the arguments and return `NOWHERE` as the number.

    Args:
        images: The images of the module.
        name: The name of the kernel.
        where: The name with the module's.
        args: The arguments in the kernel's order, arrays as `Shaped`.
        places: The place of each argument in XLA's call; None for arguments that are packed now.
        counts: The numbers of arguments and of results in XLA's call.
        configuration: Grid, block and bytes of dynamic shared memory.
        n: The number of threads in place of the grid, or None. With a number, the block may be None.
        pinned: Whether XLA may record the launch into a graph: the images then stay loaded until the process ends.

    Raises:
        ArgumentError: No packaged signature accepts the arguments.
        LaunchError: The configuration is not possible on the GPU, or XLA cannot launch the kernel.
        DependencyError: This installation has no extension.
    """
    arguments = tuple(args)
    try:
        images.ready()
    except RuntimeUnavailableError:
        _check_without_gpu(images, name, where, arguments)
        return NOWHERE, 0
    return images.use(_prepare, images, name, where, arguments, places, counts, configuration, n, pinned)


def _prepare(
    kernel_table: KernelTable,
    images: Images,
    name: str,
    where: str,
    arguments: tuple[object, ...],
    places: Sequence[Place | None],
    counts: tuple[int, int],
    configuration: tuple[object, object, int],
    n: int | None,
    pinned: bool,
) -> tuple[int, int]:
    module = _extension()
    selection = kernel_table.select_or_refuse(name, arguments, 0)
    overload, slot, values, *_ = selection
    try:
        kernel = _kernel(images, kernel_table, selection, where)
        grid, block, _ = configuration
        shared = bytes_of_shared_memory(configuration[2], where)
        if n is not None:
            block = kernel.best_block(shared) if block is None else block_of_elements(block, where)
            grid = -(-number_of_elements(n, where) // block)
            if grid == 0:
                message = f"{where} cannot be launched: forall is 0, and XLA's programs launch at least one thread"
                raise LaunchError(message)
        launch = Configuration(grid, block, None, shared, where, None)
        launch.check(kernel, where)
        packed = slot.buffer.raw[BLOCK : BLOCK + overload.size]
        holes = _holes(overload.parameters, values, arguments, places)
    finally:
        overload.slots.append(slot)
    dimensions = (*launch.grid, *launch.block, launch.shared)
    starts = struct.pack(f"<{len(overload.starts)}i", *overload.starts)
    described = (
        where,
        overload.record["symbol"],
        kernel.kernel.value,
        dimensions,
        (pinned, *counts),
        packed,
        holes,
        starts,
    )
    return _register(module, kernel_table, described)


def _register(module: Any, kernel_table: KernelTable, described: tuple[Any, ...]) -> tuple[int, int]:
    """Give a launch to the extension, unless it has the launch already; return the number and the identity."""
    from zlib import crc32  # noqa: PLC0415 (few programs come here)

    where, symbol, kernel, dimensions, counts, packed, holes, starts = described
    identity = crc32(repr((kernel_table.manifest["fatbins"], where, symbol, dimensions, packed, holes)).encode())
    driver = kernel_table.library.driver
    flag = kernel_table.live
    with _lock:
        key = flag, described
        number = _numbers.get(key)
        if number is None:
            specialize.use_driver(driver)
            cells = ctypes.addressof(flag.flights), ctypes.addressof(flag.retired)
            number = _numbers[key] = module.xla_prepare(
                where, identity, kernel, dimensions, *cells, *counts, packed, holes, starts
            )
            _flags.append(flag)
            kernel_table.is_pinned |= counts[0]
    return number, identity


def _check_without_gpu(images: Images, name: str, where: str, args: tuple[object, ...]) -> None:
    record = images.kernels.get(name)
    if record is None:
        message = f"{where} cannot be launched: the module has no such kernel any more"
        raise LaunchError(message)
    table = OverloadTable(record, where, drivers.ValidityFlag())
    if table.select(args, 0) is None:
        raise table.refusal(args)


def _kernel(images: Images, kernel_table: KernelTable, selection: Selection, where: str) -> DeviceKernel:
    """Return the selected overload on this machine's GPUs, and load its code on the first.

    Raises:
        LaunchError: XLA cannot launch such a kernel.
    """
    overload, library = selection[0], kernel_table.library
    if library.callbacks is not None and len(library.driver.devices) > 1:
        message = (
            f"{where} cannot be prepared for XLA: its module has setup callbacks, which have to run on each GPU, and "
            "this machine has several; show JAX one by CUDA_VISIBLE_DEVICES"
        )
        raise LaunchError(message)
    device = images.enter(kernel_table, ())
    kernel = kernel_table.device_kernel(overload, device)
    problem = "a cooperative one" if kernel.cooperative else "launched by its grid alone" if kernel.fixed else None
    if overload.apart:
        problem = "for arrays that must not overlap"
    if problem is not None:
        message = (
            f"{where} cannot be prepared for XLA: it is {problem}, and XLA's programs launch plain grids of blocks"
        )
        raise LaunchError(message)
    for other in range(len(library.driver.devices)):
        if kernel_table.device_kernel(overload, other).kernel.value != kernel.kernel.value:
            message = f"{where} cannot be prepared for XLA: the GPUs of this machine need different overloads of it"
            raise LaunchError(message)
    kernel.load()
    return kernel


def _holes(
    parameters: Sequence[Parameter], values: list[object], args: tuple[object, ...], places: Sequence[Place | None]
) -> bytes:
    """Return the places of the addresses in the block, in the form for the extension."""
    by_address = {
        arg.address: place
        for arg, place in zip(args, places, strict=True)
        if isinstance(arg, Shaped) and place is not None
    }
    holes = []
    number = 0
    for parameter in parameters:
        for offset, _, is_address in parameter_kinds.kind_of(parameter).fields(parameter):
            value = values[number]
            number += 1
            if is_address and isinstance(value, int) and value in by_address:
                place = by_address[value]
                divisor = math.lcm(parameter.get("divisor", 1), parameter_kinds.alignment(parameter))
                holes.append(struct.pack("<4i", offset, place.is_result, place.index, divisor))
    return b"".join(holes)


def _extension() -> Any:
    module = extension.in_use()
    if module is None:
        message = f"XLA's programs launch by aotcuda's extension, and there is none: {extension.why_not()}"
        raise DependencyError(message)
    return module


def argument_error(where: str, problem: str) -> ArgumentError:
    """Return the error for a call of kernel `where` with wrong options or arguments."""
    return ArgumentError(f"{where}: {problem}")
