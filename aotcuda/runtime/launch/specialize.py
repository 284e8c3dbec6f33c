"""Add a specialization to the fast path in C after a launch by the general path."""

from __future__ import annotations

from .. import errors
from .launch_config import checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..images.device_kernel import DeviceKernel
    from ..images.kernel_table import KernelTable
    from .arguments.overloads import Specialization
    from .launch_config import Configuration

_MOST_IN_FAST_PATH = 64


def add_to_fast_path(
    kernel_table: KernelTable,
    specializations: Any,
    specialization: Specialization,
    args: tuple[object, ...],
    configuration: Configuration,
    where: str,
) -> None:
    """Add a specialization to the fast path in C after a launch with `args`, unless it is there for this context.

    The fast path launches no debug kernels, and nothing under `AOTCUDA_SYNCHRONIZE`: those launches wait for the
    kernel.
    """
    library = kernel_table.library
    if library.synchronous:
        return
    context, device = 0, library.device
    if device < 0:  # several GPUs, or callbacks, which run in each context
        try:
            context, device = library.driver.current_context(), library.driver.current_device() or 0
        except errors.CudaError:  # the launch has succeeded, and must not raise
            return
    # Attributes are checked with their block and shared memory alone; other launches are compared with limits.
    attributes, shared = configuration.attributes, configuration.shared
    which: object = shared
    if configuration.by_number:
        which = None, shared
    elif attributes is not None:
        which = configuration.block, shared, attributes.values()
    key, in_fast_path = (which, context), specialization.in_fast_path
    if key in in_fast_path:
        return
    if library.callbacks is not None and not library.callbacks.has_seen(context):
        return  # this is a launch of a setup callback; launches of other threads must wait for the setup
    if len(in_fast_path) >= _MOST_IN_FAST_PATH:
        in_fast_path.clear()
    try:
        in_fast_path.add(key)
        kernels = _device_kernels(kernel_table, specialization, device, configuration, where)
        if kernels is not None:
            from .fast import specializations as fast_path  # noqa: PLC0415 (many kernels are launched once)

            fast_path.add(specializations, library, specialization, kernels, args, configuration)
        elif attributes is not None:
            in_fast_path.discard(key)  # another grid may be possible
    except BaseException:  # an interrupt: the next launch adds the specialization
        in_fast_path.discard(key)
        raise


def add_miss_to_fast_path(
    kernel_table: KernelTable, specializations: Any, specialization: Specialization, args: tuple[object, ...]
) -> None:
    """Record in the fast path in C, on machines with one GPU, that no overload accepts the types of arguments."""
    if kernel_table.library.device < 0 or specialization.in_fast_path:
        return
    specialization.in_fast_path.add((None, 0))
    from .fast import specializations as fast_path  # noqa: PLC0415 (few launches are missed)

    fast_path.add_miss(specializations, kernel_table.library, kernel_table.live, specialization, args)


def _device_kernels(
    kernel_table: KernelTable, specialization: Specialization, device: int, configuration: Configuration, where: str
) -> list[DeviceKernel] | None:
    """Return the overloads of a specialization, ready to launch; None if any of them needs the general path."""
    kernels = []
    try:
        for overload in specialization.overloads:
            if kernel_table.needs_jit(overload, device):
                return None  # `device_kernel` might compile it
            kernel = kernel_table.device_kernel(overload, device)
            if configuration.attributes is not None:
                checked(configuration, kernel, where)
            elif configuration.shared <= kernel.device.limit("shared_optin") - kernel.static_shared:
                kernel.allow_for(configuration.shared)
            if configuration.by_number:
                kernel.best_block(configuration.shared)  # the context of the launch is current
            fixed = kernel.fixed
            is_cooperative = kernel.cooperative or (
                fixed is not None and ("cluster" in fixed or fixed.get("cooperative", False))
            )
            needs_scratch = fixed is not None and "scratch" in fixed
            # If the kernel is not cached, its images have callbacks, which run in each context.
            is_cached = overload.kernels.get(device) is kernel
            if is_cooperative or needs_scratch or kernel.watch is not None or not is_cached:
                return None
            kernels.append(kernel)
    except errors.AotcudaError:  # the overload was not launched; a launch of it raises the error
        return None
    return kernels
