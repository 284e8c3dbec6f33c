"""The launch: a kernel with its configuration, called with arguments."""

from __future__ import annotations

import ctypes
import os

from aotcuda.errors import AotcudaError
from aotcuda.runtime import driver as drivers
from aotcuda.runtime import launch_config as configuration
from aotcuda.runtime import launch_limits as limits
from aotcuda.runtime import streams, synchronize
from aotcuda.runtime.images.library import UnloadedError, again

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from aotcuda.runtime.arguments.layout import Plan
    from aotcuda.runtime.arguments.overloads import Group, Selection
    from aotcuda.runtime.driver import Device
    from aotcuda.runtime.fast.python import Quick
    from aotcuda.runtime.images.program import Entry, Program
    from aotcuda.runtime.kernel import Kernel
    from aotcuda.runtime.launch_limits import Dimensions

_COOPERATIVE_TOO_LARGE = 720
_MOST_KEPT = 64


class Launcher:
    """A kernel with a launch configuration; call it with the kernel's arguments.

    Attributes:
        kernel: The kernel.
        grid: Blocks of the grid in x, y and z.
        block: Threads of a block in x, y and z.
        stream: The handle of the stream, 0 for the default one.
        shared: Bytes of dynamic shared memory for each block.
        front: What stands in front of this one and is called first; None without the accelerator.
    """

    __slots__ = (
        "_chains",
        "_configurations",
        "_quick",
        "_taught",
        "_verified",
        "block",
        "front",
        "grid",
        "kernel",
        "shared",
        "stream",
    )

    def __init__(self, kernel: Kernel, grid: Dimensions, block: Dimensions, stream: int, shared: int) -> None:
        self.kernel = kernel
        self.grid = grid
        self.block = block
        self.stream = stream
        self.shared = shared
        self._configurations: dict[bool, object] = {}  # by whether it is for a cooperative launch
        self._verified: set[object] = set()
        self._quick: Quick = _decline  # the one that took the last arguments
        # Quick paths, and what was learnt, by the context that they are for; 0 where that does not matter.
        self._chains: dict[tuple[Group, int], Quick] = {}
        self._taught: set[tuple[Group, int]] = set()
        self.front: Any = None

    def __call__(self, *args: object) -> None:
        """Launch the kernel; it runs asynchronously, as every CUDA kernel does.

        Raises:
            ArgumentError: No packaged signature takes the arguments.
            LaunchError: The GPU cannot take the configuration.
            RuntimeUnavailableError: There is no driver, no GPU, or no image for this GPU.
            StaleBuildError: The package is installed as editable and its sources were edited after the build.
            ForkError: The process forked after CUDA was started.
            CallbackError: A setup callback raised; the module is unloaded again, and the next launch starts anew.
            CudaError: The driver reports an error.
        """
        code = self._quick(args)
        if not code:
            return
        if code > 0:
            self.fail(code, args)
            return
        self.launch(args)

    def launch(self, args: tuple[object, ...]) -> None:
        """As a call, where the quick path that took the last arguments does not take these."""
        again(self._launch, args)

    def _launch(self, args: tuple[object, ...]) -> None:
        kernel = self.kernel
        module = kernel.module
        program = module.program
        if program is None or module.editable or drivers.forked:
            program = module.ready()
        group = kernel.group(args)
        chain = None
        if group is not None:
            context = 0 if program.device >= 0 else program.driver.current_context()
            chain = self._chains.get((group, context))
            if chain is None and group.quick and self.front is None and program.device >= 0 and not module.editable:
                # Another launcher of the kernel had such arguments; what it learnt from those checks these by itself.
                chain = self._bind(program, group, context, program.device)
        if chain is not None:
            code = chain(args)
            if code >= 0:
                self._quick = chain
                if code:
                    self.fail(code, args)
                return
        if os.environ.get("AOTCUDA_HOST_ARRAYS"):
            from aotcuda.runtime.arguments import host_arrays as host  # noqa: PLC0415 (few programs set it)

            if host.launch(self, program, args):
                return
        selection = kernel.select(args, self.stream)
        self.submit(program, selection)
        if chain is None and group is not None:
            self.settle(program, group, selection[0], args)

    def settle(self, program: Program, group: Group, plan: Plan, args: tuple[object, ...]) -> None:
        """After a launch: let the next ones with arguments like these take a quick path, if there can be one.

        `plan` was selected for `args`. Nothing is learnt from arguments that no selection has accepted.
        """
        if not self.kernel.module.editable and group.is_of(plan):
            self._learn(program, group, args)

    def submit(self, program: Program, selection: Selection) -> None:
        """Launch with arguments that were selected and packed already, and give their slot back.

        Raises:
            UnloadedError: The images of `program` or of the selection were unloaded or replaced since.
        """
        plan, slot, _, pending = selection
        module = self.kernel.module
        try:
            if not plan.live or module.program is not program:  # from here on they stay: the slot is taken
                raise UnloadedError.of(str(self.kernel))
            entry = plan.entries.get(program.device)
            if entry is None or pending:
                entry = program.entry(plan, self._enter(program, selection))
            self._verify(entry, plan)
            if entry.watch is not None:
                entry.watch.clear(self.stream)
            if program.synchronous:
                synchronize.before(self, program.driver)
            code = program.driver.launch(self._configuration(entry), entry.kernel, None, slot[1])
            if code:
                self._recover(code, program, entry, selection)
            if program.synchronous:
                synchronize.after(self, program.driver, entry, plan, slot[0].raw)
            if entry.watch is not None:
                entry.watch.check(self, entry, plan, slot[0].raw)
        finally:
            plan.slots.append(slot)
            if module.leaving:
                module.sweep()

    def __repr__(self) -> str:
        stream = f", stream {self.stream:#x}" if self.stream else ""
        shared = f", {self.shared} bytes of shared memory" if self.shared else ""
        return f"<{self.kernel} with grid {self.grid}, block {self.block}{stream}{shared}>"

    def describe(self) -> str:
        """The configuration in words."""
        return (
            f"grid {self.grid}, block {self.block}, stream {self.stream:#x} and {self.shared} bytes of dynamic shared "
            "memory"
        )

    def fail(self, code: int, args: tuple[object, ...]) -> None:
        """Say why a launch by a quick path failed; only a thread without a context gets one, and a launch.

        Raises:
            CudaError: The driver reports an error.
        """
        program = self.kernel.module.ready()
        current = program.driver.current_device()
        if code == drivers.INVALID_CONTEXT and current is None:
            try:
                self.submit(program, self.kernel.select(args, self.stream))
            except UnloadedError:
                self.launch(args)
            return
        raise self._error(code, program, program.driver.devices[current or 0])

    def _learn(self, program: Program, group: Group, args: tuple[object, ...]) -> None:
        """Make a quick path for arguments like these.

        None is for debug builds, nor with `AOTCUDA_SYNCHRONIZE`: these launches wait for the kernel.
        """
        if program.synchronous:
            return
        context, device = 0, program.device
        if device < 0:  # there are several GPUs, or callbacks, which have to see each context
            context, device = program.driver.current_context(), program.driver.current_device() or 0
        if (group, context) in self._taught:
            return
        if program.callbacks is not None and not program.callbacks.has_seen(context):
            return  # a setup callback that launches; other threads have to wait for its end
        if len(self._taught) >= _MOST_KEPT:
            self._taught.clear()
            self._chains.clear()
        self._taught.add((group, context))
        entries = self._entries(program, group, device)
        if entries is None:
            return
        if self.front is not None and not any(entry.cooperative for entry in entries):
            from aotcuda.runtime.fast import extension as accelerate  # noqa: PLC0415 (after the first launch)

            if accelerate.learn(self, program, group, entries, args):
                return
        if group.quick is None:
            group.quick = self.kernel.specialise(program, group, args) or False
        self._bind(program, group, context, device, entries)

    def _bind(
        self, program: Program, group: Group, context: int, device: int, entries: list[Entry] | None = None
    ) -> Quick | None:
        """The Python path of a group for this launcher's configuration, if it has one; no argument is asked."""
        if entries is None:
            if (group, context) in self._taught:
                return None
            entries = self._entries(program, group, device)
        if entries is None or not callable(group.quick):
            return None
        same = (0, 1) if self.stream in (0, 1) else (self.stream,)
        start = program.launch_on(self.stream, context)
        ready = ctypes.c_void_p.from_param  # what ctypes would otherwise do at every call
        targets = [(self._configuration(entry), ready(entry.kernel.value)) for entry in entries]
        quick: Quick = group.quick(start, targets, same, context, device)
        self._quick = self._chains[group, context] = quick
        return quick

    def _entries(self, program: Program, group: Group, device: int) -> list[Entry] | None:
        """The overloads of a group, ready to launch; None if one of them may not be launched without more ado."""
        entries = []
        try:
            for plan in group.plans:
                if id(plan) in program.late and device not in plan.entries:
                    return None  # looking it up could compile it
                entry = program.entry(plan, device)
                self._verify(entry, plan)
                if entry.watch is not None or plan.entries.get(device) is not entry:
                    return None  # the latter has callbacks of its own, which have to see each context
                entries.append(entry)
        except AotcudaError:  # of an overload that was not the one launched; a launch that takes it will say so
            return None
        return entries

    def _configuration(self, entry: Entry) -> object:
        found = self._configurations.get(entry.cooperative)
        if found is None:
            found = configuration.make(self.grid, self.block, self.shared, self.stream, cooperative=entry.cooperative)
            self._configurations[entry.cooperative] = found
        return found

    def _enter(self, program: Program, selection: Selection) -> int:
        """Enter a context, check where the arrays are, and order the streams that they are on before this launch's."""
        plan, _, values, pending = selection
        places = addresses(plan, values)
        device = self.kernel.module.enter(program, places)
        if len(program.driver.devices) > 1:
            program.check_reach(places, device, str(self.kernel))
            program.check_stream(self.stream, device, str(self.kernel))
        for ready in {item for item in pending if isinstance(item, int)}:
            if not streams.same(ready, self.stream):
                streams.order(program.driver, ready, self.stream)
        return device

    def _recover(self, code: int, program: Program, entry: Entry, selection: Selection) -> None:
        """Launch once more, in a context, if that is what was missing; otherwise raise the driver's error."""
        plan, slot, values, _ = selection
        if code == drivers.INVALID_CONTEXT and program.driver.current_device() is None:
            self.kernel.module.enter(program, addresses(plan, values))
            code = program.driver.launch(self._configuration(entry), entry.kernel, None, slot[1])
        if code:
            raise self._error(code, program, entry.device)

    def _error(self, code: int, program: Program, device: Device) -> Exception:
        error = program.driver.error(code, f"{self.kernel} could not be launched on {device} with {self.describe()}")
        if code == _COOPERATIVE_TOO_LARGE:
            error.args = (f"{error}; a cooperative grid must fit on the GPU at once: launch fewer or smaller blocks",)
        return error

    def _verify(self, entry: Entry, plan: Plan) -> None:
        """Raise LaunchError if the GPU or the kernel cannot take this configuration; asked once for each."""
        if entry not in self._verified:
            limits.check(self, entry, plan)
            self._verified.add(entry)


class Held:
    """A launcher, and the stream object that its stream's handle came from: a stream lives as long as that does."""

    __slots__ = ("_launcher", "_owner")

    def __init__(self, launcher: Launcher, owner: object) -> None:
        self._launcher = launcher
        self._owner = owner

    def __call__(self, *args: object) -> None:
        """As for `Launcher`."""
        self._launcher(*args)

    def __getattr__(self, name: str) -> object:
        return getattr(self._launcher, name)

    def __repr__(self) -> str:
        return repr(self._launcher)


def _decline(_args: tuple[object, ...]) -> int:
    """The quick path of a launcher that has none."""
    return -1


def addresses(plan: Plan, values: list[object]) -> list[int]:
    """The addresses of the arrays among a block's numbers."""
    return [value for index in plan.addresses if isinstance(value := values[index], int)]
