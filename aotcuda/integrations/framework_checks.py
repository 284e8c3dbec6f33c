"""Check a kernel and its configuration for `aotcuda.torch`, `aotcuda.jax` and `aotcuda.tvm_ffi`."""

from __future__ import annotations

from aotcuda.errors import ArgumentError, LaunchError
from aotcuda.runtime.kernel import Kernel
from aotcuda.runtime.launch.grid_kernel import GridKernel


def check_kernel(kernel: object, function: str) -> None:
    """Raise ArgumentError unless it is a kernel with a grid and a block; `function` is the caller, for the message."""
    if isinstance(kernel, GridKernel) or not isinstance(kernel, Kernel):
        message = f"{kernel}: {function} takes kernels that are launched as kernel[grid, block]"
        raise ArgumentError(message)


def check_configuration(kernel: object, grid: object, block: object, forall: object) -> None:
    """Raise LaunchError unless either grid and block are given, or forall."""
    if (grid is None) == (forall is None) or (forall is None and block is None):
        message = f"{kernel} needs a configuration: either grid= and block=, or forall="
        raise LaunchError(message)
