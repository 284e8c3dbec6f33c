"""The general path, which defines the behaviour of a launch.

The fast path in C has the same behaviour, or leaves the launch to the general path.

select (arguments -> overload, packed block) -> submit (kernel, GPU, configuration -> driver) -> settle (add the
specialization to the fast path).
"""

from __future__ import annotations

import ctypes
from operator import le

from .. import driver as drivers
from .. import errors
from .arguments.argument_layout import Ready
from .launch_config import checked, pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..driver import Device, Driver
    from ..images.device_kernel import DeviceKernel
    from ..images.images import Images
    from ..images.kernel_table import KernelTable
    from .arguments.overloads import Selection
    from .launch_config import Configuration

SPECIALIZE_AT = 2
"""The number of launches after which the fast path gets a specialization; many kernels are launched only once."""


class GeneralPath:
    """A kernel with a launch configuration, which `launch` launches.

    Attributes:
        name: The kernel's name.
        where: The kernel's name after the module's.
        configuration: The launch configuration.
    """

    __slots__ = ("_images", "_specializations", "configuration", "name", "where")

    def __init__(
        self, images: Images, name: str, where: str, configuration: Configuration, specializations: Any
    ) -> None:
        """Take a kernel of `images` and the specializations of the fast path, None for no fast path."""
        self.name = name
        self.where = where
        self.configuration = configuration
        self._images = images
        self._specializations = specializations

    def launch(self, args: tuple[object, ...]) -> None:
        """Launch by the general path; errors as for a call of `Launcher`."""
        self._images.use(self._launch, args)

    def _launch(self, kernel_table: KernelTable, args: tuple[object, ...]) -> None:
        images, stream = self._images, self.configuration.stream
        try:
            selection = kernel_table.select(self.name, args, stream)
            if selection is None:
                launch_with_copies(images, kernel_table, (self.name, self.where), stream, args, self._launch)
                return
            self.submit(kernel_table, selection, args)
        except errors.MissingVariantError:
            if self._specializations is not None:
                self._settle_miss(kernel_table, args)
            raise
        if selection[5] is not None and selection[5].served is not None:
            self._count(*selection[5].served)
        if self._specializations is not None:
            self.settle(kernel_table, selection, args)

    def _count(self, counts: Any, index: int) -> None:
        """Count a launch of an exact kernel, and log the first one that was chosen by hints."""
        counts[index] += 1
        if index and counts[index] == 1:
            import logging  # noqa: PLC0415 (few launches are logged)

            message = "%s was launched with integers that are not recorded; a variant with fewer hints serves them"
            logging.getLogger("aotcuda").info(message, self.where)

    def submit(self, kernel_table: KernelTable, selection: Selection, args: tuple[object, ...]) -> None:
        """Launch with selected and packed arguments, and release their slot."""
        overload, slot, _, pending, stream, _ = selection
        try:
            ready = overload.ready
            numbers: tuple[int, ...] = self.configuration.numbers
            if ready is not None and ready.fixed is not None:
                numbers = (*numbers[:3], *ready.fixed)
            if (
                ready is None
                or self.configuration.attributes is not None
                or not all(map(le, numbers, ready.limits))
                or ready.block not in (None, numbers[3:6])
                or (pending and any(isinstance(item, int) for item in pending))  # an int is a stream to wait for
            ):
                self._submit_checked(kernel_table, selection, args)
            else:
                pack(slot.config, 0, *numbers, stream)
                code = kernel_table.library.driver.launch(slot.config_pointer, ready.kernel, *slot.pointers)
                if code:
                    self._recover(code, kernel_table, overload.kernels[kernel_table.library.device], selection)
        finally:
            overload.slots.append(slot)

    def settle(self, kernel_table: KernelTable, selection: Selection, args: tuple[object, ...]) -> None:
        """After a launch of `selection` with `args`, add its specialization to the fast path if possible."""
        specialization = selection[5]
        if self._specializations is None or specialization is None:
            return
        specialization.launches += 1
        if specialization.launches >= SPECIALIZE_AT and specialization.fits_fast_path(selection[0]):
            from . import specialize  # noqa: PLC0415 (many kernels are launched once)

            specialize.add_to_fast_path(
                kernel_table, self._specializations, specialization, args, self.configuration, self.where
            )

    def _settle_miss(self, kernel_table: KernelTable, args: tuple[object, ...]) -> None:
        """Record in the fast path that an exact kernel has no overload for arguments, after the second launch."""
        table: Any = kernel_table.table(self.name)
        specialization = table.find_miss(args) if table.is_exact else None
        if specialization is None:
            return
        specialization.launches += 1
        if specialization.launches >= SPECIALIZE_AT:
            from . import specialize  # noqa: PLC0415 (few launches are missed)

            specialize.add_miss_to_fast_path(kernel_table, self._specializations, specialization, args)

    def fail(self, code: int, args: tuple[object, ...]) -> None:
        """Raise the error of a launch that failed on the fast path; if only a context was missing, launch.

        If the launch was made, and a stream could not be made to wait for it, repeat the wait.

        Raises:
            ArgumentError: A stream that has to wait for the launch was destroyed.
            CudaError: The driver reports an error.
            LaunchError: The stream of the launch was destroyed.
        """
        self._images.use(self._handle_failure, code, args)

    def _handle_failure(self, kernel_table: KernelTable, code: int, args: tuple[object, ...]) -> None:
        driver = kernel_table.library.driver
        if code > drivers.LAUNCHED:  # the launch was made, but a stream does not wait for it
            from .. import streams  # noqa: PLC0415 (only errors come here)

            overload, slot, _, pending, stream, _ = kernel_table.select_or_refuse(
                self.name, args, self.configuration.stream
            )
            overload.slots.append(slot)
            streams.order_launch(driver, pending, stream, self.where, launched=True)
            return
        current = driver.current_device()
        if code == drivers.INVALID_CONTEXT and current is None:
            self.submit(kernel_table, kernel_table.select_or_refuse(self.name, args, self.configuration.stream), args)
            return
        stream = kernel_table.table(self.name).stream(args, self.configuration.stream)
        configuration, kernel = self.configuration, None
        if configuration.by_grid or code == drivers.INVALID_VALUE:  # the kernel may be the cause
            kernel = kernel_table.device_kernel(kernel_table.check(self.name, args, stream), current or 0)
            configuration = configuration.for_kernel(kernel)
        raise self._refusal(code, driver, driver.devices[current or 0], stream, configuration, kernel)

    def _submit_checked(self, kernel_table: KernelTable, selection: Selection, args: tuple[object, ...]) -> None:
        """Launch with all checks; cache the encoded configuration if later launches need no checks."""
        overload, slot, _, pending, stream, _ = selection
        library = kernel_table.library
        driver = library.driver
        kernel: DeviceKernel | None = overload.kernels.get(library.device)
        if kernel is None or pending or self._needs_context(kernel):
            device = self._enter(kernel_table, selection)
            kernel = kernel_table.device_kernel(overload, device, (stream, *pending), self.where)
        configuration = checked(self.configuration, kernel, self.where)
        if pending:  # after all checks, because a stream that joins a capture here returns to it only after the launch
            from .. import streams  # noqa: PLC0415 (most arrays are on the launch's stream)

            streams.order_launch(driver, pending, stream, self.where, launched=False)
        if kernel.watch is not None:
            kernel.watch.clear(stream)
        if library.synchronous:
            from .. import streams  # noqa: PLC0415 (few launches wait)

            problem = f"{self.where} was not launched, because earlier work on its stream has failed"
            driver.check(streams.wait_unless_captured(driver, stream), problem)
        scratch = kernel.fixed.get("scratch") if kernel.fixed is not None else None
        memory: object = None  # the owner of scratch memory must stay alive until the launch
        if scratch is not None:
            from . import scratch_memory  # noqa: PLC0415 (few kernels need any)

            memory = scratch_memory.allocate(scratch, configuration.grid, stream, slot.buffer, self.where)
        config = configuration.for_driver(stream, cooperative=kernel.cooperative)
        code = driver.launch(config, kernel.kernel, *slot.pointers)
        if code:
            self._recover(code, kernel_table, kernel, selection)
        del memory
        if pending:
            streams.order_launch(driver, pending, stream, self.where, launched=True)
        code = streams.wait_unless_captured(driver, stream) if library.synchronous else 0
        if not code and kernel.watch is not None:
            code = kernel.watch.check(stream)
        if code:
            from . import launch_problems  # noqa: PLC0415 (only errors come here)

            raise launch_problems.failure(self.where, code, driver, kernel, selection, configuration, args)
        is_cached = library.device >= 0 and overload.kernels.get(library.device) is kernel
        is_plain = kernel.watch is None and scratch is None and not library.synchronous and not kernel.cooperative
        if is_cached and is_plain and (kernel.fixed is None or configuration.attributes is None):
            fixed = None if kernel.fixed is None else configuration.numbers[3:]
            handle = ctypes.c_void_p.from_param(kernel.kernel.value)
            overload.ready = Ready(handle, kernel.unchecked_limits(), kernel.block, fixed)

    def _enter(self, kernel_table: KernelTable, selection: Selection) -> int:
        """Enter a context, and check that the GPU can read the arrays."""
        overload, _, values, pending, stream, _ = selection
        driver, addresses = kernel_table.library.driver, overload.addresses_of(values)
        device = self._images.enter(kernel_table, addresses, (stream, *pending), self.where)
        if len(driver.devices) > 1:
            from . import launch_problems  # noqa: PLC0415 (most launches have one GPU)

            launch_problems.check_gpu(self.where, driver, device, addresses, stream)
        return device

    def _recover(self, code: int, kernel_table: KernelTable, kernel: DeviceKernel, selection: Selection) -> None:
        """Launch again in a context, if a context was missing; otherwise raise the driver's error."""
        overload, slot, values, pending, stream, _ = selection
        driver = kernel_table.library.driver
        if code == drivers.INVALID_CONTEXT and driver.current_device() is None:
            self._images.enter(kernel_table, overload.addresses_of(values), (stream, *pending), self.where)
            configuration = self.configuration.for_kernel(kernel)
            config = configuration.for_driver(stream, cooperative=kernel.cooperative)
            code = driver.launch(config, kernel.kernel, *slot.pointers)
        if code:
            raise self._refusal(code, driver, kernel.device, stream, self.configuration.for_kernel(kernel), kernel)

    def _refusal(
        self,
        code: int,
        driver: Driver,
        device: Device,
        stream: int,
        configuration: Configuration,
        kernel: DeviceKernel | None = None,
    ) -> Exception:
        from . import launch_problems  # noqa: PLC0415 (only errors come here)

        return launch_problems.refusal(self.where, code, driver, device, stream, configuration, kernel)

    def _needs_context(self, kernel: DeviceKernel) -> bool:
        """Return True if the configuration has attributes: their first check needs a current context."""
        return self.configuration.for_kernel(kernel).attributes is not None


def launch_with_copies(
    images: Images,
    kernel_table: KernelTable,
    kernel: tuple[str, str],
    stream: int | None,
    args: tuple[object, ...],
    launch: Callable[[KernelTable, tuple[object, ...]], object],
) -> None:
    """Launch with copies of the host's arrays and records.

    Args:
        images: The images of the module.
        kernel_table: Its kernel table.
        kernel: The kernel's name, and that name after the module's.
        stream: The handle of the launch's stream; None for the current one.
        args: The arguments.
        launch: A function that launches with the copies, by the kernel table.
    """
    from .arguments import host_arrays  # noqa: PLC0415 (few programs want it)

    name, where = kernel
    table = kernel_table.table(name)
    images.enter(kernel_table, (), [table.stream(args, stream)], where)
    numbers = host_arrays.find_arguments_to_copy(args, table.all_overloads())
    with host_arrays.Copies(args, numbers, kernel_table.library.driver, where) as copies:
        launch(kernel_table, copies.args)
        copies.copy_back(table.stream(copies.args, stream))
