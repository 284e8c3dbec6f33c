"""What a module launches now: its loaded images and the overloads of its kernels, which come and go together.

A `Loaded` is made when images are loaded, and is not changed into another one: where images are replaced or unloaded,
its overloads' validity flag is emptied, and whoever launches asks the loader for what there is now. What a launch needs
is found here in one direction: arguments -> overload -> kernel on a GPU. Where the images have nothing for either, the
JIT fallback is asked.
"""

from __future__ import annotations

from _thread import RLock

from aotcuda import lazy_errors as errors
from aotcuda.runtime import driver as drivers
from aotcuda.runtime.arguments import arrays
from aotcuda.runtime.arguments.overloads import OverloadTable
from aotcuda.runtime.arguments.views import UnreadableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from aotcuda.errors import AotcudaError, ArgumentError
    from aotcuda.manifest import Manifest, Outline
    from aotcuda.runtime.arguments.overloads import Group, PackedOverload, Selection
    from aotcuda.runtime.fast.python import Bind, FastPaths
    from aotcuda.runtime.images.choice import Choice
    from aotcuda.runtime.jit.fallback import Case, Fallback
    from aotcuda.runtime.jit.sources import Sources
    from aotcuda.runtime.loaded_library import DeviceKernel, LoadedLibrary

    class OnDemand(Protocol):
        """What makes the JIT fallback when it is first asked for it; `aotcuda.runtime.loader` has it."""

        def get(self) -> Fallback:
            """The fallback."""


class Loaded:
    """Loaded images, and the overloads of their kernels.

    Attributes:
        library: The images.
        outline: The manifest that describes them.
        sources: What they were compiled from, where the JIT fallback made them because sources were edited; else None.
        live: The validity flag of fast paths: one item, until the images are out of use or the process forks.
    """

    def __init__(
        self, library: LoadedLibrary, outline: Outline, fallback: OnDemand, sources: Sources | None = None
    ) -> None:
        self.library = library
        self.outline = outline
        self.sources = sources
        self.live = drivers.live_mark()
        self._fallback = fallback
        self._lock = RLock()  # of what is compiled for more signatures
        self._making = RLock()
        self._tables: dict[str, OverloadTable] = {}
        self._wider: dict[Case, OverloadTable] = {}
        self._cases: dict[PackedOverload, Case] = {}  # of the overloads that these images do not hold on any GPU
        self._kernels: dict[tuple[PackedOverload, int], DeviceKernel] = {}
        # Those of libraries with callbacks of their own, which have to see each context.
        self._guests: dict[tuple[PackedOverload, int], tuple[LoadedLibrary, DeviceKernel]] = {}
        self._fast: FastPaths | None = None
        self._blocks: dict[tuple[Group, int], int] = {}

    def table(self, name: str) -> OverloadTable:
        """The overloads of a kernel that the images hold.

        Raises:
            LaunchError: They hold no such kernel: it is not in the sources any more.
        """
        found = self._tables.get(name)
        if found is None:
            where = self._where(name)
            record = self.outline.kernel(name)
            if record is None:
                message = f"{where} cannot be launched: the module has no such kernel any more"
                raise errors.LaunchError(message)
            with self._making:
                found = self._tables.get(name)
                if found is None:
                    found = self._tables[name] = OverloadTable(record, where, self.live)
        return found

    def select(self, name: str, args: tuple[object, ...], given: int | None) -> Selection:
        """The overload of a kernel for these arguments, and the arguments packed for it; see `OverloadTable.select`.

        Args:
            name: The kernel's.
            args: The arguments.
            given: The handle of the launch's stream, None for the current one.

        Raises:
            ArgumentError: No overload takes the arguments, or one of them cannot be read.
        """
        table = self.table(name)
        stream = self.stream(name, args, given)
        selection = table.select(args, stream)
        if selection is None:
            selection = self._select_wider(name, table, args, stream)
            if selection is None:
                raise table.refusal(args)
            table.keep(args, selection[0])
        return selection

    def stream(self, name: str, args: tuple[object, ...], given: int | None) -> int:
        """The handle of a launch's stream: the one that was given, else that which is current for these arguments.

        Raises:
            ArgumentError: An argument cannot be read.
        """
        if given is not None:
            return given
        device = self.library.device if self.library.device >= 0 else self.library.driver.current_device()
        try:
            return arrays.current_stream(args, device)
        except MemoryError:
            raise
        except Exception as error:
            raise self.table(name).unreadable(args, error) from error

    def device_kernel(self, overload: PackedOverload, device: int) -> DeviceKernel:
        """An overload on a GPU; compiled where the images have nothing for it.

        Raises:
            RuntimeUnavailableError: Nothing that is packaged runs on that GPU, and the fallback may not or cannot
                compile it.
            CudaError: The driver does not find the kernel in the image, or cannot load it.
        """
        found = self._kernels.get((overload, device))
        if found is not None:
            return found
        case = self._cases.get(overload)
        if case is not None or not self.library.has_image(device):
            return self._compiled_kernel(overload, case, device, self.library.choices[device])
        found = self._kernels[overload, device] = self.library.device_kernel(overload, device)
        return found

    def known_kernel(self, overload: PackedOverload, device: int) -> DeviceKernel | None:
        """What `device_kernel` gave before, if launches may take it from now on without asking; else None."""
        return self._kernels.get((overload, device))

    def is_compiled_elsewhere(self, overload: PackedOverload, device: int) -> bool:
        """Whether asking for an overload on a GPU could compile it first."""
        return overload in self._cases and (overload, device) not in self._kernels

    def fast_path(self, group: Group, *, given: bool) -> Bind | None:
        """The factory of a group's fast-path functions in Python, if one was learnt; see `FastPaths.learn`."""
        return self._fast.known(group, given=given) if self._fast is not None else None

    def learn_fast_path(self, group: Group, args: tuple[object, ...], *, given: bool) -> Bind | None:
        """The same, made for arguments of these types; None if there can be none."""
        fast = self._fast
        if fast is None:
            from aotcuda.runtime.fast.python import FastPaths  # noqa: PLC0415 (after the first launch)

            with self._making:  # two threads that made one each would not share what they learn
                fast = self._fast = self._fast or FastPaths(self.library.driver, one_context=self.library.device >= 0)
        return fast.learn(group, args, given=given)

    def block(self, group: Group, shared: int) -> int | None:
        """The block size of most occupancy for a group of one overload, if `keep_block` has noted it."""
        return self._blocks.get((group, shared))

    def keep_block(self, group: Group, shared: int, block: int) -> None:
        """Note the block size of most occupancy with so many bytes of dynamic shared memory."""
        self._blocks[group, shared] = block

    def retire(self) -> None:
        """Make every fast path decline from now on: the images are out of use."""
        drivers.retire(self.live)

    def is_idle(self) -> bool:
        """Whether no launch is under way; it stays so once they are retired."""
        tables = [*self._tables.copy().values(), *self._wider.copy().values()]
        return not any(self.live.flights) and all(table.is_idle() for table in tables)

    def _select_wider(self, name: str, table: OverloadTable, args: tuple[object, ...], stream: int) -> Selection | None:
        """What the JIT fallback has for arguments that no overload of the images takes, if it may have anything."""
        if not table.takes(len(args)):
            return None
        from aotcuda.runtime.arguments import signature as signatures  # noqa: PLC0415 (few launches come here)

        try:
            signature = signatures.of(args) if self._fallback.get().may_widen() else None
        except UnreadableError as error:
            raise table.unreadable(args, error) from error.__cause__
        if signature is None:
            return None
        case = (name, signature)
        wider = self._wider.get(case)
        if wider is None:
            with self._lock:
                wider = self._wider.get(case) or self._widen(name, case, table.refusal(args))
        selection = wider.select(args, stream)
        if selection is None:
            raise wider.refusal(args)
        return selection

    def _widen(self, name: str, case: Case, cause: ArgumentError) -> OverloadTable:
        driver = self.library.driver
        device = self.library.device if self.library.device >= 0 else driver.current_device() or 0
        compiled = self._fallback.get().compiled(case, driver.devices[device], cause)
        (record,) = compiled.manifest["kernels"]
        table = OverloadTable(record, self._where(name), self.live)
        self._cases.update(dict.fromkeys(table.overloads, case))
        self._wider[case] = table
        return table

    def _compiled_kernel(
        self, overload: PackedOverload, case: Case | None, device: int, choice: Choice
    ) -> DeviceKernel:
        """An overload on a GPU that the images have nothing for."""
        guest = self._guests.get((overload, device))
        if guest is None:
            gpu = self.library.driver.devices[device]
            cause = self._missing(case, choice)
            compiled = self._fallback.get().compiled(case or (None, None), gpu, cause)
            _check_same(overload, compiled.manifest, str(gpu))
            guest = compiled.library, compiled.library.device_kernel(overload, device)
            if compiled.library.callbacks is None:
                self._kernels[overload, device] = guest[1]
                return guest[1]
            self._guests[overload, device] = guest
        library, kernel = guest
        library.set_up()
        return kernel

    def _missing(self, case: Case | None, choice: Choice) -> AotcudaError:
        """Why an overload has to be compiled for a GPU."""
        if case is None:
            return choice.error(self.outline.head["module"])
        kernel, signature = case
        what = f"{self.outline.head['module']}.{kernel} for {signature}"
        return errors.NoImageError(f"{what} is not packaged, and was compiled for other GPUs than {choice.gpu}")

    def _where(self, name: str) -> str:
        return f"{self.outline.head['module']}.{name}"


def _check_same(overload: PackedOverload, manifest: Manifest, gpu: str) -> None:
    """Raise ArgumentError unless the JIT build lays this overload's arguments out as the packaged one does."""
    symbol = overload.record["symbol"]
    for kernel in manifest["kernels"]:
        for other in kernel["overloads"]:
            if other["symbol"] == symbol:
                if other["parameters"] == overload.parameters:
                    return
                message = (
                    f"{manifest['module']}.{kernel['name']}: what was compiled for {gpu} takes its arguments otherwise "
                    "than the packaged images, because the installed compiler is another one; install the versions "
                    f"that the wheel was built with: {manifest['toolchain']}"
                )
                raise errors.ArgumentError(message)
