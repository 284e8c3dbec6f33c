"""The launch: a kernel with its configuration, called with arguments.

There is one way through it: fast path -> `Loader.ready` -> `Loaded.select` -> `Loaded.device_kernel` ->
`Configuration.allow` -> `Driver.launch` -> what is learnt for the next launch.
"""

from __future__ import annotations

import os

import aotcuda
from aotcuda.runtime import ctypes
from aotcuda.runtime import driver as drivers
from aotcuda.runtime.loaded_library import again

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from aotcuda.runtime.arguments.overloads import Group, PackedOverload, Selection
    from aotcuda.runtime.driver import Device, Driver
    from aotcuda.runtime.fast import Records
    from aotcuda.runtime.fast.python import Bind, FastPath
    from aotcuda.runtime.launch_config import Configuration, Dimensions
    from aotcuda.runtime.loaded_library import DeviceKernel
    from aotcuda.runtime.loader import Loaded, Loader

_MOST_KEPT = 64
LEARNT_AT = 2
"""Which launch with arguments of some kind is the first that is learnt from: many kernels are launched only once."""


class Launcher:
    """A kernel with a launch configuration; call it with the kernel's arguments.

    Attributes:
        name: The kernel's name.
        where: The same with its module's.
        configuration: The configuration.
        quick: The fast path that took the last arguments: what it makes of these, the driver's code, or less than 0.
    """

    __slots__ = ("_learnt", "_loader", "_records", "_taught", "_verified", "configuration", "name", "quick", "where")

    def __init__(
        self, loader: Loader, name: str, where: str, configuration: Configuration, records: Records | None
    ) -> None:
        """Of a kernel that `loader` has; `records` is what the extension has learnt of it, None to go without."""
        self.name = name
        self.where = where
        self.configuration = configuration
        self._loader = loader
        self._records = records
        self._verified: set[DeviceKernel] = set()
        self.quick: FastPath = _decline
        # Fast paths, and what was learnt, by the context that they are for; 0 where that does not matter.
        self._learnt: dict[tuple[Group, int], FastPath] = {}
        self._taught: set[tuple[Group, int]] = set()

    if TYPE_CHECKING:

        def __call__(self, *args: Any, **_none: Any) -> None:
            """To type checkers: what a stub's class narrows down to the kernel's parameters."""

    else:

        def __call__(self, *args: object, **named: object) -> None:
            """Launch the kernel; it runs asynchronously, as every CUDA kernel does.

            Raises:
                ArgumentError: No packaged signature takes the arguments, or some are given by name.
                LaunchError: The GPU cannot take the configuration.
                RuntimeUnavailableError: There is no driver, no GPU, or no image for this GPU.
                StaleBuildError: The package is installed as editable and its sources were edited after the build.
                ForkError: The process forked after CUDA was started.
                CallbackError: A setup callback raised; the module is unloaded again, and the next launch starts anew.
                CudaError: The driver reports an error.
            """
            if named:
                self._refuse_names(named)
            code = self.quick(args)
            if code > 0:
                self.fail(code, args)
            elif code:
                self.launch(args)

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
        """The handle of the stream, 0 for the default one; None for the one that is current at the launch."""
        return self.configuration.stream

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory for each block."""
        return self.configuration.shared

    def launch(self, args: tuple[object, ...]) -> None:
        """As a call, where the fast path that took the last arguments does not take these."""
        again(self._launch, args)

    def _refuse_names(self, named: dict[str, object]) -> NoReturn:
        from aotcuda.runtime.arguments import mismatch  # noqa: PLC0415 (only errors come here)

        record = self._loader.launched.kernel(self.name)
        raise mismatch.by_name(self.where, f"{self.name}[grid, block]", record, named)

    def _launch(self, args: tuple[object, ...]) -> None:
        loader = self._loader
        loaded = loader.current
        if loaded is None or loader.asks or drivers.forked:
            loaded = loader.ready()
        group = loaded.table(self.name).group(args)
        fast = self._fast_path(loaded, group) if group is not None else None
        if fast is not None:
            code = fast(args)
            if code >= 0:
                self.quick = fast
                if code:
                    self.fail(code, args)
                return
        if os.environ.get("AOTCUDA_HOST_ARRAYS") and self._launch_copies(loaded, args):
            return
        selection = loaded.select(self.name, args, self.configuration.stream)
        self.submit(loaded, selection)
        if fast is None and group is not None:
            self.settle(loaded, group, selection[0], args)

    def settle(self, loaded: Loaded, group: Group, overload: PackedOverload, args: tuple[object, ...]) -> None:
        """After a launch: let the next ones with arguments like these take a fast path, if there can be one.

        `overload` was selected for `args`. Nothing is learnt from arguments that no selection has accepted.
        """
        if self._loader.asks or not group.is_of(overload):
            return
        if group.count() >= LEARNT_AT:
            self._learn(loaded, group, args)

    def submit(self, loaded: Loaded, selection: Selection) -> None:
        """Launch with arguments that were selected and packed already, and give their slot back.

        Raises:
            UnloadedError: The images, or those that the selection is of, were unloaded or replaced since.
        """
        overload, slot, _, pending, stream = selection
        library = loaded.library
        try:
            if not overload.live or self._loader.current is not loaded:  # from here on they stay: the slot is taken
                raise aotcuda.errors.UnloadedError.of(self.where)
            kernel = loaded.known_kernel(overload, library.device)
            if kernel is None or pending or self._needs_context(kernel):
                kernel = loaded.device_kernel(overload, self._enter(loaded, selection))
            self._verify(kernel)
            configuration = self.configuration.of(kernel)
            driver = library.driver
            if kernel.watch is not None:
                kernel.watch.clear(stream)
            if library.synchronous:
                from aotcuda.runtime import streams  # noqa: PLC0415 (few launches wait)

                problem = f"{self.where} was not launched, because what ran before it on its stream has failed"
                driver.check(streams.settle(driver, stream), problem)
            attributes = configuration.for_driver(stream, cooperative=kernel.cooperative)
            code = driver.launch(attributes, kernel.kernel, *overload.handed(slot))
            if code:
                self._recover(code, loaded, kernel, selection)
            if pending:
                from aotcuda.runtime import streams  # noqa: PLC0415 (most arrays are on the launch's stream)

                streams.order_launch(driver, pending, stream, self.where, launched=True)
            failed = streams.settle(driver, stream) if library.synchronous else 0
            if not failed and kernel.watch is not None:
                failed = kernel.watch.check(stream)
            if failed:
                from aotcuda.runtime import launch_problems  # noqa: PLC0415 (only errors come here)

                configuration = self.configuration.of(kernel)
                raise launch_problems.failed(self.where, failed, driver, kernel, selection, configuration)
        finally:
            overload.slots.append(slot)
            if self._loader.leaving:
                self._loader.sweep()

    def __reduce__(self) -> NoReturn:
        self.reduced()

    def reduced(self) -> NoReturn:
        """Say that it cannot be pickled: its stream, and what it has learnt, are this process's.

        Raises:
            TypeError: Always.
        """
        message = (
            f"{self.where} with a configuration belongs to its process; send the kernel, and write "
            "kernel[grid, block] where it is launched"
        )
        raise TypeError(message)

    def __repr__(self) -> str:
        stream = f", stream {self.stream:#x}" if self.stream is not None else ""
        shared = f", {self.shared} bytes of shared memory" if self.shared else ""
        return f"<{self.where} with grid {self.grid}, block {self.block}{stream}{shared}>"

    def fail(self, code: int, args: tuple[object, ...]) -> None:
        """Say why a launch by a fast path failed; only a thread without a context gets one, and a launch.

        Raises:
            CudaError: The driver reports an error.
            LaunchError: The stream does not exist any more.
        """
        loaded = self._loader.ready()
        driver = loaded.library.driver
        current = driver.current_device()
        if code == drivers.INVALID_CONTEXT and current is None:
            try:
                self.submit(loaded, loaded.select(self.name, args, self.stream))
            except aotcuda.errors.UnloadedError:
                self.launch(args)
            return
        stream = loaded.stream(self.name, args, self.stream)
        raise self._refused(code, driver, driver.devices[current or 0], stream, self.configuration)

    def _launch_copies(self, loaded: Loaded, args: tuple[object, ...]) -> bool:
        """Launch with copies of the host's arrays and records; False if the arguments have none, or none are wanted."""
        from aotcuda.runtime.arguments import host_arrays  # noqa: PLC0415 (few programs want it)

        numbers = host_arrays.wanted(args, loaded.table(self.name).overloads)
        if not numbers:
            return False
        self._loader.enter(loaded, ())
        with host_arrays.Copies(args, numbers, loaded.library.driver, self.where) as copies:
            self.launch(copies.args)
            copies.bring_back(loaded.stream(self.name, copies.args, self.stream))
        return True

    def _fast_path(self, loaded: Loaded, group: Group) -> FastPath | None:
        """The fast path for arguments of a group, if this launcher has one or can have it unasked."""
        library = loaded.library
        context = 0 if library.device >= 0 else library.driver.current_context()
        found = self._learnt.get((group, context))
        if found is not None or self._records is not None or library.device < 0 or self._loader.asks:
            return found
        if (group, context) in self._taught:
            return None
        # Another launcher of the kernel had such arguments; what it learnt from those checks these by itself.
        factory = loaded.fast_path(group, given=self.stream is not None)
        kernels = self._device_kernels(loaded, group, library.device) if factory is not None else None
        if factory is None or kernels is None:
            return None
        return self._bind(factory, loaded, (group, context), library.device, kernels)

    def _learn(self, loaded: Loaded, group: Group, args: tuple[object, ...]) -> None:
        """Make a fast path for arguments like these.

        None is for debug builds, nor with `AOTCUDA_SYNCHRONIZE`: these launches wait for the kernel.
        """
        library = loaded.library
        if library.synchronous:
            return
        context, device = 0, library.device
        if device < 0:  # there are several GPUs, or callbacks, which have to see each context
            context, device = library.driver.current_context(), library.driver.current_device() or 0
        if (group, context) in self._taught:
            return
        if library.callbacks is not None and not library.callbacks.has_seen(context):
            return  # a setup callback that launches; other threads have to wait for its end
        if len(self._taught) >= _MOST_KEPT:
            self._taught.clear()
            self._learnt.clear()
        self._taught.add((group, context))
        kernels = self._device_kernels(loaded, group, device)
        if kernels is None:
            return
        if self._records is not None and not any(map(self._is_for_python, kernels)):
            from aotcuda.runtime.fast import learning  # noqa: PLC0415 (many kernels are launched once)

            if learning.learn(self._records, library, group, kernels, args, self.shared):
                return
        factory = loaded.learn_fast_path(group, args, given=self.stream is not None)
        if factory is not None:
            self._bind(factory, loaded, (group, context), device, kernels)

    def _is_for_python(self, kernel: DeviceKernel) -> bool:
        """Whether the extension has no way to launch a kernel."""
        return kernel.cooperative or (kernel.fixed is not None and "cluster" in kernel.fixed)

    def _bind(
        self, factory: Bind, loaded: Loaded, key: tuple[Group, int], device: int, kernels: list[DeviceKernel]
    ) -> FastPath:
        """The Python path of a group and a context, for this launcher's configuration; no argument is asked."""
        ready = ctypes.c_void_p.from_param  # what ctypes would otherwise do at every call
        targets = [
            (self.configuration.of(kernel).on_streams(cooperative=kernel.cooperative), ready(kernel.kernel.value))
            for kernel in kernels
        ]
        fast = factory(loaded.library.driver.launch, targets, self.stream or 0, key[1], device)
        self.quick = self._learnt[key] = fast
        return fast

    def _device_kernels(self, loaded: Loaded, group: Group, device: int) -> list[DeviceKernel] | None:
        """The overloads of a group, ready to launch; None if any of them needs the general path."""
        found = []
        try:
            for overload in group.overloads:
                if loaded.is_compiled_elsewhere(overload, device):
                    return None  # looking it up could compile it
                kernel = loaded.device_kernel(overload, device)
                self._verify(kernel)
                if kernel.watch is not None or loaded.known_kernel(overload, device) is not kernel:
                    return None  # the latter has callbacks of its own, which have to see each context
                found.append(kernel)
        except aotcuda.errors.AotcudaError:  # of an overload that was not the one launched: who launches it is told
            return None
        return found

    def _enter(self, loaded: Loaded, selection: Selection) -> int:
        """Enter a context, check where the arrays are, and order the streams that they are on before this launch's."""
        overload, _, values, pending, stream = selection
        library, places = loaded.library, overload.addresses_of(values)
        driver, callbacks = library.driver, library.callbacks
        if callbacks is not None or len(driver.devices) > 1:
            from aotcuda.runtime import launch_problems  # noqa: PLC0415 (most launches have one GPU, and none)
        if callbacks is not None:
            launch_problems.check_capture(self.where, self._loader.source.name, callbacks, driver, stream)
        device = self._loader.enter(loaded, places)
        if len(driver.devices) > 1:
            launch_problems.check_gpu(self.where, driver, device, places, stream)
        if pending:
            from aotcuda.runtime import streams  # noqa: PLC0415 (most arrays are on the launch's stream)

            streams.order_launch(driver, pending, stream, self.where, launched=False)
        return device

    def _recover(self, code: int, loaded: Loaded, kernel: DeviceKernel, selection: Selection) -> None:
        """Launch once more, in a context, if that is what was missing; otherwise raise the driver's error."""
        overload, slot, values, _, stream = selection
        driver = loaded.library.driver
        if code == drivers.INVALID_CONTEXT and driver.current_device() is None:
            self._loader.enter(loaded, overload.addresses_of(values))
            configuration = self.configuration.of(kernel).for_driver(stream, cooperative=kernel.cooperative)
            code = driver.launch(configuration, kernel.kernel, *overload.handed(slot))
        if code:
            raise self._refused(code, driver, kernel.device, stream, self.configuration.of(kernel))

    def _refused(self, code: int, driver: Driver, device: Device, stream: int, configured: Configuration) -> Exception:
        from aotcuda.runtime import launch_problems  # noqa: PLC0415 (only errors come here)

        return launch_problems.refused(self.where, code, driver, device, stream, configured)

    def _needs_context(self, kernel: DeviceKernel) -> bool:
        """Whether what a kernel's configuration asks for has to be held against a GPU that is current."""
        return kernel not in self._verified and self.configuration.of(kernel).attributes is not None

    def _verify(self, kernel: DeviceKernel) -> None:
        """Raise LaunchError if the GPU or the kernel cannot take this configuration; asked once for each."""
        if kernel not in self._verified:
            self.configuration.of(kernel).allow(kernel, self.where)
            self._verified.add(kernel)


def configurations(launchers: dict[object, Any]) -> Any:
    """What finds a kernel's launchers as `launchers` does, and those for stream objects by the streams' handles."""
    from aotcuda.runtime import fast as extension  # noqa: PLC0415 (who launches by `launch` needs none)

    found = extension.configurations(launchers)
    if found is None:
        from aotcuda.runtime.stream_objects import Configurations  # noqa: PLC0415 (where the extension is)

        found = Configurations(launchers)
    return found


def _decline(_args: tuple[object, ...]) -> int:
    """The fast path of a launcher that has none."""
    return -1
