"""The general path of a launch: the definition of what one does, which fast paths leave out where they can.

`Loader.ready` -> `Loaded.select` -> `Loaded.device_kernel` -> `Configuration.allow` -> `Driver.launch` -> what is
learnt for the next launch.
"""

from __future__ import annotations

import os

import aotcuda
from aotcuda.runtime import driver as drivers
from aotcuda.runtime.launch_config import allow_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from aotcuda.runtime.arguments.overloads import Group, PackedOverload, Selection
    from aotcuda.runtime.driver import Device, Driver, Mark
    from aotcuda.runtime.fast import Records
    from aotcuda.runtime.fast.python import FastPath
    from aotcuda.runtime.launch_config import Configuration
    from aotcuda.runtime.learnt import Learnt
    from aotcuda.runtime.loaded import Loaded
    from aotcuda.runtime.loaded_library import DeviceKernel
    from aotcuda.runtime.loader import Loader

LEARNT_AT = 2
"""Which launch with arguments of some kind is the first that is learnt from: many kernels are launched only once."""


class GeneralPath:
    """The general path of one launcher, by which a launch goes that no fast path takes.

    It does not know its launcher, so that neither outlives whoever holds them: it gives back the fast path, if there is
    one now, that the launcher's next call may begin with.
    """

    __slots__ = ("_configuration", "_learnt", "_loader", "_name", "_of", "_records", "_verified", "_where")

    def __init__(
        self, loader: Loader, name: str, where: str, configuration: Configuration, records: Records | None
    ) -> None:
        """Of a kernel that `loader` has and users know as `where`; `records` as for `Launcher`."""
        self._configuration = configuration
        self._loader = loader
        self._name = name
        self._records = records
        self._verified: set[DeviceKernel] = set()
        self._where = where
        self._learnt: Learnt | None = None
        self._of: Mark | None = None  # the images that these two are of

    def launch(self, args: tuple[object, ...]) -> FastPath | None:
        """Launch. Errors as for a call of `Launcher`, and UnloadedError where nothing was launched for that."""
        loader = self._loader
        loaded = loader.current
        if loaded is None or loader.asks or drivers.forked:
            loaded = loader.ready()
        if loaded.live is not self._of:
            self._forget(loaded.live)
        group = loaded.table(self._name).group(args)
        fast = self._fast_path(loaded, group) if group is not None else None
        if fast is not None:
            code = fast(args)
            if code > 0:
                self.fail(code, args)
            if code >= 0:
                return fast
        if os.environ.get("AOTCUDA_HOST_ARRAYS"):
            kernel, given = (self._name, self._where), self._configuration.stream
            if launch_copies(loader, loaded, kernel, given, args, self.launch):
                return None
        selection = loaded.select(self._name, args, self._configuration.stream)
        self.submit(loaded, selection)
        return self.settle(loaded, group, selection[0], args) if fast is None and group is not None else None

    def _forget(self, live: Mark) -> None:
        """Drop what was learnt of other images, which are gone or will be; launches of them do not ask for it again."""
        self._of = live
        self._learnt = None
        self._verified = set()

    def settle(
        self, loaded: Loaded, group: Group, overload: PackedOverload, args: tuple[object, ...]
    ) -> FastPath | None:
        """After a launch: let the next ones with arguments like these take a fast path, if there can be one.

        `overload` was selected for `args`. Nothing is learnt from arguments that no selection has accepted.
        """
        if self._loader.asks or not group.is_of(overload) or group.count() < LEARNT_AT:
            return None
        return self._paths().learn(loaded, group, args)

    def submit(self, loaded: Loaded, selection: Selection) -> None:
        """Launch with arguments that were selected and packed already, and give their slot back.

        Raises:
            UnloadedError: The images, or those that the selection is of, were unloaded or replaced since.
        """
        overload, slot, _, pending, stream = selection
        library = loaded.library
        if loaded.live is not self._of:
            self._forget(loaded.live)
        try:
            if not overload.live or self._loader.current is not loaded:  # from here on they stay: the slot is taken
                raise aotcuda.errors.UnloadedError.of(self._where)
            kernel = loaded.known_kernel(overload, library.device)
            if kernel is None or pending or self._needs_context(kernel):
                device = self._enter(loaded, selection)
                kernel = loaded.device_kernel(overload, device, (stream, *pending), self._where)
            configuration = allow_once(self._configuration, kernel, self._where, self._verified)
            driver = library.driver
            if pending:  # last of what may be refused: a stream that joins a capture has to come back to it
                from aotcuda.runtime import streams  # noqa: PLC0415 (most arrays are on the launch's stream)

                streams.order_launch(driver, pending, stream, self._where, launched=False)
            if kernel.watch is not None:
                kernel.watch.clear(stream)
            if library.synchronous:
                from aotcuda.runtime import streams  # noqa: PLC0415 (few launches wait)

                problem = f"{self._where} was not launched, because what ran before it on its stream has failed"
                driver.check(streams.settle(driver, stream), problem)
            attributes = configuration.for_driver(stream, cooperative=kernel.cooperative)
            code = driver.launch(attributes, kernel.kernel, *overload.handed(slot))
            if code:
                self._recover(code, loaded, kernel, selection)
            if pending:
                streams.order_launch(driver, pending, stream, self._where, launched=True)
            failed = streams.settle(driver, stream) if library.synchronous else 0
            if not failed and kernel.watch is not None:
                failed = kernel.watch.check(stream)
            if failed:
                from aotcuda.runtime import launch_problems  # noqa: PLC0415 (only errors come here)

                configuration = self._configuration.of(kernel)
                raise launch_problems.failed(self._where, failed, driver, kernel, selection, configuration)
        finally:
            overload.slots.append(slot)
            if self._loader.leaving:
                self._loader.sweep()

    def fail(self, code: int, args: tuple[object, ...]) -> None:
        """Say why a launch by a fast path failed; only a thread without a context gets one, and a launch.

        Where it is the streams that wait for the launch which failed, they are made to wait once more.

        Raises:
            ArgumentError: A stream that has to wait for the launch does not exist any more.
            CudaError: The driver reports an error.
            LaunchError: The stream does not exist any more.
            UnloadedError: It was to be launched, and its images were unloaded.
        """
        loaded = self._loader.ready()
        driver = loaded.library.driver
        if code > drivers.AFTER:
            self._order_after(loaded, args)
            return
        current = driver.current_device()
        if code == drivers.INVALID_CONTEXT and current is None:
            self.submit(loaded, loaded.select(self._name, args, self._configuration.stream))
            return
        stream = loaded.stream(self._name, args, self._configuration.stream)
        configured, kernel = self._configuration, None
        if configured.by_grid or code == drivers.INVALID_VALUE:  # for which the kernel may be why
            kernel = loaded.device_kernel(loaded.check(self._name, args, stream), current or 0)
            configured = configured.of(kernel)
        raise self._refused(code, driver, driver.devices[current or 0], stream, configured, kernel)

    def _order_after(self, loaded: Loaded, args: tuple[object, ...]) -> None:
        """Have the streams wait that a fast path could not make wait for its launch, or say why they do not."""
        from aotcuda.runtime import streams  # noqa: PLC0415 (only errors come here)

        overload, slot, _, pending, stream = loaded.select(self._name, args, self._configuration.stream)
        overload.slots.append(slot)
        streams.order_launch(loaded.library.driver, pending, stream, self._where, launched=True)

    def _fast_path(self, loaded: Loaded, group: Group) -> FastPath | None:
        """The fast path for arguments of a group, if this launcher has one or can have it unasked."""
        if self._learnt is None:
            is_known = self._records is None and group.fast.get(self._configuration.stream is not None)
            if not is_known:
                return None
        return None if self._loader.asks else self._paths().known(loaded, group)

    def _paths(self) -> Learnt:
        found = self._learnt
        if found is None:
            from aotcuda.runtime.learnt import Learnt  # noqa: PLC0415 (many kernels are launched once)

            found = self._learnt = Learnt(self._configuration, self._records, self._verified, self._where)
        return found

    def _enter(self, loaded: Loaded, selection: Selection) -> int:
        """Enter a context, and check where the arrays are."""
        overload, _, values, pending, stream = selection
        library, places = loaded.library, overload.addresses_of(values)
        driver = library.driver
        device = self._loader.enter(loaded, places, (stream, *pending), self._where)
        if len(driver.devices) > 1:
            from aotcuda.runtime import launch_problems  # noqa: PLC0415 (most launches have one GPU)

            launch_problems.check_gpu(self._where, driver, device, places, stream)
        return device

    def _recover(self, code: int, loaded: Loaded, kernel: DeviceKernel, selection: Selection) -> None:
        """Launch once more, in a context, if that is what was missing; otherwise raise the driver's error."""
        overload, slot, values, pending, stream = selection
        driver = loaded.library.driver
        if code == drivers.INVALID_CONTEXT and driver.current_device() is None:
            self._loader.enter(loaded, overload.addresses_of(values), (stream, *pending), self._where)
            configuration = self._configuration.of(kernel).for_driver(stream, cooperative=kernel.cooperative)
            code = driver.launch(configuration, kernel.kernel, *overload.handed(slot))
        if code:
            raise self._refused(code, driver, kernel.device, stream, self._configuration.of(kernel), kernel)

    def _refused(
        self,
        code: int,
        driver: Driver,
        device: Device,
        stream: int,
        configured: Configuration,
        kernel: DeviceKernel | None = None,
    ) -> Exception:
        from aotcuda.runtime import launch_problems  # noqa: PLC0415 (only errors come here)

        return launch_problems.refused(self._where, code, driver, device, stream, configured, kernel)

    def _needs_context(self, kernel: DeviceKernel) -> bool:
        """Whether what a kernel's configuration asks for has to be held against a GPU that is current."""
        return kernel not in self._verified and self._configuration.of(kernel).attributes is not None


def launch_copies(
    loader: Loader,
    loaded: Loaded,
    kernel: tuple[str, str],
    given: int | None,
    args: tuple[object, ...],
    launch: Callable[[tuple[object, ...]], object],
) -> bool:
    """Launch with copies of the host's arrays and records; False if the arguments have none, or none are wanted.

    Args:
        loader: The module's.
        loaded: What it has loaded.
        kernel: The kernel's name, and the same with its module's.
        given: The handle of the launch's stream, None for the current one.
        args: The arguments.
        launch: What launches with others in their place.
    """
    from aotcuda.runtime.arguments import host_arrays  # noqa: PLC0415 (few programs want it)

    name, where = kernel
    numbers = host_arrays.wanted(args, loaded.table(name).overloads)
    if not numbers:
        return False
    loader.enter(loaded, (), [loaded.stream(name, args, given)], where)
    with host_arrays.Copies(args, numbers, loaded.library.driver, where) as copies:
        launch(copies.args)
        copies.bring_back(loaded.stream(name, copies.args, given))
    return True
