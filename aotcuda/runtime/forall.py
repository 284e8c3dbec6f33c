"""`kernel.forall(n)`: a kernel over so many elements, in blocks that suit the GPU."""

from __future__ import annotations

import os

from aotcuda.errors import LaunchError
from aotcuda.runtime import streams
from aotcuda.runtime.images.library import again
from aotcuda.runtime.launch_limits import dimensions
from aotcuda.runtime.launcher import addresses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.runtime.arguments.layout import Plan
    from aotcuda.runtime.images.program import Program
    from aotcuda.runtime.kernel import Kernel


class ForAll:
    """A kernel to be run once for each of `n` elements, over a grid of blocks that suits the GPU."""

    __slots__ = ("_block", "_kernel", "_n", "_owner", "_shared", "_stream")

    def __init__(self, kernel: Kernel, n: int, block: int | None, stream: object, shared: int) -> None:
        if n < 0:
            message = f"{kernel}.forall({n}): the number of elements cannot be negative"
            raise LaunchError(message)
        if block is not None:
            block = dimensions((block,), "block", kernel)[0]
        self._kernel = kernel
        self._n = n
        self._block = block
        self._stream = streams.handle(stream)
        self._owner = stream  # as in Held
        self._shared = shared

    def __call__(self, *args: object) -> None:
        """Launch the kernel; with no elements, only check the arguments. Errors as for `Launcher`."""
        again(self._launch, args)

    def _launch(self, args: tuple[object, ...]) -> None:
        kernel = self._kernel
        group = kernel.group(args)
        known = group.blocks.get(self._shared) if group is not None else None
        if known is not None and self._n > 0:
            block = self._block or known
            kernel[-(-self._n // block), block, self._stream, self._shared](*args)
            return
        program = kernel.module.ready()
        if os.environ.get("AOTCUDA_HOST_ARRAYS") and self._n > 0:
            from aotcuda.runtime.arguments import host_arrays as host  # noqa: PLC0415 (few programs set it)

            if host.launch(self, program, args):
                return
        selection = plan, slot, values, _ = kernel.select(args, self._stream)
        if self._n == 0:
            plan.slots.append(slot)
            return
        try:
            best = self._best(program, plan, values)
            block = self._block or best
            launcher = kernel[-(-self._n // block), block, self._stream, self._shared]
        except BaseException:
            plan.slots.append(slot)
            raise
        if group is not None and group.is_only(plan) and program.device >= 0 and not kernel.module.editable:
            group.blocks[self._shared] = best
        launcher.submit(program, selection)
        if group is not None:
            launcher.settle(program, group, plan, args)

    @property
    def kernel(self) -> Kernel:
        """The kernel, as of a launcher."""
        return self._kernel

    @property
    def stream(self) -> int:
        """The handle of the stream, likewise."""
        return self._stream

    def launch(self, args: tuple[object, ...]) -> None:
        """As a call."""
        self(*args)

    def __repr__(self) -> str:
        return f"<{self._kernel} for {self._n} elements>"

    def _best(self, program: Program, plan: Plan, values: list[object]) -> int:
        """The block size of most occupancy for the selected overload."""
        kernel = self._kernel
        known = plan.entries.get(program.device)
        if known is not None and self._shared in known.block:
            return known.block[self._shared]
        entry = program.entry(plan, kernel.module.enter(program, addresses(plan, values)))
        bounds = plan.overload["launch_bounds"]
        most = min(entry.threads, bounds[0]) if bounds and bounds[0] else entry.threads
        if self._shared > entry.device.limit("shared") - entry.static_shared:
            entry.allow_shared()
        return entry.best_block(self._shared, most)
