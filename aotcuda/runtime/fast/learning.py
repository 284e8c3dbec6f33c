"""What the extension is told of launches that were accepted: how to read such arguments, and which overloads to try.

It reads the arguments itself, and learns nothing where what it reads is not what the overloads take. A kernel that is
launched once does not import this.
"""

from __future__ import annotations

import ctypes
import struct

from aotcuda.runtime import driver as drivers
from aotcuda.runtime import fast, foreign_names, module_of
from aotcuda.runtime.arguments import arrays, parameters, scalars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.runtime.arguments.argument_layout import PackedOverload
    from aotcuda.runtime.arguments.overloads import Specialization
    from aotcuda.runtime.fast import Records
    from aotcuda.runtime.loaded_library import DeviceKernel, LoadedLibrary

_KINDS = {"cupy": 1, "torch": 2, "interface": 3, "exchange": 4, "numba": 5, "cupy subclass": 6}
_RARE = (
    "cuEventCreate",
    "cuEventRecord",
    "cuEventDestroy_v2",
    "cuStreamWaitEvent",
    "cuStreamIsCapturing",
)
"""The driver's functions for launches that wait for a stream, as the extension wants them; `Driver.launch` follows."""

_EXCHANGE = "__dlpack_c_exchange_api__"
_INT, _FLOAT, _COMPLEX, _TRUTH, _INDEX, _PLAIN = 16, 17, 18, 19, 20, 21


def learn(
    kept: Records,
    library: LoadedLibrary,
    specialization: Specialization,
    kernels: list[DeviceKernel],
    args: tuple[object, ...],
    shared: int,
) -> bool:
    """Tell the extension which overloads to try for arguments like these, after a launch; False if it cannot.

    Args:
        kept: Where it is noted, for all launchers that share it; they need not ask whether they may launch.
        library: The loaded images.
        specialization: The overloads.
        kernels: The same on the GPU of the launch.
        args: The arguments.
        shared: Bytes of dynamic shared memory, which a launch has opted in to already.
    """
    try:
        families = [arrays.family(arg) for arg in args]
        kinds = [_kind(arg) for arg in args]
    except Exception:  # noqa: BLE001 (an argument that has changed since it was accepted)
        return False
    overloads = [_compiled(kept, overload) for overload in specialization.overloads]
    if None in kinds or None in overloads:
        return False
    if "cupy" in families:
        _use_cupy()
    if "torch" in families:
        fast.in_use().set_torch_stream(arrays.torch_stream())
    drivers.after_fork(fast.in_use().disable)
    driver = library.driver
    live = specialization.overloads[0].live
    device = kernels[0].device.index if len(driver.devices) > 1 else -1
    current = 0 if library.device >= 0 else driver.address("cuCtxGetCurrent")
    learnt: bool = kept.table.add(
        args,
        bytes(kind for kind in kinds if kind is not None),
        tuple([(overload, *_launched(kernel)) for overload, kernel in zip(overloads, kernels, strict=True)]),
        live,
        device,
        driver.address("cuLaunchKernel"),
        current,
        driver.address("cuPointerGetAttribute"),
        driver.address("cuStreamGetCtx"),
        (*[driver.address(name) for name in _RARE], driver.address("cuLaunchKernelEx")),
        ctypes.addressof(live.flights),  # the record keeps `live`
        _limits(kernels, shared),
        arrays.element,
    )
    return learnt


def _compiled(kept: Records, overload: PackedOverload) -> object:
    """An overload as the extension has it, None if one of its parameters is not for it."""
    if overload not in kept.overloads:
        for each in list(kept.overloads):  # which other threads may be adding to
            if not each.live:
                kept.overloads.pop(each, None)
        plan = None
        try:
            described = tuple([parameters.of(parameter).record(parameter) for parameter in overload.parameters])
            if None not in described:
                starts = struct.pack(f"<{len(overload.starts)}i", *overload.starts)
                apart = bytes([at for pair in overload.apart for at in pair])
                plan = fast.in_use().ArgumentLayout(overload.size, described, starts, apart)
        except (LookupError, ValueError):
            pass
        return kept.overloads.setdefault(overload, plan)
    return kept.overloads.get(overload)


def _launched(kernel: DeviceKernel) -> tuple[int | None, int, int]:
    """A kernel's handle, then threads of a block and bytes of dynamic shared memory where they are its own, else 0."""
    fixed = kernel.fixed
    return kernel.kernel.value, fixed["threads"] if fixed else 0, fixed["shared"] if fixed else 0


def _limits(kernels: list[DeviceKernel], shared: int) -> tuple[int, ...]:
    """The largest grid, block, shared memory and number of threads that all of a group's overloads may have.

    Dynamic shared memory beyond the driver's default counts where a launch with `shared` bytes has asked for it.
    """
    *extents, plain, threads = map(min, zip(*[kernel.unasked() for kernel in kernels], strict=True))
    if shared > plain:
        plain = min(kernel.device.limit("shared_optin") - kernel.static_shared for kernel in kernels)
    return *extents, plain, threads


def _kind(arg: object) -> int | None:
    """How the extension reads an argument, None if it does not."""
    family = arrays.family(arg)
    if family == "torch" and arrays.is_of_library(arg) and hasattr(type(arg), _EXCHANGE):
        return _KINDS["exchange"]
    if family == "cupy" and not arrays.is_of_library(arg):
        return _KINDS["cupy subclass"]
    if family is not None:
        return _KINDS.get(family)
    if arg is None or type(arg) is str:
        return _PLAIN
    if not isinstance(arg, (int, float, complex)) and module_of(type(arg)).partition(".")[0] != "numpy":
        return None  # reading it runs code, which may change arrays that were read before
    number = scalars.kind_of(arg)
    if number is None or scalars.is_foreign(arg):
        return None
    if number == "int":
        return _INT if isinstance(arg, int) else _INDEX
    if number == "bool":
        return _INT if arg is True or arg is False else _TRUTH
    if number == "float":
        return _FLOAT
    return _COMPLEX if isinstance(arg, complex) else None


def _use_cupy() -> None:
    """Say where CuPy tells its current stream: a C function, where this CuPy has one."""
    functions = foreign_names.CUPY_STREAM.find() or {}
    in_c = [functions.get(name) for name in ("get_current_stream_ptr", "get_stream_ptr")]
    contiguous = foreign_names.CUPY_CONTIGUOUS.path
    fast.in_use().set_cupy(contiguous, *in_c, arrays.cupy_stream(), arrays.cupy_says_stream())
