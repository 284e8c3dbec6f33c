"""Give C a specialization after launches by Python: how it reads arguments of some types, and the overloads for them.

C reads the arguments again, and adds nothing if the overloads do not accept them. A program that launches each kernel
once does not import this module.
"""

from __future__ import annotations

import ctypes
import struct
import sys

from .. import driver as drivers
from .. import errors, module_of
from . import config_key, fast
from .arguments import arrays, foreign_names, parameter_kinds, scalars
from .launch_attributes import LaunchAttributes, most_cooperative_blocks
from .launch_config import checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..driver import Driver
    from ..images.device_kernel import DeviceKernel
    from ..images.kernel_table import KernelTable
    from .arguments.argument_layout import PackedOverload
    from .arguments.keys import Coder
    from .arguments.overloads import Specialization
    from .launch_config import Configuration

_MOST_IN_FAST_PATH = 64
_KINDS = {"cupy": 1, "torch": 2, "interface": 3, "exchange": 4, "numba": 5, "cupy subclass": 6}
_FUNCTIONS = (
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuCtxGetCurrent",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuPointerGetAttribute",
    "cuStreamGetCtx",
    "cuStreamIsCapturing",
    "cuStreamWaitEvent",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventDestroy_v2",
)
"""The driver's functions that the fast path calls, in the order of `Driver` in launch.h."""

_EXCHANGE = "__dlpack_c_exchange_api__"
_READ_OF_TENSORS = frozenset(
    (
        "__getattr__",
        "__getattribute__",
        "__torch_function__",
        "data_ptr",
        "dtype",
        "element_size",
        "get_device",
        "is_conj",
        "is_contiguous",
        "is_cuda",
        "shape",
        "storage_offset",
        "stride",
    )
)
"""The attributes by which the general path reads a tensor. If a subclass overrides one, C reads attributes, too."""
_INT, _FLOAT, _COMPLEX, _TRUTH, _INDEX, _CONSTANT, _OBJECT = 16, 17, 18, 19, 20, 21, 22
_MOST_BLOCKS = 0xFFFFFFFF
"""The limit of a grid's blocks where there is none; C counts no more blocks."""
_OF_TRITON = (("triton.language.core", "dtype"), ("triton.language.core", "constexpr"), ("torch", "dtype"))
"""Classes of immutable constants."""


def use_driver(driver: Driver) -> None:
    """Give the fast path the driver's functions, and disable it in a process that forks."""
    fast.in_use().use_driver(tuple([driver.address(name) for name in _FUNCTIONS]))
    fast.in_use().set_stream_readers(config_key.readers)
    drivers.after_fork(fast.in_use().disable)


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
    key, in_fast_path = (configuration.kind, context), specialization.in_fast_path
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
            candidates = _candidates(specialization.overloads, kernels, configuration)
            ordinal = device if len(library.driver.devices) > 1 else -1
            if candidates is not None:
                limits = _limits(kernels, configuration)
                _add(kernel_table, specializations, specialization, candidates, ordinal, limits, args, configuration)
        elif configuration.attributes is not None:
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
    _add(kernel_table, specializations, specialization, (), -1, (0,) * 9, args)


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
            if configuration.elements:
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


def _candidates(
    overloads: list[PackedOverload], kernels: list[DeviceKernel], configuration: Configuration
) -> tuple[tuple[object, ...], ...] | None:
    """Return the overloads in the form of `Candidate` in launch.h; None if the fast path does not support one."""
    candidates = []
    for overload, kernel in zip(overloads, kernels, strict=True):
        if overload.fast_layout is None:
            overload.fast_layout = _layout(overload)
        if overload.fast_layout is False:
            return None
        candidates.append((overload.fast_layout, *_describe_kernel(kernel, configuration)))
    return (*candidates,)


def _add(
    kernel_table: KernelTable,
    specializations: Any,
    specialization: Specialization,
    candidates: tuple[object, ...],
    device: int,
    limits: tuple[int, ...],
    args: tuple[object, ...],
    configuration: Configuration | None = None,
) -> None:
    """Add a specialization, unless C does not support an argument or a coder.

    Args:
        kernel_table: The kernels of the loaded images.
        specializations: The fast path's specializations of the kernel.
        specialization: The specialization.
        candidates: The result of `_candidates`; empty for a miss.
        device: With several GPUs, the GPU of the launch; else -1.
        limits: The result of `_limits`.
        args: The arguments.
        configuration: The configuration of the launch; None for a miss.
    """
    library, live = kernel_table.library, kernel_table.live
    try:
        families = [arrays.family(arg) for arg in args]
        kinds = [_kind(arg) for arg in args]
    except Exception:  # noqa: BLE001 (an argument that has changed since it was accepted)
        return
    coders = _coders(specialization.coders, kinds)
    if None in kinds or coders is None:
        return
    if "cupy" in families:
        _use_cupy()
    if "torch" in families:
        fast.in_use().set_torch_stream(arrays.torch_stream())
    use_driver(library.driver)
    attributes: bytes | None = None
    only = (0, 0, 0, 0)
    if configuration is not None and configuration.elements:
        attributes, only = b"", (0, 0, 0, configuration.shared)
    elif configuration is not None and configuration.attributes is not None:
        attributes, only = configuration.attributes.encoded(), (*configuration.block, configuration.shared)
    served = specialization.served
    try:
        specializations.add(
            args,
            bytes(kind for kind in kinds if kind is not None),
            candidates,
            coders,
            live,
            ctypes.addressof(live.flights),  # the specialization keeps `live`
            device,
            library.device < 0,
            limits,
            arrays.element,
            served and served[0],
            0 if served is None else ctypes.addressof(served[0]) + ctypes.sizeof(ctypes.c_ulonglong) * served[1],
            attributes,
            only,
        )
    except (OverflowError, TypeError, ValueError):  # a coder that C does not support
        return


def _layout(overload: PackedOverload) -> object:
    """Return an overload's layout for the fast path; False if the fast path does not support a parameter."""
    try:
        described = tuple([parameter_kinds.kind_of(parameter).record(parameter) for parameter in overload.parameters])
        if None in described:
            return False
        starts = struct.pack(f"<{len(overload.starts)}i", *overload.starts)
        apart = bytes([at for pair in overload.apart for at in pair])
        return fast.in_use().ArgumentLayout(overload.size, described, starts, apart)
    except (LookupError, ValueError):
        return False


def _coders(coders: Sequence[Coder], kinds: Sequence[int | None]) -> tuple[object, ...] | None:
    """Return coders in the form of `Coder` in launch.h; None if the fast path does not support one.

    Each key in C has the element types and dimensions of arrays, so coders that have nothing else are omitted.
    """
    result = []
    for coder in coders:
        is_number = (kinds[coder.at] or 0) >= _INT
        if is_number and coder.tests and kinds[coder.at] not in (_INT, _TRUTH, _INDEX):
            return None
        tests = tuple([(test == "equal", number) for test, number in coder.tests])
        if tests or coder.any_dimensions or coder.has_type or coder.is_value:
            result.append((coder.at, coder.any_dimensions, coder.has_type, coder.is_value, tests))
    return (*result,)


def _describe_kernel(kernel: DeviceKernel, configuration: Configuration) -> tuple[object, ...]:
    """Return a kernel in the form of `Candidate` in launch.h.

    That is its handle, its only block, its block of most occupancy for launches by number of elements, and, if they are
    fixed, the threads of a block, shared memory and attributes.
    """
    fixed, block = kernel.fixed, kernel.block or (0, 0, 0)
    best = kernel.best_block(configuration.shared) if configuration.elements else 0
    if fixed is None:
        return kernel.kernel.value, block, best
    attributes = LaunchAttributes("", dependent=True).encoded() if fixed.get("dependent") else b""
    return kernel.kernel.value, block, best, fixed["threads"], fixed["shared"], attributes


def _limits(kernels: list[DeviceKernel], configuration: Configuration) -> tuple[int, ...]:
    """Return the largest configuration that all overloads may have: `DeviceKernel.unchecked_limits`, and its blocks."""
    limits = map(min, zip(*[kernel.unchecked_limits() for kernel in kernels], strict=True))
    most_blocks = _MOST_BLOCKS
    if configuration.attributes is not None and configuration.attributes.cooperative:
        most_blocks = min(most_cooperative_blocks(kernel, *configuration.numbers[6:]) for kernel in kernels)
    return *limits, most_blocks


def _kind(arg: object) -> int | None:
    """Return the code of the fast path's reader for an argument; None if it has none."""
    family = arrays.family(arg)
    if family == "torch" and hasattr(type(arg), _EXCHANGE) and _shows_its_memory(type(arg)):
        return _KINDS["exchange"]
    if family == "cupy" and not arrays.is_base_class(type(arg)):
        return _KINDS["cupy subclass"]
    if family is not None:
        return _KINDS.get(family)
    if arg is None or type(arg) is str:
        return _CONSTANT
    if (module_of(type(arg)), type(arg).__name__) in _OF_TRITON:
        return _OBJECT
    if not isinstance(arg, (int, float, complex)) and module_of(type(arg)).partition(".")[0] != "numpy":
        return None  # reading it runs Python code, which may change arrays that C has read already
    number = scalars.kind_of(arg)
    if number is None or scalars.is_from_other_library(arg):
        return None
    if number == "int":
        return _INT if isinstance(arg, int) else _INDEX
    if number == "bool":
        return _INT if arg is True or arg is False else _TRUTH
    if number == "float":
        return _FLOAT
    return _COMPLEX if isinstance(arg, complex) else None


def _shows_its_memory(kind: type) -> bool:
    """Return True if a class overrides no attribute of PyTorch's tensor: DLPack's exchange then gives equal values."""
    for base in kind.__mro__:
        if (module_of(base), base.__name__) == ("torch", "Tensor"):
            return True
        if not arrays.is_base_class(base) and not _READ_OF_TENSORS.isdisjoint(base.__dict__):
            return False
    return False


def _use_cupy() -> None:
    """Give the fast path CuPy's classes, names and stream functions (in C if CuPy has them)."""
    functions = foreign_names.CUPY_STREAM.find() or {}
    in_c = [functions.get(name) for name in ("get_current_stream_ptr", "get_stream_ptr")]
    cupy: Any = sys.modules["cupy"]
    classes = getattr(cupy, "ndarray", None), getattr(cupy.cuda, "MemoryPointer", None)
    contiguous = foreign_names.CUPY_CONTIGUOUS.path
    fast.in_use().set_cupy(*classes, contiguous, *in_c, cupy.cuda.get_current_stream, arrays.orders_cupy_stream())
