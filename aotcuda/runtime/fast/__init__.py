"""The fast-path extension, if this installation has it: `fast._launch`, which does in C what `fast.python` does.

It takes what `aotcuda.runtime.fast.python` takes, but for tuples, float16 and some complex scalars, addresses as
`ctypes.c_void_p`, and cooperative kernels. It is told how to read arguments of some types, and which overloads to try;
it reads them itself, and learns nothing where what it reads is not what the overloads take. `AOTCUDA_EXTENSION=0`
leaves it out.
"""

from __future__ import annotations

import _struct as struct
import os
import sys
from _thread import allocate_lock

from aotcuda import system
from aotcuda.runtime import c_types as ctypes
from aotcuda.runtime import driver as drivers
from aotcuda.runtime.arguments import arrays, parameters, scalars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from aotcuda.runtime.arguments.overloads import Group, PackedOverload
    from aotcuda.runtime.launch_config import Configuration
    from aotcuda.runtime.loaded_library import DeviceKernel, LoadedLibrary

    Named = tuple[tuple[str, ...], tuple[object, ...], int]
    """Interned names, in order; what each is that is left out, the names themselves if it must not be; how many of them
    may be given by position."""

_VERSION = 17
"""Of the interface between the two: in an editable install the extension may be older than what is beside it."""

_VARIABLES = ("AOTCUDA_EXTENSION", "AOTCUDA_ACCELERATOR")
"""Either leaves the extension out where it is 0; the second is the name of earlier days."""

_MOST = 0xFFFFFFFF
"""What a dimension of a grid has room for in the driver's call."""

_KINDS = {"cupy": 1, "torch": 2, "interface": 3, "exchange": 4, "numba": 5, "cupy layout": 6}
_RARE = (
    "cuEventCreate",
    "cuEventRecord",
    "cuEventDestroy_v2",
    "cuStreamWaitEvent",
    "cuStreamIsCapturing",
)
"""The driver's functions for launches that wait for a stream, as the extension wants them; `Driver.launch` follows."""

_EXCHANGE = "__dlpack_c_exchange_api__"
_READ_BY_EXCHANGE = (
    "__getattribute__",
    "__getattr__",
    "data_ptr",
    "dtype",
    "element_size",
    "get_device",
    "is_conj",
    "is_contiguous",
    "is_cuda",
    "is_neg",
    "ndim",
    "numel",
    "shape",
    "stride",
)
"""What a subclass of PyTorch's tensor must not have changed, to be read as the tensor that it is in C."""
_READ_BY_LAYOUT = ("__getattr__", "__getattribute__", "_c_contiguous", "data", "dtype", "ndim", "shape", "strides")
"""What a subclass of CuPy's array must not have changed, to be read in C where the array has it in memory."""

_OWN_LENGTH = 128
_INT, _FLOAT, _COMPLEX, _TRUTH, _INDEX, _PLAIN = 16, 17, 18, 19, 20, 21

_found: list[Any] = []  # the module or None, once it was looked for
_missing: list[str] = []  # why it is None, then
_RECORDS = "records"
_lock = allocate_lock()
"""Of the making of `Records`: launchers that did not share them would not share what they learn."""


def in_use() -> Any:
    """The extension module, None if it is not installed or not wanted."""
    if not _found:
        module, problem = _find()
        _missing[:] = [problem]
        _found.append(module)
    return _found[0]


def why_not() -> str | None:
    """Why launches go without the extension, None if they do not."""
    return None if in_use() is not None else " ".join(_missing)


def _find() -> tuple[Any, str]:
    """The extension module, or None and the reason."""
    for name in _VARIABLES:
        if os.environ.get(name) == "0":
            return None, f"{name} is 0"
    try:
        import aotcuda.runtime.fast._launch as _launch  # noqa: PLC0415, PLR0402 (only a launcher needs it)
    except ModuleNotFoundError:
        kind = system.kind_of_python()
        advice = "install a wheel for this platform, or from source with a C compiler"
        return None, f"this installation of aotcuda has none for {kind} on {sys.platform}; {advice}"
    except ImportError as error:
        return None, f"it cannot be imported: {error}"
    version = getattr(_launch, "VERSION", None)
    if version != _VERSION:
        return None, f"{_launch.__file__} is of another state of aotcuda; install aotcuda again"
    return _launch, ""


class Records:
    """What the extension has learnt of one kernel; its launchers share it.

    Attributes:
        table: The extension's own object.
    """

    __slots__ = ("_overloads", "table")

    def __init__(self, module: Any) -> None:
        self.table = module.Records()
        self._overloads: dict[PackedOverload, object] = {}

    def compiled(self, overload: PackedOverload) -> object:
        """An overload as the extension has it, None if one of its parameters is not for it."""
        if overload not in self._overloads:
            plan = None
            try:
                described = tuple([parameters.of(parameter).record(parameter) for parameter in overload.parameters])
                if None not in described:
                    starts = struct.pack(f"<{len(overload.starts)}i", *overload.starts)
                    apart = bytes([at for pair in overload.apart for at in pair])
                    plan = in_use().Plan(overload.size, described, starts, apart)
            except (LookupError, ValueError):
                pass
            self._overloads[overload] = plan
        return self._overloads[overload]


def records(shared: dict[object, Any], configuration: Configuration) -> Records | None:
    """A kernel's records, which `shared` holds; None where launches of this configuration go without the extension."""
    module = in_use()
    if module is None or drivers.forked or configuration.largest() > _MOST:  # no grid has so many; a launch says so
        return None
    if configuration.attributes is not None:  # whether a kernel can take them is known of this configuration alone
        return Records(module)
    with _lock:
        found: Records | None = shared.get(_RECORDS)
        if found is None:
            found = shared[_RECORDS] = Records(module)
    return found


def in_front(
    launcher: Callable[..., None], configuration: Configuration, kept: Records, named: Named | None = None
) -> Any:
    """The launcher wrapped in the fast path of the extension; where calls may name arguments, `named` says which."""
    dimensions = (*configuration.grid, *configuration.block, configuration.shared)
    attributes = configuration.attributes
    encoded = b"".join(map(bytes, attributes.encoded())) if attributes is not None else b""
    return in_use().Launcher(launcher, kept.table, dimensions, configuration.stream, encoded, *(named or ()))


def hold(launcher: object, stream: object) -> Any:
    """A launcher like this one of the extension's, which keeps a stream alive; None if it is another one."""
    module = in_use()
    return module.hold(launcher, stream) if module is not None and type(launcher) is module.Launcher else None


def configurations(launchers: dict[object, Any]) -> Any:
    """What finds a kernel's launchers, as `launcher.configurations` has it; None without the extension."""
    module = in_use()
    return None if module is None else module.Configurations(launchers)


def know_stream(kind: type, attribute: str | None) -> None:
    """Let `configurations` read streams of this type, by an attribute or by the protocol."""
    module = in_use()
    if module is None:
        return
    if attribute is not None:
        with _lock:
            module.know_stream_type(kind, attribute, False)
    elif callable(getattr(kind, "__cuda_stream__", None)):
        with _lock:
            module.know_stream_type(kind, "__cuda_stream__", True)


def learn(
    kept: Records,
    library: LoadedLibrary,
    group: Group,
    kernels: list[DeviceKernel],
    args: tuple[object, ...],
    shared: int,
) -> bool:
    """Tell the extension which overloads to try for arguments like these, after a launch; False if it cannot.

    Args:
        kept: Where it is noted, for all launchers that share it; they need not ask whether they may launch.
        library: The loaded images.
        group: The overloads.
        kernels: The same on the GPU of the launch.
        args: The arguments.
        shared: Bytes of dynamic shared memory, which a launch has opted in to already.
    """
    try:
        families = [arrays.family(arg) for arg in args]
        kinds = [_kind(arg) for arg in args]
    except Exception:  # noqa: BLE001 (an argument that has changed since it was accepted)
        return False
    overloads = [kept.compiled(overload) for overload in group.overloads]
    if None in kinds or None in overloads:
        return False
    if "cupy" in families:
        _use_cupy()
    if "torch" in families:
        in_use().set_torch_stream(arrays.torch_stream())
    if "numba" in families:
        _use_numba({type(arg) for arg, family in zip(args, families, strict=True) if family == "numba"})
    in_use().set_finder(_find_places)
    system.after_fork(in_use().disable)
    driver = library.driver
    device = kernels[0].device.index if len(driver.devices) > 1 else -1
    current = 0 if library.device >= 0 else drivers.address(driver.call["cuCtxGetCurrent"])
    learnt: bool = kept.table.learn(
        args,
        bytes(kind for kind in kinds if kind is not None),
        tuple([(overload, *_launched(kernel)) for overload, kernel in zip(overloads, kernels, strict=True)]),
        group.live,
        device,
        drivers.address(driver.call["cuLaunchKernel"]),
        current,
        drivers.address(driver.call["cuPointerGetAttribute"]),
        drivers.address(driver.call["cuStreamGetCtx"]),
        (*[drivers.address(driver.call[name]) for name in _RARE], drivers.address(driver.launch)),
        ctypes.addressof(group.live.flights),  # the record keeps `live`
        _limits(kernels, shared),
        arrays.element,
    )
    return learnt


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
    if family == "torch" and _has_exchange(arg):
        return _KINDS["exchange"]
    if family == "cupy" and arrays.inherits(arg, "ndarray", *_READ_BY_LAYOUT):
        return _KINDS["cupy layout"] | _own_length(arg, "ndarray")
    if family is not None:
        code = _KINDS.get(family)
        base = {"cupy": "ndarray", "torch": "Tensor"}.get(family)
        return code | _own_length(arg, base) if code and base else code
    if arg is None or type(arg) is str:
        return _PLAIN
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


def _own_length(array: object, base: str) -> int:
    """The flag of an array whose length is its extent, as its library has it."""
    return _OWN_LENGTH if arrays.inherits(array, base, "__len__", "shape") else 0


def _has_exchange(tensor: object) -> bool:
    """Whether a tensor can be read by DLPack's exchange in C, which sees what a subclass hides."""
    if not hasattr(type(tensor), _EXCHANGE) or not arrays.inherits(tensor, "Tensor", *_READ_BY_EXCHANGE):
        return False
    if arrays.inherits(tensor, "Tensor", "__torch_function__"):
        return True
    torch: Any = sys.modules["torch"]  # torch.nn.Parameter says that it has none
    return type(tensor).__torch_function__ is torch._C._disabled_torch_function_impl  # type: ignore[attr-defined]  # noqa: SLF001


def _find_places(array: object) -> bool:
    """Let it be found where arrays of a library have their members; whether to ask again with another one."""
    library = arrays.family(array)
    if library == "cupy":
        from aotcuda.runtime.fast import cupy_layout  # noqa: PLC0415 (only with CuPy)

        return not cupy_layout.tell(in_use(), array)
    if library == "numba":
        from aotcuda.runtime.fast import numba_layout  # noqa: PLC0415 (only with Numba)

        numba_layout.tell(in_use(), array)
        return False
    from aotcuda.runtime.fast import torch_layout  # noqa: PLC0415 (only with PyTorch)

    return not torch_layout.tell(in_use(), array)


def _use_cupy() -> None:
    """Say where CuPy tells its current stream: a C function, where this CuPy has one."""
    functions = getattr(sys.modules.get("cupy_backends.cuda.stream"), "__pyx_capi__", {})
    in_c = [functions.get(name) for name in ("get_current_stream_ptr", "get_stream_ptr")]
    in_use().set_cupy_stream(*in_c, arrays.cupy_stream(), arrays.cupy_says_stream())


def _use_numba(kinds: set[type]) -> None:
    """Say which memory of Numba's has its address in its view, for arrays of these classes."""
    for owner in map(arrays.numba_owner, kinds):
        if owner is not None:
            with _lock:
                in_use().add_numba_owner(owner)
