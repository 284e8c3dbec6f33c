"""The overloads that the JIT fallback compiled for a module: further signatures, and GPUs without a packaged image."""

from __future__ import annotations

from ...errors import ArgumentError, NoImageError, UnreadableError
from .. import new_lock
from ..launch.arguments import signature as signatures
from ..launch.arguments.overloads import OverloadTable
from .fallback import WHOLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...errors import AotcudaError
    from ...manifest import Manifest
    from ..driver import Device, ValidityFlag
    from ..images.choice import Choice
    from ..images.device_kernel import DeviceKernel
    from ..images.library import Library
    from ..launch.arguments.argument_layout import PackedOverload
    from ..launch.arguments.overloads import Selection
    from .fallback import Case, Fallback


class JitOverloads:
    """Overloads for signatures that are not packaged, and kernels for GPUs without a packaged image."""

    def __init__(
        self,
        module: str,
        library: Library,
        fallback: Fallback,
        live: ValidityFlag,
        pause: Callable[[Callable[[], Library]], Library],
    ) -> None:
        """Store the module's name, its packaged images, and the validity flag of the overloads.

        `pause` calls a function that compiles, as `KernelTable.pause` does.
        """
        self._pause = pause
        self._module = module
        self._library = library
        self._fallback = fallback
        self._live = live
        self._lock = new_lock()
        self._tables: dict[Case, OverloadTable] = {}
        self._cases: dict[PackedOverload, Case] = {}
        self._with_callbacks: dict[tuple[PackedOverload, int], tuple[Library, DeviceKernel]] = {}

    def holds(self, overload: PackedOverload) -> bool:
        """Return True if the JIT fallback compiled an overload's signature."""
        return overload in self._cases

    def select(self, name: str, table: OverloadTable, args: tuple[object, ...], stream: int) -> Selection | None:
        """Select an overload for arguments that no packaged overload in `table` accepts, and compile it if necessary.

        Return None if the number of arguments is wrong, or if the fallback may not compile for their types.

        Raises:
            ArgumentError: An argument cannot be read, or the compiled overload does not accept the arguments.
            AotcudaError: The compilation failed.
        """
        if all(len(overload.parameters) != len(args) for overload in table.overloads):
            return None
        try:
            signature = signatures.from_arguments(args) if self._fallback.may_widen() else None
        except UnreadableError as error:
            raise table.read_error(args, error) from error.__cause__
        if signature is None:
            return None
        case = (name, signature)
        jit_table = self._tables.get(case)
        if jit_table is None:
            images = self._compile(case, table.refusal(args))
            with self._lock:
                jit_table = self._tables.get(case) or self._add_table(case, images)
        selection = jit_table.select(args, stream)
        if selection is None:
            raise jit_table.refusal(args)
        return selection

    def kernel(
        self, overload: PackedOverload, device: int, choice: Choice, launch_streams: Sequence[object], where: str
    ) -> tuple[DeviceKernel, bool]:
        """Return the kernel of an overload on a GPU, compiled if necessary, and True if launches may cache it.

        They may not if it has setup callbacks, which must run for each context.

        Args:
            overload: The overload.
            device: The GPU's ordinal.
            choice: The packaged image for the GPU, or the reason why there is none.
            launch_streams: As for `Images.enter`.
            where: As for `Images.enter`.

        Raises:
            LaunchError: As for `Images.enter`.
            AotcudaError: The compilation failed, or the argument layout differs from the packaged one.
        """
        entry = self._with_callbacks.get((overload, device))
        if entry is None:
            gpu = self._library.driver.devices[device]
            case = self._cases.get(overload)
            fatbin = 0 if case is not None else overload.record.get("fatbin", 0)
            images = self._pause(lambda: self._load(case or WHOLE, gpu, self._missing(case, choice), fatbin))
            _check_layout(overload, images.manifest, str(gpu))
            entry = images, images.device_kernel(overload, device)
            if images.callbacks is None:
                return entry[1], True
            self._with_callbacks[overload, device] = entry
        library, kernel = entry
        if library.callbacks is not None and launch_streams:
            from ..launch import launch_problems  # noqa: PLC0415 (few modules have any)

            whose = "the code that was compiled for it on this machine"
            launch_problems.check_capture(
                where, library.callbacks, library.driver, launch_streams, whose, "launch it once"
            )
        try:
            library.set_up()
        except BaseException:
            if library.callbacks is not None and library.callbacks.failed is not None:
                self._drop(library)
            raise
        return kernel, False

    def _drop(self, library: Library) -> None:
        """Discard images whose setup has failed: the next launch that needs them loads new ones."""
        self._fallback.drop(library)
        for key, (images, _) in list(self._with_callbacks.items()):
            if images is library:
                self._with_callbacks.pop(key, None)

    def _load(self, case: Case, gpu: Device, cause: AotcudaError, fatbin: int) -> Library:
        images = self._fallback.load(case, gpu, cause)
        images.compile(fatbin)
        return images

    def _compile(self, case: Case, cause: ArgumentError) -> Library:
        driver = self._library.driver
        device = self._library.device if self._library.device >= 0 else driver.current_device() or 0
        return self._pause(lambda: self._fallback.load(case, driver.devices[device], cause))

    def _add_table(self, case: Case, images: Library) -> OverloadTable:
        (record,) = images.manifest["kernels"]
        table = OverloadTable(record, f"{self._module}.{case[0]}", self._live)
        self._cases.update(dict.fromkeys(table.overloads, case))
        self._tables[case] = table
        return table

    def _missing(self, case: Case | None, choice: Choice) -> AotcudaError:
        """Return the error with the reason why an overload has to be compiled for a GPU."""
        if case is None:
            return choice.error(self._module)
        kernel, signature = case
        message = f"{self._module}.{kernel} for {signature} is not packaged, and was compiled for other GPUs"
        return NoImageError(f"{message} than {choice.gpu}")


def _check_layout(overload: PackedOverload, manifest: Manifest, gpu: str) -> None:
    """Raise ArgumentError unless the overload's argument layout equals the packaged one."""
    symbol = overload.record["symbol"]
    for kernel in manifest["kernels"]:
        for other in kernel["overloads"]:
            if other["symbol"] == symbol:
                if other["parameters"] == overload.parameters:
                    return
                message = (
                    f"{manifest['module']}.{kernel['name']}: the code that was compiled for {gpu} has another argument "
                    "layout than the packaged images, because the installed compiler has another version; install the "
                    f"versions that the wheel was built with: {manifest['toolchain']}"
                )
                raise ArgumentError(message)
    name = manifest["module"]
    message = (
        f"{name}: the parameters of {symbol} depend on the GPU, so nothing else replaces it on {gpu}; build for it"
    )
    raise NoImageError(message)
