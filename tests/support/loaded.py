"""Test what is loaded of a module, for tests that look inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aotcuda import Kernel
    from aotcuda.runtime.arguments.argument_layout import PackedOverload
    from aotcuda.runtime.device_kernel import DeviceKernel
    from aotcuda.runtime.kernel_table import KernelTable


def of(kernel: Kernel) -> KernelTable:
    """Return what the kernel's module launches now; it has to be loaded."""
    found = kernel._loader.current
    assert found is not None
    return found


def overloads(kernel: Kernel) -> list[PackedOverload]:
    """Return the kernel's overloads."""
    return of(kernel).table(kernel.__name__).overloads


def device_kernel(kernel: Kernel, number: int = 0, device: int = 0) -> DeviceKernel:
    """One of them on a GPU, which was launched there."""
    found: DeviceKernel = overloads(kernel)[number].kernels[device]
    return found
