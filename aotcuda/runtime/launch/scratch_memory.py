"""Global scratch memory, which some kernels of Triton need at each launch; the program allocates it.

If Triton is imported, `triton.set_allocator` sets the allocator; without Triton, `aotcuda.triton.set_allocator` does.
As in Triton, an allocator takes bytes, alignment and stream, and returns an object with `data_ptr()`.
"""

from __future__ import annotations

import struct
import sys
from contextvars import ContextVar

from ...errors import AllocatorError, describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...manifest.schema import Scratch

_allocator: ContextVar[Any] = ContextVar("allocator", default=None)


def set_allocator(allocator: Any) -> None:
    """Set the function that allocates scratch memory in this context, as `triton.set_allocator` does."""
    _allocator.set(allocator)


def allocate(scratch: Scratch, grid: tuple[int, int, int], stream: int, block: Any, where: str) -> object:
    """Allocate the scratch memory of a launch, write its address into the parameter block, and return its owner.

    Args:
        scratch: The size and alignment that the kernel needs.
        grid: The blocks of the launch, in x, y and z.
        stream: The handle of its stream.
        block: The parameter block.
        where: The kernel, for errors.

    Raises:
        AllocatorError: The program has set no allocator, or the allocator's result has no address.
    """
    triton: Any = sys.modules.get("triton.runtime._allocation")
    allocator = triton._allocator.get() if triton is not None else _allocator.get()  # noqa: SLF001 (no other way)
    if allocator is None or type(allocator).__name__ == "NullAllocator":
        module = "triton" if triton is not None else "aotcuda.triton"
        message = (
            f"{where} cannot be launched: it needs {scratch['bytes']} bytes of global memory for each block, and no "
            f"allocator is set; call {module}.set_allocator"
        )
        raise AllocatorError(message)
    memory = allocator(grid[0] * grid[1] * grid[2] * scratch["bytes"], scratch["align"], stream)
    address = memory if isinstance(memory, int) or not hasattr(memory, "data_ptr") else memory.data_ptr()
    if type(address) is not int or not 0 < address < 1 << 64:
        message = (
            f"{where} cannot be launched: the allocator returned {describe(memory)}, which has no address; "
            "return an array with data_ptr()"
        )
        raise AllocatorError(message)
    struct.pack_into("<Q", block, scratch["offset"], address)
    return memory
