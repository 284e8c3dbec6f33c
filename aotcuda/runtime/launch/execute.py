"""Launch a kernel with a configuration: `kernel[grid, block]` returns a `Launcher`, and its call is one launch.

This module defines the behaviour of a launch. The fast path in C has the same behaviour, or leaves the launch to it.

select (arguments -> overload, packed block) -> submit (kernel, GPU, configuration -> driver) -> settle (give the
specialization to the fast path, and make its function for later launches in Python).
"""

from __future__ import annotations

import ctypes
from functools import partial

from .. import driver as drivers
from .. import errors
from . import config_key
from .arguments.argument_layout import BLOCK, encode_config
from .launch_config import Configuration, Ready, attributes_of, checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, Self

    from ..driver import Device, Driver
    from ..images.device_kernel import DeviceKernel
    from ..images.images import Images
    from ..images.kernel_table import KernelTable
    from .arguments.overloads import Selection
    from .launch_config import Dimensions

SPECIALIZE_AT = 2
"""The number of launches after which the fast path gets a specialization; many kernels are launched only once."""

PACK_AT = 3
"""The number of launches after which a specialization gets its function of `packing`."""


class ProcessLocal:
    """A base of objects that belong to one process: a copy is the object itself, and pickling is refused."""

    __slots__ = ()

    def _describe(self) -> tuple[str, str]:
        """Return the name of the object, and the expression that makes it in another process."""
        raise NotImplementedError

    def with_stream(self, stream: object) -> Self:
        """Return a launcher like this one that also keeps alive the stream object, whose handle this one has."""
        return LauncherWithStream(self, stream)  # type: ignore[return-value]  # it has all attributes of this launcher

    def answer(self, code: int, args: tuple[object, ...], named: dict[str, object] | None = None) -> Any:
        """Launch after the fast path has declined with code 0, or found no overload with -1; errors as for a call.

        Any other code is that of a launch that failed on the fast path: raise its error, as `Launcher.fail` does.
        """
        if code > 0:
            return self.fail(code, args)  # type: ignore[attr-defined]  # the fast path launches for launchers with it
        launch: Any = self if code == 0 else self.missed
        return launch(*args, **(named or {}))

    def missed(self, *args: object, **named: object) -> Any:
        """Launch after the fast path has found that no overload accepts the arguments."""
        launch: Any = self
        return launch(*args, **named)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Refuse to be pickled: the stream and the specializations belong to this process.

        Raises:
            TypeError: Always.
        """
        name, expression = self._describe()
        message = f"{name} belongs to its process; send the kernel, and write {expression} where it is launched"
        raise TypeError(message)


class Launcher(ProcessLocal):
    """A kernel with a launch configuration; call it with the kernel's arguments.

    Attributes:
        name: The kernel's name.
        where: The kernel's name after the module's.
        configuration: The launch configuration.
    """

    __slots__ = ("_images", "_specializations", "configuration", "name", "where")

    form = "[grid, block]"
    """How users write it after the kernel's name."""

    def __init__(
        self, images: Images, name: str, where: str, configuration: Configuration, specializations: Any
    ) -> None:
        """Take a kernel of `images` and the specializations of the fast path, None for no fast path."""
        self.name = name
        self.where = where
        self.configuration = configuration
        self._images = images
        self._specializations = specializations

    if TYPE_CHECKING:

        def __call__(self, *args: Any, **_none: Any) -> None:
            """Launch the kernel; the class in a stub has the kernel's parameters."""

    else:

        def __call__(self, *args: object, **named: object) -> None:
            """Launch the kernel; it runs asynchronously, as every CUDA kernel does.

            Raises:
                ArgumentError: No packaged signature accepts the arguments, or some are given by name.
                LaunchError: The configuration is not possible on the GPU.
                RuntimeUnavailableError: There is no driver, no GPU, or no image for this GPU.
                StaleBuildError: The package is installed as editable and its sources were edited after the build.
                ForkError: The process forked after CUDA was started.
                CallbackError: A setup callback raised; the module is unloaded again, and the next launch starts anew.
                CudaError: The driver reports an error.
            """
            if named:
                self._refuse_names(named)
            self.launch(args)

    def launch(self, args: tuple[object, ...]) -> None:
        """Launch with positional arguments; errors as for a call."""
        self._images.use(self._launch, args)

    def _launch(self, kernel_table: KernelTable, args: tuple[object, ...]) -> None:
        configuration = self.configuration
        specialization = kernel_table.table(self.name).find(args)
        if specialization is not None and (
            self._specializations is None or specialization.was_offered(configuration.kind)
        ):
            code = specialization.launch(args, configuration)
            if code == 0:
                return
            if code is not None:
                self._handle_failure(kernel_table, code, args)
                return
        try:
            selection = kernel_table.select(self.name, args, configuration.stream)
            if selection is None:
                self._copy_and_launch(kernel_table, args)
                return
            self.submit(kernel_table, selection, args)
        except errors.MissingVariantError:
            if self._specializations is not None:
                self._settle_miss(kernel_table, args)
            raise
        self.settle(kernel_table, selection, args)

    def _copy_and_launch(self, kernel_table: KernelTable, args: tuple[object, ...]) -> None:
        """Launch with copies of the host's arrays and records."""
        from .arguments import host_arrays  # noqa: PLC0415 (few programs want it)

        table, stream = kernel_table.table(self.name), self.configuration.stream
        self._images.enter(kernel_table, (), [table.stream(args, stream)], self.where)
        numbers = host_arrays.find_arguments_to_copy(args, table.all_overloads())
        with host_arrays.Copies(args, numbers, kernel_table.library.driver, self.where) as copies:
            self._launch(kernel_table, copies.args)
            copies.copy_back(table.stream(copies.args, stream))

    def _count(self, counts: Any, index: int) -> None:
        """Count a launch of an exact kernel, and log the first one that was chosen by hints."""
        counts[index] += 1
        if index and counts[index] == 1:
            import logging  # noqa: PLC0415 (few launches are logged)

            message = "%s was launched with integers that are not recorded; a variant with fewer hints serves them"
            logging.getLogger("aotcuda").info(message, self.where)

    def settle(self, kernel_table: KernelTable, selection: Selection, args: tuple[object, ...]) -> None:
        """After a launch of `selection` with `args`, count it, and let later launches be quicker if possible."""
        overload, specialization = selection[0], selection[5]
        if specialization is None:
            return
        if specialization.served is not None:
            self._count(*specialization.served)
        specialization.launches += 1
        fits = specialization.launches >= SPECIALIZE_AT and specialization.fits_fast_path(overload)
        if fits and self._specializations is not None:
            from . import specialize  # noqa: PLC0415 (many kernels are launched once)

            specialize.add_to_fast_path(
                kernel_table, self._specializations, specialization, args, self.configuration, self.where
            )
        if specialization.launches >= PACK_AT and not specialization.is_planned and overload.ready is not None:
            kernel_table.table(self.name).plan_launch(selection, args, kernel_table.library.driver)

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
            streams.order_after_launch(driver, pending, stream, self.where)
            return
        current = driver.current_device()
        if code == drivers.INVALID_CONTEXT and current is None:
            self.submit(kernel_table, kernel_table.select_or_refuse(self.name, args, self.configuration.stream), args)
            return
        stream = kernel_table.table(self.name).stream(args, self.configuration.stream)
        configuration, kernel = self.configuration, None
        if configuration.by_grid or configuration.elements or code == drivers.INVALID_VALUE:  # it may be the cause
            kernel = kernel_table.device_kernel(kernel_table.check(self.name, args, stream), current or 0)
            configuration = configuration.for_kernel(kernel)
        raise self._refusal(code, driver, driver.devices[current or 0], stream, configuration, kernel)

    def submit(self, kernel_table: KernelTable, selection: Selection, args: tuple[object, ...]) -> None:
        """Launch with all checks, and release the slot of the arguments."""
        try:
            self._submit(kernel_table, selection, args)
        finally:
            selection[0].slots.append(selection[1])

    def _submit(self, kernel_table: KernelTable, selection: Selection, args: tuple[object, ...]) -> None:
        overload, slot, _, pending, stream, _ = selection
        library = kernel_table.library
        driver = library.driver
        kernel: DeviceKernel | None = overload.kernels.get(library.device)
        if kernel is None or pending or self._needs_context(kernel):
            device = self._enter(kernel_table, selection)
            kernel = kernel_table.device_kernel(overload, device, (stream, *pending), self.where)
        configuration = checked(self.configuration, kernel, self.where)
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

            block = memoryview(slot.buffer)[BLOCK:]
            memory = scratch_memory.allocate(scratch, configuration.grid, stream, block, self.where)
        attributes = attributes_of(kernel, configuration.attributes)
        array = None if attributes is None else attributes.array(cooperative=kernel.cooperative)
        encode_config(slot.buffer, configuration.numbers, stream, array)
        handle = ctypes.c_void_p.from_param(kernel.kernel.value)
        config, parameters, extra = slot.pointers
        launch = partial(driver.launch, config, handle, parameters, extra)
        if pending:  # after all checks, because a stream that joins a capture here returns to it only after the launch
            from .. import streams  # noqa: PLC0415 (most arrays are on the launch's stream)

            code = streams.launch_in_order(driver, pending, stream, self.where, launch)
        else:
            code = launch()
        if code:
            self._recover(code, kernel_table, kernel, selection, launch)
        del memory
        code = streams.wait_unless_captured(driver, stream) if library.synchronous else 0
        if not code and kernel.watch is not None:
            code = kernel.watch.check(stream)
        if code:
            from . import launch_problems  # noqa: PLC0415 (only errors come here)

            raise launch_problems.failure(self.where, code, driver, kernel, selection, configuration, args)
        is_cached = library.device >= 0 and overload.kernels.get(library.device) is kernel
        if is_cached and kernel.watch is None and scratch is None and not library.synchronous:
            overload.ready = Ready(kernel, handle, configuration)

    def _enter(self, kernel_table: KernelTable, selection: Selection) -> int:
        """Enter a context, and check that the GPU can read the arrays."""
        overload, _, values, pending, stream, _ = selection
        driver, addresses = kernel_table.library.driver, overload.addresses_of(values)
        device = self._images.enter(kernel_table, addresses, (stream, *pending), self.where)
        if len(driver.devices) > 1:
            from . import launch_problems  # noqa: PLC0415 (most launches have one GPU)

            launch_problems.check_gpu(self.where, driver, device, addresses, stream)
        return device

    def _recover(
        self,
        code: int,
        kernel_table: KernelTable,
        kernel: DeviceKernel,
        selection: Selection,
        launch: Callable[[], int],
    ) -> None:
        """Launch again in a context, if a context was missing; otherwise raise the driver's error."""
        overload, _, values, pending, stream, _ = selection
        driver = kernel_table.library.driver
        if code == drivers.INVALID_CONTEXT and driver.current_device() is None:
            self._images.enter(kernel_table, overload.addresses_of(values), (stream, *pending), self.where)
            code = launch()
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
        """Return True if the driver may have to be asked about attributes or a block: the first time in a context."""
        if self.configuration.elements:
            return self.configuration.shared not in kernel.best_blocks
        return self.configuration.for_kernel(kernel).attributes is not None

    def _describe(self) -> tuple[str, str]:
        """Implement ProcessLocal._describe."""
        return f"{self.where} with a configuration", "kernel[grid, block]"

    @property
    def grid(self) -> Dimensions:
        """Blocks of the grid in x, y and z."""
        return self.configuration.grid

    @property
    def block(self) -> Dimensions:
        """Threads of a block in x, y and z."""
        return self.configuration.block

    @property
    def stream(self) -> int | None:
        """Return the handle of the stream, 0 for the default stream; None for the current stream of each launch."""
        return self.configuration.stream

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory for each block."""
        return self.configuration.shared

    def _refuse_names(self, named: dict[str, object]) -> NoReturn:
        from .arguments import explain  # noqa: PLC0415 (only errors come here)

        record = self._images.kernels.get(self.name)
        raise explain.keyword_error(self.where, f"{self.name}{self.form}", record, named)

    def __repr__(self) -> str:
        stream = f", stream {self.stream:#x}" if self.stream is not None else ""
        shared = f", {errors.short_repr(self.shared)} bytes of shared memory" if self.shared else ""
        grid, block = errors.short_repr(self.grid), errors.short_repr(self.block)
        return f"<{self.where} with grid {grid}, block {block}{stream}{shared}>"


def make_configured(launcher_class: type[Launcher], images: Images, name: str, where: str) -> Callable[[object], Any]:
    """Return the function that makes the launchers of a kernel without the extension, as `configured` does in C."""

    def configured(parts: Any) -> Any:
        configuration, owner = Configuration.of(parts), None
        if configuration is None and type(parts) is tuple and 2 < len(parts) < 5:
            owner = parts[2]
            read = config_key.readers.get(type(owner))
            if read is None:
                return None
            try:
                configuration = Configuration.of((*parts[:2], read(owner), *parts[3:]))
            except Exception:  # noqa: BLE001 (the caller then reads the stream again, and raises the error)
                return None
        if configuration is None:
            return None
        launcher = launcher_class(images, name, where, configuration, None)
        return launcher if owner is None else LauncherWithStream(launcher, owner)

    return configured


class LauncherWithStream(ProcessLocal):
    """A launcher with the stream object of its stream, which it keeps alive: the object owns the stream.

    Attributes:
        owner: The stream object.
    """

    # A call finds the slot `__call__` in the class, and calls its value, the launcher. A method would be slower,
    # because reading an attribute takes long in a class with `__getattr__`.
    __slots__ = ("__call__", "owner")

    owner: object

    def __init__(self, launcher: ProcessLocal, owner: object) -> None:
        self.__call__ = launcher
        self.owner = owner

    def __reduce__(self) -> str | tuple[Any, ...]:
        launcher: object = self.__call__
        return launcher.__reduce__()

    def __getattr__(self, name: str) -> object:
        if name in LauncherWithStream.__slots__:  # a slot without a value
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)
        return getattr(self.__call__, name)

    def __repr__(self) -> str:
        return repr(self.__call__)
