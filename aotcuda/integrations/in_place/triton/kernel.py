"""Launch the packaged kernel of a Triton function; pass launches without packaged code to Triton's JIT."""

from __future__ import annotations

import sys

from ....errors import (
    AlignmentError,
    ArgumentError,
    LaunchError,
    NoDeviceError,
    NoDriverError,
    RuntimeUnavailableError,
    StaleBuildError,
)
from ....runtime.launch.grid_kernel import GridKernel, GridLauncher
from . import without_triton

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ....errors import AotcudaError
    from ....manifest import Kernel as Record
    from ....manifest import Manifest, Overload
    from ....runtime.images.device_kernel import DeviceKernel
    from ....runtime.images.images import Images
    from ....runtime.images.kernel_table import KernelTable

MISSES = (ArgumentError, LaunchError, StaleBuildError, RuntimeUnavailableError)
"""Errors after which Triton launches the kernel.

For launches that the GPU refuses, Triton raises its own errors, which autotuners catch.
"""

ADVICE = "`aotcuda record --write` adds what a run launches"
"""The remedy for a miss."""


class InPlaceKernel(GridKernel):
    """A packaged kernel that passes misses to Triton's JIT.

    Attributes:
        folder: The data folder of its module.
        function: The Triton function; None before its first launch, and if only a tool reads the module.
        has_warned: True if the user was warned that Triton compiles missing variants.
    """

    def __init__(self, name: str, images: Images, folder: str) -> None:
        """Implement Kernel.__init__."""
        super().__init__(name, images)
        self.folder = folder
        self.function: Any = None
        self.has_warned = False
        self._own_record: tuple[object, Any] = None, None

    @property
    def manifest(self) -> Manifest:
        """Return the manifest of its module."""
        return self._images.manifest

    def record(self) -> Record:
        """Return its record in the manifest. Triton's own objects compute heuristics, so launches name the constants.

        Raises:
            LaunchError: The current images have no such kernel.
        """
        packaged = super().record()
        if self._own_record[0] is not packaged:
            computed = ("is_none", "is_not_none")
            arguments = [
                {key: value for key, value in argument.items() if key not in computed}
                for argument in packaged["arguments"]
            ]
            self._own_record = packaged, {**packaged, "arguments": arguments}
        return self._own_record[1]  # type: ignore[no-any-return]

    def variant(self, args: tuple[object, ...], named: dict[str, object]) -> Overload:
        """Return the record of the variant that a launch uses.

        Raises:
            AotcudaError: No variant is packaged for the arguments, or for this GPU.
        """
        full = self.arrange(args, named)
        return self._images.use(self._check, full).record

    def on_gpu(self, record: Overload) -> tuple[DeviceKernel, str]:
        """Return a variant on the current GPU, and the target of its image; make a context if there is none.

        Raises:
            AotcudaError: The variant cannot be loaded.
        """
        return self._images.use(self._on_gpu, record)

    def _on_gpu(self, kernel_table: KernelTable, record: Overload) -> tuple[DeviceKernel, str]:
        device = self._images.enter(kernel_table, ())
        overloads = kernel_table.table(self.__name__).all_overloads()
        overload = next(each for each in overloads if each.record is record)
        return kernel_table.device_kernel(overload, device), str(kernel_table.library.choices[device].arch)

    def miss(self, error: AotcudaError, grid: object, args: tuple[object, ...], named: dict[str, object]) -> Any:
        """Launch the kernel that Triton compiles, with one warning in the process.

        Raises:
            AotcudaError: `error`, if nothing may be compiled, or no Triton function is known.
        """
        if self.function is None:
            raise error
        self.allow_miss(error)
        return self.launch_by_triton(grid, args, named)

    def launch_by_triton(self, grid: object, args: tuple[object, ...], named: dict[str, object]) -> Any:
        """Launch the kernel that Triton compiles."""
        self.jit_launches += 1
        return self.function.run_by_triton(grid, args, named)

    def allow_miss(self, error: AotcudaError) -> None:
        """Warn once that Triton compiles the kernel.

        Raises:
            AotcudaError: `error`, where nothing may be compiled.
        """
        if not self.has_warned:
            allow_compilation(str(self), str(error), self.manifest["fallback"], error)
            self.has_warned = True

    def _named_launcher(
        self, launcher: Any, function: Callable[..., Any] | None, stream: object, grid: object
    ) -> GridLauncher:
        return _Launcher(self, launcher, function, stream, grid)


class _Launcher(GridLauncher):
    """A packaged kernel with a grid; Triton makes launches without a packaged variant."""

    __slots__ = ("_original_grid",)

    def __init__(
        self,
        kernel: InPlaceKernel,
        launcher: Any,
        grid: Callable[..., Any] | None,
        stream: object,
        original_grid: object,
    ) -> None:
        """Store also `original_grid`, the grid as the program has written it."""
        super().__init__(kernel, launcher, grid, stream)
        self._original_grid = original_grid

    def __call__(self, *args: object, **named: object) -> Any:
        """Launch the kernel; return Triton's result if Triton compiles it, else None."""
        grid = self._original_grid
        try:
            full = self._kernel.arrange(args, named)
            if self._function is not None:
                grid = self.compute_grid(full)  # Triton must not call the function again
            self.launch_on(grid, full)
        except AlignmentError:
            raise  # Triton's kernel would fault on the GPU
        except MISSES as error:
            return self._kernel.miss(error, grid, args, named)  # type: ignore[attr-defined]
        return None

    def missed(self, *args: object, **named: object) -> Any:
        """Implement ProcessLocal.missed."""
        kernel: Any = self._kernel
        return kernel.launch_by_triton(self._original_grid, args, named) if kernel.has_warned else self(*args, **named)


def allow_compilation(what: str, problem: str, setting: str, error: AotcudaError) -> None:
    """Warn that Triton compiles a kernel; without a GPU Triton itself raises.

    Raises:
        AotcudaError: `error` with a remedy, where nothing may be compiled, or Triton is not installed.
    """
    from ....runtime.jit import compile as jit_compile  # noqa: PLC0415 (packaged launches need neither)
    from ....runtime.jit import fallback  # noqa: PLC0415

    is_installed = sys.modules.get("triton") is not None
    is_without_gpu = isinstance(error, NoDriverError | NoDeviceError)
    if is_without_gpu and not is_installed:
        raise error
    if not is_installed or not fallback.is_allowed(setting):
        why = "nothing may be compiled here" if is_installed else without_triton.NEEDS
        message = f"{problem}; {why}, and {ADVICE}"
        raise type(error)(message) from None
    if is_without_gpu:
        return
    first = problem.partition("\n")[0]
    jit_compile.warn(f"{first}{'' if what in first else f' ({what})'}, so Triton compiles it; {ADVICE}")
