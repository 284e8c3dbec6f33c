"""Launch a kernel over a number of elements: `kernel.forall(n)`."""

from __future__ import annotations

from .. import errors
from . import config_key
from .execute import Launcher
from .launch_config import Configuration, block_of_elements, number_of_elements

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self, SupportsIndex

    from ..images.images import Images
    from ..images.kernel_table import KernelTable

    Kernel = Any  # an `aotcuda.runtime.kernel.Kernel`, which imports this module


class ForAll(Launcher):
    """A kernel for `n` elements; a launch computes the grid, and the block of most occupancy if none is given."""

    __slots__ = ("_n", "_owner")

    form = ".forall(n)"

    def __init__(
        self, kernel: Kernel, images: Images, n: SupportsIndex, block: int | None, stream: object, shared: int
    ) -> None:
        where = str(kernel)
        self._n = n if type(n) is int and n >= 0 else number_of_elements(n, where)
        self._owner = stream  # keeps the stream object alive
        threads = 1 if block is None else block_of_elements(block, where)
        handle = None if stream is None else config_key.handle_of(stream)
        parts = max(-(-self._n // threads), 1), threads, handle, shared
        configuration = Configuration.of(parts) or Configuration(*parts, where)
        configuration.elements = self._n if block is None else 0
        super().__init__(images, kernel.__name__, where, configuration, None)

    def with_specializations(self, specializations: object) -> Self:
        """Take the specializations of the fast path."""
        self._specializations = specializations
        return self

    def _launch(self, kernel_table: KernelTable, args: tuple[object, ...]) -> None:
        """Launch the kernel; with no elements, only check the arguments."""
        if self._n:
            super()._launch(kernel_table, args)
        else:
            kernel_table.check(self.name, args, self.stream)

    def _describe(self) -> tuple[str, str]:
        """Implement ProcessLocal._describe."""
        return f"{self.where} for a number of elements", "kernel.forall(n)"

    def __repr__(self) -> str:
        return f"<{self.where} for {errors.short_repr(self._n)} elements>"
