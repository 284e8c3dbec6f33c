"""What is launched of a module while its images stay loaded: their overloads, and their kernels on each GPU."""

# A `Loaded` is made when images are loaded, and is not changed into another one: where images are replaced or unloaded,
# its overloads' validity flag is emptied, and whoever launches asks the loader for what there is now. What a launch
# needs is found in it in one direction: arguments -> overload -> kernel on a GPU. Where the images have nothing for
# either, the JIT fallback is asked, through `aotcuda.runtime.jit.beside`.

from __future__ import annotations

import os

import aotcuda
from aotcuda.runtime import driver as drivers
from aotcuda.runtime import new_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aotcuda.manifest import Manifest
    from aotcuda.runtime.arguments.overloads import Group, OverloadTable, PackedOverload, Selection
    from aotcuda.runtime.driver import Mark
    from aotcuda.runtime.fast.python import Bind, FastPaths
    from aotcuda.runtime.jit.beside import Beside
    from aotcuda.runtime.jit.fallback import Fallback
    from aotcuda.runtime.jit.sources import Sources
    from aotcuda.runtime.loaded_library import DeviceKernel, LoadedLibrary

    MakesFallback = Callable[[], Fallback]


class Loaded:
    """Loaded images, and the overloads of their kernels.

    Attributes:
        library: The images.
        manifest: The manifest that describes them.
        kernels: The records of their kernels, by name.
        sources: What they were compiled from, where the JIT fallback made them because sources were edited; else None.
        live: The validity flag of fast paths: one item, until the images are out of use or the process forks.
    """

    def __init__(
        self,
        library: LoadedLibrary,
        manifest: Manifest,
        fallback: MakesFallback,
        live: Mark,
        sources: Sources | None = None,
    ) -> None:
        self.library = library
        self.manifest = manifest
        self.kernels = {kernel["name"]: kernel for kernel in manifest["kernels"]}
        self.sources = sources
        self.live = live
        self._fallback = fallback
        self._making = new_lock()
        self._tables: dict[str, OverloadTable] = {}
        self._beside: Beside | None = None
        self._kernels: dict[tuple[PackedOverload, int], DeviceKernel] = {}
        self._fast: FastPaths | None = None

    def table(self, name: str) -> OverloadTable:
        """The overloads of a kernel that the images hold.

        Raises:
            LaunchError: They hold no such kernel: it is not in the sources any more.
        """
        found = self._tables.get(name)
        if found is None:
            where = self._where(name)
            record = self.kernels.get(name)
            if record is None:
                message = f"{where} cannot be launched: the module has no such kernel any more"
                raise aotcuda.errors.LaunchError(message)
            from aotcuda.runtime.arguments.overloads import OverloadTable  # noqa: PLC0415 (an import needs none)

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
            selection = self._compiled().select(name, table, args, stream)
            if selection is None:
                raise table.refusal(args)
            table.keep(args, selection[0])
        return selection

    def check(self, name: str, args: tuple[object, ...], given: int | None) -> PackedOverload:
        """The overload that a launch with these arguments would take, which are checked alone; errors as for `select`.

        Arrays in the host's memory are taken where a launch would copy them.
        """
        if os.environ.get("AOTCUDA_HOST_ARRAYS"):
            from aotcuda.runtime.arguments import host_arrays  # noqa: PLC0415 (few programs want it)

            args = host_arrays.described(args, self.table(name).overloads)
        overload, slot, *_ = self.select(name, args, given)
        overload.slots.append(slot)
        return overload

    def stream(self, name: str, args: tuple[object, ...], given: int | None) -> int:
        """The handle of a launch's stream: the one that was given, else that which is current for these arguments.

        Raises:
            ArgumentError: An argument cannot be read.
        """
        if given is not None:
            return given
        from aotcuda.runtime.arguments import arrays  # noqa: PLC0415 (an import reads none)

        device = self.library.device if self.library.device >= 0 else self.library.driver.current_device()
        try:
            return arrays.current_stream(args, device)
        except (MemoryError, RecursionError):
            raise
        except Exception as error:
            raise self.table(name).unreadable(args, error) from error

    def device_kernel(
        self, overload: PackedOverload, device: int, concerned: Sequence[object] = (), where: str = ""
    ) -> DeviceKernel:
        """An overload on a GPU; compiled where the images have nothing for it.

        Args:
            overload: The overload.
            device: The GPU's ordinal.
            concerned: As for `Loader.enter`: what is compiled may come with setup callbacks of its own.
            where: As there.

        Raises:
            LaunchError: As there.
            RuntimeUnavailableError: Nothing that is packaged runs on that GPU, and the fallback may not or cannot
                compile it.
            CudaError: The driver does not find the kernel in the image, or cannot load it.
        """
        found = self._kernels.get((overload, device))
        if found is not None:
            return found
        is_elsewhere = self._beside is not None and self._beside.holds(overload)
        if is_elsewhere or not self.library.has_image(device):
            found, is_kept = self._compiled().kernel(overload, device, self.library.choices[device], concerned, where)
            if is_kept:
                self._kernels[overload, device] = found
            return found
        found = self._kernels[overload, device] = self.library.device_kernel(overload, device)
        return found

    def known_kernel(self, overload: PackedOverload, device: int) -> DeviceKernel | None:
        """What `device_kernel` gave before, if launches may take it from now on without asking; else None."""
        return self._kernels.get((overload, device))

    def is_compiled_elsewhere(self, overload: PackedOverload, device: int) -> bool:
        """Whether asking for an overload on a GPU could compile it first."""
        beside = self._beside
        return beside is not None and beside.holds(overload) and (overload, device) not in self._kernels

    def learn_fast_path(self, group: Group, args: tuple[object, ...], *, given: bool) -> Bind | None:
        """A factory of a group's fast-path functions in Python, for arguments of these types; see `FastPaths.learn`."""
        fast = self._fast
        if fast is None:
            from aotcuda.runtime.fast.python import FastPaths  # noqa: PLC0415 (after the first launch)

            with self._making:  # two threads that made one each would not share what they learn
                fast = self._fast = self._fast or FastPaths(self.library.driver, one_context=self.library.device >= 0)
        return fast.learn(group, args, given=given)

    def retire(self) -> None:
        """Make every fast path decline from now on: the images are out of use."""
        drivers.retire(self.live)

    def is_idle(self) -> bool:
        """Whether no launch is under way; it stays so once they are retired."""
        if self.live.is_in_flight() or not all(table.is_idle() for table in self._tables.copy().values()):
            return False
        return self._beside is None or self._beside.is_idle()

    def _compiled(self) -> Beside:
        """What the fallback has compiled beside the images."""
        if self._beside is None:
            from aotcuda.runtime.jit.beside import Beside  # noqa: PLC0415 (few programs ever need it)

            with self._making:
                if self._beside is None:
                    self._beside = Beside(self.manifest["module"], self.library, self._fallback(), self.live)
        return self._beside

    def _where(self, name: str) -> str:
        return f"{self.manifest['module']}.{name}"
