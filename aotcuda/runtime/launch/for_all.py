"""Launch a kernel over a number of elements: `kernel.forall(n)`."""

from __future__ import annotations

from .. import errors, importing
from . import config_key
from .execute import ProcessLocal
from .launch_config import block_of_elements, number_of_elements

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self, SupportsIndex

    from ..images.device_kernel import DeviceKernel
    from ..images.images import Images
    from ..images.kernel_table import KernelTable
    from .arguments.overloads import Selection, Specialization
    from .execute import Launcher

    Kernel = Any  # an `aotcuda.runtime.kernel.Kernel`, which imports this module


class ForAll(ProcessLocal):
    """A kernel for `n` elements; a launch computes the grid, and the block of most occupancy if none is given."""

    __slots__ = ("_block", "_images", "_kernel", "_n", "_owner", "_shared", "_specializations", "_stream")

    def __init__(
        self, kernel: Kernel, images: Images, n: SupportsIndex, block: int | None, stream: object, shared: int
    ) -> None:
        self._kernel = kernel
        self._images = images
        self._n = n if type(n) is int and n >= 0 else number_of_elements(n, str(kernel))
        self._block = None if block is None else block_of_elements(block, str(kernel))
        self._stream = None if stream is None else config_key.handle_of(stream)
        self._owner = stream  # keeps the stream object alive
        self._shared = shared
        self._specializations: Any = None

    def with_specializations(self, specializations: object) -> Self:
        """Take the specializations of the launcher in C that this one serves."""
        self._specializations = specializations
        return self

    if TYPE_CHECKING:

        def __call__(self, *args: Any, **_none: Any) -> None:
            """Launch the kernel; see `Launcher`."""

    else:

        def __call__(self, *args: object, **named: object) -> None:
            """Launch the kernel; with no elements, only check the arguments. Errors as for `Launcher`."""
            if named:
                from .arguments import explain  # noqa: PLC0415 (only errors come here)

                name = self._kernel.__name__
                record = self._images.kernels.get(name)
                raise explain.keyword_error(str(self._kernel), f"{name}.forall(n)", record, named)
            self._images.use(self._launch, args)

    def _launch(self, kernel_table: KernelTable, args: tuple[object, ...]) -> None:
        name, images = self._kernel.__name__, self._images
        if self._n == 0:
            kernel_table.check(name, args, self._stream)
            return
        specialization = kernel_table.find(name, args)
        if specialization is not None and self._launch_planned(kernel_table, specialization, args):
            return
        selection = kernel_table.select(name, args, self._stream)
        if selection is None:
            with importing:
                from .execute import launch_with_copies  # noqa: PLC0415 (few programs copy host arrays)

            launch_with_copies(images, kernel_table, (name, str(self._kernel)), self._stream, args, self._launch)
            return
        try:
            specializations = self._specializations or self._kernel.specializations()
            launcher = self._launcher(self._block or self._best_block(kernel_table, selection), specializations)
        except BaseException:
            selection[0].slots.append(selection[1])
            raise
        launcher.submit(kernel_table, selection, args)
        launcher.settle(kernel_table, selection, args)

    def _launch_planned(
        self, kernel_table: KernelTable, specialization: Specialization, args: tuple[object, ...]
    ) -> bool:
        """Launch by a plan; return False if it declines."""
        shared, block = self._shared, self._block
        which = shared if block else (None, shared)
        if self._specializations is not None and not specialization.was_offered(which):
            return False
        if block is None:
            kernel = specialization.overloads[0].kernels.get(kernel_table.library.device)
            block = None if kernel is None else kernel.best_blocks.get(shared)
            if block is None:
                return False
        code = specialization.launch(args, self._stream, (-(-self._n // block), 1, 1, block, 1, 1, shared, block))
        if code:
            self.fail(code, args)
        return code is not None

    def fail(self, code: int, args: tuple[object, ...]) -> None:
        """Raise the error of a launch that failed on the fast path; see `Launcher.fail`."""
        block = self._block or self._images.use(self._block_for, args)
        self._launcher(block, self._specializations or self._kernel.specializations()).fail(code, args)

    def _block_for(self, kernel_table: KernelTable, args: tuple[object, ...]) -> int:
        selection = kernel_table.select_or_refuse(self._kernel.__name__, args, self._stream)
        try:
            return self._best_block(kernel_table, selection)
        finally:
            selection[0].slots.append(selection[1])

    def _launcher(self, block: int, specializations: object) -> Launcher:
        """Return the launcher in Python for blocks of this size."""
        parts = -(-self._n // block), block, self._stream, self._shared
        launcher: Launcher = self._kernel.general_launcher(parts, specializations)
        launcher.configuration.by_number = self._block is None
        return launcher

    def _best_block(self, kernel_table: KernelTable, selection: Selection) -> int:
        """Return the block size of most occupancy for the selected overload."""
        overload, _, values, pending, stream, _ = selection
        kernel: DeviceKernel | None = overload.kernels.get(kernel_table.library.device)
        if kernel is None or self._shared not in kernel.best_blocks:
            launch_streams, where = (stream, *pending), str(self._kernel)
            device = self._images.enter(kernel_table, overload.addresses_of(values), launch_streams, where)
            kernel = kernel_table.device_kernel(overload, device, launch_streams, where)
        return kernel.best_block(self._shared)

    def _describe(self) -> tuple[str, str]:
        """Implement ProcessLocal._describe."""
        return f"{self._kernel} for a number of elements", "kernel.forall(n)"

    def __repr__(self) -> str:
        return f"<{self._kernel} for {errors.short_repr(self._n)} elements>"
