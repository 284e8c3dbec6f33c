"""The CUDA driver through ctypes: starting it, its devices, contexts and errors.

`get()` starts the driver once for a process. Modules import this one only when they need the driver.
"""

from __future__ import annotations

import ctypes
import os
import sys

from . import errors, importing, new_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ..errors import CudaError

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
"""The file name of the driver's library."""

LOWEST = (12, 0)
"""The first CUDA version with the functions `cuLibrary*`, which load images without a context."""

INVALID_VALUE = 1
INVALID_CONTEXT = 201
_NOT_INITIALIZED = 3
_STUB_LIBRARY = 34
_NO_DEVICE = 100
_INVALID_DEVICE = 101

LAUNCHED = 1 << 16
"""The fast path adds this to the driver's code if it has launched, and a stream could not be made to wait."""

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED

LAST_DEFAULT_STREAM = 2
"""The handle of a thread's own default stream; like 0 and 1 it belongs to the current context."""

forked = False
"""True in a process that forked during or after `cuInit`; CUDA cannot be used there."""

_lock = new_lock()
_driver: Driver | None = None
_starting = False
_validity_flags: set[ValidityFlag] = set()
_after_forks: set[Callable[[], None]] = set()

_CELLS = 256
"""The length of `ValidityFlag.flights`: 16 cells in separate cache lines, as the extension expects."""

_pointer = ctypes.c_void_p
_out = ctypes.c_void_p  # ctypes.byref(...) and arrays convert to it
_int = ctypes.c_int  # also for unsigned ints: ctypes passes the same bits
_size = ctypes.c_size_t

_PROTOTYPES: dict[str, tuple[type, ...]] = {
    "cuDeviceGetCount": (_out,),
    "cuDeviceGet": (_out, _int),
    "cuDeviceGetName": (_out, _int, _int),
    "cuDeviceGetAttribute": (_out, _int, _int),
    "cuDevicePrimaryCtxGetState": (_int, _out, _out),
    "cuDevicePrimaryCtxRetain": (_out, _int),
    "cuCtxSetCurrent": (_pointer,),
    "cuCtxGetCurrent": (_out,),
    "cuCtxGetDevice": (_out,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (_out, _out),
    "cuCtxPushCurrent_v2": (_pointer,),
    "cuCtxPopCurrent_v2": (_out,),
    "cuLibraryLoadData": (_out, _pointer, _out, _out, _int, _out, _out, _int),
    "cuLibraryUnload": (_pointer,),
    "cuLibraryGetGlobal": (_out, _out, _pointer, _pointer),
    "cuLibraryGetKernel": (_out, _pointer, _pointer),
    "cuKernelGetFunction": (_out, _pointer),
    "cuFuncGetModule": (_out, _pointer),
    "cuKernelGetAttribute": (_out, _int, _pointer, _int),
    "cuKernelSetAttribute": (_int, _int, _pointer, _int),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (_out, _pointer, _int, _size),
    "cuOccupancyMaxPotentialClusterSize": (_out, _pointer, _out),
    "cuCtxGetStreamPriorityRange": (_out, _out),
    "cuOccupancyMaxPotentialBlockSize": (_out, _out, _pointer, _pointer, _size, _int),
    "cuEventCreate": (_out, _int),
    "cuEventRecord": (_pointer, _pointer),
    "cuEventDestroy_v2": (_pointer,),
    "cuStreamGetCtx": (_pointer, _out),
    "cuStreamWaitEvent": (_pointer, _pointer, _int),
    "cuPointerGetAttribute": (_out, _int, ctypes.c_uint64),
    "cuMemsetD32Async": (ctypes.c_uint64, _int, _size, _pointer),
    "cuMemAlloc_v2": (_out, _size),
    "cuMemFree_v2": (ctypes.c_uint64,),
    "cuMemcpyHtoD_v2": (ctypes.c_uint64, _pointer, _size),
    "cuMemcpyDtoH_v2": (_out, ctypes.c_uint64, _size),
    "cuGetErrorName": (_int, _out),
    "cuGetErrorString": (_int, _out),
    "cuStreamIsCapturing": (_pointer, _out),
    "cuTensorMapEncodeTiled": (_pointer, _int, _int, ctypes.c_uint64, _out, _out, _out, _out, _int, _int, _int, _int),
    "cuStreamSynchronize": (_pointer,),
    "cuThreadExchangeStreamCaptureMode": (_out,),
}

_ATTRIBUTES = {
    "threads": 1,
    "block_x": 2,
    "block_y": 3,
    "block_z": 4,
    "grid_x": 5,
    "grid_y": 6,
    "grid_z": 7,
    "shared": 8,
    "multiprocessors": 16,
    "integrated": 18,
    "major": 75,
    "minor": 76,
    "cooperative": 95,
    "cluster": 120,
    "shared_optin": 97,
}
"""The device attributes in use, under the names that `Device.limit` takes."""


class ValidityFlag(list[bool]):
    """A list with one item until it is retired, or the process forks. Launchers check it without a call.

    Attributes:
        flights: Counts of launches in progress in the extension, in several cells so that threads rarely share one.
        retired: A cell that is not 0 if the list is empty. C code reads it without the GIL.
    """

    __slots__ = ("_cells",)
    __hash__ = object.__hash__  # type: ignore[assignment]  # compared by identity
    __eq__ = object.__eq__

    def __init__(self) -> None:
        super().__init__([True])
        self._cells: dict[str, Any] = {}

    @property
    def flights(self) -> Any:
        """Return the counts of launches; `flights` and `retired` are allocated when the extension needs them."""
        return self._cells.get("flights") or self._cells.setdefault("flights", (ctypes.c_uint * _CELLS)())

    @property
    def retired(self) -> Any:
        """Return the cell."""
        cell = self._cells.get("retired") or self._cells.setdefault("retired", (ctypes.c_uint * 1)())
        if not self:  # another thread may have called `retire` before the cell existed
            cell[:] = [1]
        return cell

    def is_in_flight(self) -> bool:
        """Return True if a launch is in progress in the extension."""
        return any(self._cells.get("flights", ()))

    def retire(self) -> None:
        """Empty the list, and set the cell."""
        self.clear()
        if "retired" in self._cells:
            self._cells["retired"][:] = [1]


class _Functions(dict[str, "Callable[..., int]"]):
    """The functions of the driver by name, looked up at their first use."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Callable[..., int]]) -> None:
        self._make = make

    def __missing__(self, name: str) -> Callable[..., int]:
        function = self[name] = self._make(name, *_PROTOTYPES[name])
        return function


class Device:
    """A GPU.

    Attributes:
        index: The ordinal in this process, by the driver.
        handle: The driver's handle (`CUdevice`).
        capability: The compute capability, `(major, minor)`.
    """

    __slots__ = ("_driver", "_limits", "_name", "capability", "handle", "index")

    def __init__(self, driver: Driver, index: int) -> None:
        handle = _int()
        driver.check(driver.call["cuDeviceGet"](ctypes.byref(handle), index), f"GPU {index} could not be opened")
        self._driver = driver
        self._limits: dict[str, int] = {}
        self._name = ""
        self.index = index
        self.handle = handle.value
        self.capability = (self.limit("major"), self.limit("minor"))

    def limit(self, name: str) -> int:
        """Return a device attribute, by its name in `_ATTRIBUTES`."""
        value = self._limits.get(name)
        if value is None:
            result = _int()
            code = self._driver.call["cuDeviceGetAttribute"](ctypes.byref(result), _ATTRIBUTES[name], self.handle)
            self._driver.check(code, f"GPU {self.index} did not report its attribute {_ATTRIBUTES[name]} ({name})")
            value = self._limits[name] = result.value
        return value

    @property
    def name(self) -> str:
        """Return the name of the product, for messages; "unnamed" if the driver does not report it."""
        if not self._name:
            name = ctypes.create_string_buffer(256)
            if self._driver.call["cuDeviceGetName"](name, len(name), self.handle):
                return "unnamed"
            self._name = name.value.decode(errors="replace")
        return self._name

    def is_tegra(self) -> bool:
        """Return True for a Tegra GPU, which shares the memory of its CPU."""
        if not self.limit("integrated"):
            return False
        with importing:
            from ..gpus import TEGRA  # noqa: PLC0415 (few machines have such a GPU)

        return self.capability in TEGRA

    @property
    def driver_version(self) -> tuple[int, int]:
        """Return the newest CUDA version that its driver supports."""
        return self._driver.version

    def __str__(self) -> str:
        major, minor = self.capability
        return f"GPU {self.index} ({self.name}, compute capability {major}.{minor})"


class Driver:
    """The driver after its start.

    Attributes:
        version: The newest CUDA version that it supports, `(major, minor)`.
        devices: The GPUs that it shows.
        call: The driver's functions by name, each returning a `CUresult`; looked up at their first use.
        launch: `cuLaunchKernelEx`, called with ctypes values and without `argtypes`, which are slow.
    """

    def __init__(self) -> None:
        if (problem := _launch_problem()) is not None:
            raise errors.NoDriverError(problem)
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            message = (
                f"the CUDA driver library {LIBRARY} cannot be loaded ({error}); "
                "install NVIDIA's driver, or run where a GPU is available"
            )
            raise errors.NoDriverError(message) from None
        self.call = _Functions(self._function)
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self._start()
        self.launch = self.without_types("cuLaunchKernelEx")
        count = _int()
        self.check(self.call["cuDeviceGetCount"](ctypes.byref(count)), "the GPUs could not be counted")
        if count.value == 0:
            raise _errors().no_device()
        self.devices = [Device(self, index) for index in range(count.value)]

    def _start(self) -> None:
        """Start the driver and check its version."""
        code = self._function("cuInit", _int)(0)
        if code == _NO_DEVICE:
            raise _errors().no_device()
        if code == _STUB_LIBRARY:
            message = f"{LIBRARY} is the toolkit's stub, not a driver; remove it from the library path"
            raise errors.NoDriverError(message)
        if code == _NOT_INITIALIZED:
            raise _errors().forked()
        self.check(code, "the CUDA driver could not be started")
        version = _int()
        self.check(
            self._function("cuDriverGetVersion", _out)(ctypes.byref(version)), "the driver did not report its version"
        )
        self.version = (version.value // 1000, version.value % 1000 // 10)
        if self.version < LOWEST:
            message = (
                f"the driver supports CUDA {self.version[0]}.{self.version[1]}; aotcuda needs one that supports "
                f"CUDA {LOWEST[0]}.{LOWEST[1]} (driver 525) or newer"
            )
            raise errors.DriverTooOldError(message)

    def _function(self, name: str, *types: type) -> Callable[..., int]:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise self._lacks(name) from None
        function.restype = _int
        if types:
            function.argtypes = types
        result: Callable[..., int] = function
        return result

    def _lacks(self, name: str) -> Exception:
        message = f"{LIBRARY} has no {name}; aotcuda needs a driver for CUDA {LOWEST[0]}.{LOWEST[1]} or newer"
        return errors.DriverTooOldError(message)

    def without_types(self, name: str) -> Callable[..., int]:
        """Return a driver function that is called with ctypes objects and converts no arguments.

        Raises:
            DriverTooOldError: The driver lacks the function.
        """
        try:
            function: Callable[..., int] = self._library[name]
        except AttributeError:
            raise self._lacks(name) from None
        return function

    def address(self, name: str) -> int:
        """Return the address of one of the driver's functions."""
        try:
            return ctypes.addressof(_pointer.in_dll(self._library, name))
        except ValueError:
            raise self._lacks(name) from None

    def check(self, code: int, problem: str) -> None:
        """Raise a CudaError that begins with `problem` unless `code` means success."""
        if code:
            raise self.error(code, problem)

    def error(self, code: int, problem: str, *, asynchronous: bool = True) -> CudaError:
        """Return the error for a `CUresult`, with the driver's name and text.

        Args:
            code: The `CUresult`.
            problem: How the message begins.
            asynchronous: Whether an earlier kernel may have caused the error.
        """
        error: CudaError = _errors().make_error(self, code, problem, asynchronous=asynchronous)
        return error

    def current_device(self) -> int | None:
        """Return the ordinal of the GPU whose context is current in this thread; None without one."""
        handle = _int()
        code = self.call["cuCtxGetDevice"](ctypes.byref(handle))
        if code == INVALID_CONTEXT:
            return None
        self.check(code, "the current context's GPU could not be read")
        for device in self.devices:
            if device.handle == handle.value:
                return device.index
        message = f"the current context is on a GPU (CUdevice {handle.value}) that the driver did not count"
        raise errors.CudaError(message, name="CUDA_ERROR_INVALID_DEVICE", code=_INVALID_DEVICE)

    def current_context(self) -> int:
        """Return the handle of this thread's current context; 0 without one."""
        handle = _pointer()
        self.check(self.call["cuCtxGetCurrent"](ctypes.byref(handle)), "the current context could not be read")
        return handle.value or 0

    def make_current(self, index: int) -> None:
        """Make the primary context of a GPU current in this thread; other libraries use this context, too."""
        code = self.call["cuCtxSetCurrent"](self._primary_context(index))
        if code:  # the GPU's name is only queried for an error
            raise self.error(code, f"the primary context of {self.devices[index]} could not be made current")

    def _primary_context(self, index: int) -> ctypes.c_void_p:
        device = self.devices[index]
        with _lock:
            context = self._contexts.get(index)
            if context is None or not self._is_active(device):  # another library may have reset it
                context = ctypes.c_void_p()
                code = self.call["cuDevicePrimaryCtxRetain"](ctypes.byref(context), device.handle)
                if code:
                    raise self.error(code, f"no context could be made on {device}")
                self._contexts[index] = context
            return context

    def call_in(self, context: int, function: Callable[[], object]) -> bool:
        """Call a function while a context is current; return False if the context no longer exists."""
        push, pop = self.call["cuCtxPushCurrent_v2"], self.call["cuCtxPopCurrent_v2"]
        codes: list[int] = []
        popped = ctypes.byref(_pointer())
        try:
            codes += map(push, (context,))  # `finally` has the result even if an interrupt follows the call
            if not any(codes):
                function()
        finally:
            if codes == [0]:
                pop(popped)
        return codes == [0]

    def wait_for_kernels(self) -> None:
        """Wait for all kernels in the current context and in primary contexts, also during captures.

        The driver's errors are ignored: no kernel runs after them.
        """
        try:
            contexts = [self._primary_context(each.index).value or 0 for each in self.devices if self._is_active(each)]
            if contexts:
                self._wait_in(dict.fromkeys([self.current_context() or contexts[0], *contexts]))
        except errors.CudaError:
            return

    def _wait_in(self, contexts: Iterable[int]) -> None:
        exchange, mode = self.call["cuThreadExchangeStreamCaptureMode"], ctypes.byref(_int(_RELAXED))
        try:
            exchange(mode)
            for context in contexts:
                self.call_in(context, self.call["cuCtxSynchronize"])
        finally:
            exchange(mode)

    def _is_active(self, device: Device) -> bool:
        flags, active = _int(), _int()
        code = self.call["cuDevicePrimaryCtxGetState"](device.handle, ctypes.byref(flags), ctypes.byref(active))
        if code:
            raise self.error(code, f"the state of the context on {device} could not be read")
        return active.value != 0

    def pointer_device(self, address: int) -> int | None:
        """Return the ordinal of an address's GPU; None if the address is unknown to the driver."""
        ordinal = _int()
        if self.call["cuPointerGetAttribute"](ctypes.byref(ordinal), 9, address):
            return None
        return ordinal.value


def get() -> Driver:
    """Return the driver; start it at the first call.

    Raises:
        NoDriverError: There is no driver library.
        NoDeviceError: It shows no GPU.
        DriverTooOldError: It lacks a function that every launch needs.
        ForkError: This process forked after the driver was started.
        CudaError: It could not be started for another reason.
    """
    global _driver, _starting  # noqa: PLW0603 (CUDA has one driver for a process)
    check_fork()
    with _lock:
        if _driver is None:
            after_fork(_after_fork)  # another thread may fork while it starts
            _starting = True
            try:
                _driver = Driver()
            finally:
                _starting = False
        return _driver


def is_installed() -> bool:
    """Return True if this system can launch kernels and has the driver's library, without starting the driver."""
    if _launch_problem() is not None:
        return False
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


def installed_version() -> tuple[int, int] | None:
    """Return the CUDA version that the driver supports, without starting it; None without a driver."""
    try:
        get_version = ctypes.CDLL(LIBRARY).cuDriverGetVersion
    except (OSError, AttributeError):
        return None
    version = _int()
    return None if get_version(ctypes.byref(version)) else (version.value // 1000, version.value % 1000 // 10)


def check_fork() -> None:
    """Raise ForkError in a process that forked after CUDA was started."""
    if forked:
        raise _errors().forked()


def new_validity_flag() -> ValidityFlag:
    """Return a new flag, which is retired in a forked process."""
    flag = ValidityFlag()
    _validity_flags.add(flag)
    return flag


def retire(flag: ValidityFlag) -> None:
    """Retire a flag of `new_validity_flag`."""
    flag.retire()
    _validity_flags.discard(flag)


def _launch_problem() -> str | None:
    if sys.platform == "linux":
        return None
    from ..common import system  # noqa: PLC0415 (Linux does not need it)

    return system.why_no_launches()


def after_fork(function: Callable[[], None]) -> None:
    """Call `function` once in each forked process, even if it is registered several times."""
    if sys.platform == "linux" and function not in _after_forks:  # Python cannot unregister the call
        _after_forks.add(function)
        os.register_at_fork(after_in_child=function)


def _after_fork() -> None:
    global forked  # noqa: PLW0603
    if _driver is None and not _starting:  # the driver's start has failed
        return
    forked = True
    for flag in _validity_flags:
        flag.retire()


def _errors() -> Any:
    with importing:
        from . import driver_errors  # noqa: PLC0415 (most programs have none)

    return driver_errors
