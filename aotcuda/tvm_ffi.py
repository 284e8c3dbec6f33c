"""Make functions of TVM-FFI from packaged kernels: `aotcuda.tvm_ffi.function`, for callers of `tvm_ffi.Function`.

For example::

    import aotcuda.tvm_ffi
    import mypkg.kernels as k

    axpy = aotcuda.tvm_ffi.function(k.axpy, forall=lambda a, x, y, out: x.shape[0])
    axpy(2.0, x, y, out)  # tensors of any library that speaks DLPack

TVM-FFI calls Python, and the launch reads its tensors by DLPack. This takes some microseconds more than a launch with
arrays of PyTorch or CuPy.
"""

from __future__ import annotations

import tvm_ffi

from aotcuda.integrations import framework_checks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from aotcuda import typing as types
    from aotcuda.runtime.kernel import Kernel

__all__ = ["function"]


def function(
    kernel: Kernel,
    *,
    grid: types.Dimensions | Callable[..., types.Dimensions] | None = None,
    block: types.Dimensions | None = None,
    forall: int | Callable[..., int] | None = None,
    shared: int = 0,
) -> Any:
    """Return a `tvm_ffi.Function` that launches a packaged kernel on TVM-FFI's current stream.

    Args:
        kernel: The kernel.
        grid: Blocks of the grid, as in `kernel[grid, block]`, or a function of the arguments that returns the grid.
        block: Threads of a block.
        forall: The number of threads, in place of a grid, or a function of the arguments that returns the number.
        shared: Bytes of dynamic shared memory for each block.

    Raises:
        ArgumentError: The kernel is launched by its grid alone.
        LaunchError: There is no configuration, or two.
    """
    framework_checks.check_kernel(kernel, "aotcuda.tvm_ffi.function")
    framework_checks.check_configuration(kernel, grid, block, forall)

    threads: Any = block

    def launch(*args: Any) -> None:
        tensor = next((arg for arg in args if isinstance(arg, tvm_ffi.Tensor)), None)
        stream = None if tensor is None else tvm_ffi.get_raw_stream(tensor.device)
        if forall is not None:
            n: Any = forall(*args) if callable(forall) else forall
            kernel.forall(n, threads, stream, shared)(*args)
            return
        blocks: Any = grid(*args) if callable(grid) else grid
        kernel[blocks, threads, stream, shared](*args)

    return tvm_ffi.convert(launch)
