"""The kernels of loaded images: their overloads, their kernels on each GPU, and their caches."""

# `Images` makes a `KernelTable` when it loads images. If the images are unloaded, the table's validity flag is emptied,
# its caches are retired, and a launch gets the current table from `Images`. A launch finds the overload for its
# arguments, then the overload's kernel on a GPU. If the images lack one of them, the JIT fallback compiles it, through
# `aotcuda.runtime.jit.overloads`.

from __future__ import annotations

import os
from _thread import get_ident

from .. import driver as drivers
from .. import errors, new_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    from ...manifest import Kernel, Manifest
    from ..driver import ValidityFlag
    from ..jit.fallback import Fallback
    from ..jit.overloads import JitOverloads
    from ..launch.arguments.argument_layout import PackedOverload
    from ..launch.arguments.overloads import OverloadTable, Selection
    from .device_kernel import DeviceKernel
    from .library import Library

    MakesFallback = Callable[[], Fallback]
    Result = TypeVar("Result")


class KernelCache:
    """The state of one kernel that is valid while the same images are loaded.

    Attributes:
        configured: Returns the launcher for a configuration; None before the first launcher, or if the configuration
            needs a closer look.
        for_all: Returns the launcher for a number of elements, a block, a stream and shared memory; None as above.
        for_functions: The launcher in C from which launchers with a grid function are made; None without one.
        specializations: The specializations of the fast path, which the launchers share; None until one needs them.
        table: The overloads and their specializations; None until the first launch.
    """

    __slots__ = ("configured", "for_all", "for_functions", "specializations", "table")

    def __init__(self) -> None:
        self.configured: Callable[[object], Any] = _nothing
        self.for_all: Callable[..., Any] = _nothing
        self.for_functions: Any = None
        self.specializations: Any = None
        self.table: OverloadTable | None = None

    def share_specializations(self, make: Callable[[], Any]) -> Any:
        """Return the specializations that all launchers share; the first call makes them with `make`."""
        if self.specializations is None:
            self.specializations = make()
        return self.specializations

    @property
    def makes_launchers(self) -> bool:
        """Return True if `configured` may return a launcher."""
        return self.configured is not _nothing

    def retire(self) -> None:
        """Make no more launchers, so that the kernel gets the current cache from its images."""
        self.configured = self.for_all = _nothing
        self.for_functions = None


def _nothing(*_parts: object) -> None:
    """Return no launcher."""


class KernelTable:
    """The kernels of one set of loaded images.

    Attributes:
        library: The images.
        manifest: The manifest that describes them.
        kernels: The records of their kernels, by name.
        live: The validity flag: one item, until the images are retired or the process forks.
        caches: The caches of the kernels, by name.
        uses: The launches in progress on the general path, and other calls that need the images, with their threads.
        is_pinned: Whether a program of XLA has recorded a launch, so that the images stay until the process ends.
    """

    def __init__(
        self,
        library: Library,
        manifest: Manifest,
        fallback: MakesFallback,
        live: ValidityFlag,
        caches: dict[str, KernelCache],
    ) -> None:
        self.library = library
        self.manifest = manifest
        self.kernels = {kernel["name"]: kernel for kernel in manifest["kernels"]}
        self.live = live
        self._fallback = fallback
        self._making = new_lock()
        self.caches = caches
        self.uses: dict[object, int] = {}
        self.is_pinned = False
        self._jit: JitOverloads | None = None

    def table(self, name: str) -> OverloadTable:
        """Return the overloads of a kernel.

        Raises:
            LaunchError: The images have no such kernel: it is no longer in the sources.
        """
        cache = self.caches.get(name)
        if cache is not None and cache.table is not None:
            return cache.table
        where = self._where(name)
        record = self.kernels.get(name)
        if record is None:
            message = f"{where} cannot be launched: the module has no such kernel any more"
            raise errors.LaunchError(message)
        if not record.get("exact") or _has_gaps(record) or _takes_descriptors(record):
            record = self._for_this_machine(record)
        with self._making:
            cache = self.caches.setdefault(name, KernelCache())
            if cache.table is None:
                cache.table = _table_class(record)(record, where, self.live, self.library.current_device)
            return cache.table

    def _for_this_machine(self, record: Kernel) -> Kernel:
        """Return the record without the variants that no image for this machine's GPUs has."""
        library = self.library
        gpus = [device.index for device in library.driver.devices]
        overloads = [
            overload
            for overload in record["overloads"]
            if any(not library.has_image(gpu) or library.has_variant(overload, gpu) for gpu in gpus)
        ]
        return record if len(overloads) in (0, len(record["overloads"])) else {**record, "overloads": overloads}

    def select(self, name: str, args: tuple[object, ...], stream: int | None) -> Selection | None:
        """Select the overload of a kernel for these arguments, and pack them; see `OverloadTable.select`.

        Return None if some arguments are arrays in the host's memory that have to be copied first.

        Args:
            name: The name of the kernel.
            args: The arguments.
            stream: The handle of the launch's stream; None for the current stream.

        Raises:
            ArgumentError: No overload accepts the arguments, or one of them cannot be read.
        """
        table = self.table(name)
        return table.select(args, stream) or self.select_otherwise(name, table, args, stream)

    def select_otherwise(
        self, name: str, table: OverloadTable, args: tuple[object, ...], stream: int | None
    ) -> Selection | None:
        """Compile an overload for arguments that no packaged one accepts; None if arrays have to be copied first."""
        if os.environ.get("AOTCUDA_HOST_ARRAYS") and (not table.is_exact or self.kernels[name].get("adopts")):
            from ..launch.arguments import host_arrays  # noqa: PLC0415 (few programs want it)

            if host_arrays.find_arguments_to_copy(args, table.all_overloads()):
                return None
        if table.is_exact:
            raise table.refusal(args)
        selection = self._jit_overloads().select(name, table, args, table.stream(args, stream))
        if selection is None:
            raise table.refusal(args)
        table.add_compiled(args, selection[0])
        return (*selection[:5], None)  # the specialization belongs to another table

    def select_or_refuse(self, name: str, args: tuple[object, ...], stream: int | None) -> Selection:
        """Select an overload as `select` does; raise ArgumentError for arrays in the host's memory."""
        selection = self.select(name, args, stream)
        if selection is None:
            raise self.table(name).refusal(args)
        return selection

    def check(self, name: str, args: tuple[object, ...], stream: int | None) -> PackedOverload:
        """Return the overload that a launch with these arguments would use; errors as for `select`.

        Arrays in the host's memory are accepted if a launch would copy them.
        """
        if os.environ.get("AOTCUDA_HOST_ARRAYS"):
            from ..launch.arguments import host_arrays  # noqa: PLC0415 (few programs want it)

            args = host_arrays.describe_copies(args, self.table(name).all_overloads())
        overload, slot, *_ = self.select_or_refuse(name, args, stream)
        overload.slots.append(slot)
        return overload

    def device_kernel(
        self, overload: PackedOverload, device: int, launch_streams: Sequence[object] = (), where: str = ""
    ) -> DeviceKernel:
        """Return an overload on a GPU; compile it if the images lack it.

        Args:
            overload: The overload.
            device: The GPU's ordinal.
            launch_streams: As for `Images.enter`, because compiled code may have setup callbacks.
            where: As for `Images.enter`.

        Raises:
            LaunchError: As for `Images.enter`.
            RuntimeUnavailableError: No packaged image runs on that GPU, and the fallback may not or cannot compile one.
            CudaError: The driver does not find the kernel in the image, or cannot load it.
        """
        kernel: DeviceKernel | None = overload.kernels.get(device)
        if kernel is not None:
            return kernel
        is_jit = self._jit is not None and self._jit.holds(overload)
        if is_jit or not self.library.has_image(device):
            kernel, may_cache = self._jit_overloads().kernel(
                overload, device, self.library.choices[device], launch_streams, where
            )
            if may_cache:
                overload.kernels[device] = kernel
            return kernel
        self.compile(overload.record.get("fatbin", 0))
        kernel = overload.kernels[device] = self.library.device_kernel(overload, device)
        return kernel

    def compile(self, fatbin: int) -> None:
        """Compile an image that this call needs next, if the library has to; errors as for `pause`."""
        if self.library.is_compiled:
            self.pause(lambda: self.library.compile(fatbin))

    def needs_jit(self, overload: PackedOverload, device: int) -> bool:
        """Return True if `device_kernel` may have to compile an overload for a GPU."""
        jit = self._jit
        return jit is not None and jit.holds(overload) and device not in overload.kernels

    def retire(self) -> None:
        """Make the fast path decline from now on, and make no launchers: the images are unloaded."""
        drivers.retire(self.live)
        for cache in list(self.caches.values()):
            cache.retire()

    def is_used(self) -> bool:
        """Return True if a launch is in progress."""
        return bool(self.uses) or self.live.is_in_flight()

    def is_used_here(self) -> bool:
        """Return True if a launch of this thread is in progress, which has called this code."""
        return get_ident() in self.uses.copy().values()

    def pause(self, function: Callable[[], Result]) -> Result:
        """Return the result of a function that compiles during a launch; an unload does not wait for it.

        Raises:
            UnloadedError: Another thread has unloaded these images meanwhile.
        """
        thread = get_ident()
        uses = [use for use, owner in self.uses.copy().items() if owner == thread]
        if len(uses) != 1:  # a launch whose callback launches needs its images
            return function()
        del self.uses[uses[0]]
        try:
            result = function()
        finally:
            self.uses[uses[0]] = thread
        if not self.live:
            raise errors.UnloadedError.for_kernel(self.manifest["module"])
        return result

    def _jit_overloads(self) -> JitOverloads:
        """Return the overloads that the fallback compiles in addition to the images; make them at the first call."""
        if self._jit is None:
            from ..jit.overloads import JitOverloads  # noqa: PLC0415 (few programs ever need it)

            with self._making:
                if self._jit is None:
                    self._jit = JitOverloads(
                        self.manifest["module"], self.library, self._fallback(), self.live, self.pause
                    )
        return self._jit

    def _where(self, name: str) -> str:
        return f"{self.manifest['module']}.{name}"


def _has_gaps(record: Kernel) -> bool:
    """Return True if some target has not all variants of a kernel."""
    return len({frozenset(overload.get("launches", ())) for overload in record["overloads"]}) > 1


def _takes_descriptors(record: Kernel) -> bool:
    """Return True for a kernel with tensor descriptors: the parameters of its variants depend on the target."""
    return any(
        parameter["kind"] == "descriptor" for overload in record["overloads"] for parameter in overload["parameters"]
    )


def _table_class(record: Kernel) -> type[OverloadTable]:
    if record.get("exact"):
        from ..launch.arguments.exact import ExactOverloads  # noqa: PLC0415 (most kernels are not)

        return ExactOverloads
    from ..launch.arguments.overloads import OverloadTable  # noqa: PLC0415 (an import needs none)

    return OverloadTable
