"""Stand in for the driver of Numba-CUDA and Numba-CUDA-MLIR, with host memory and without execution.

Both have a module `cudadrv.driver` for arrays, streams and devices. Its classes stay, and its driver is replaced.
"""

from __future__ import annotations

import ctypes
import itertools
import sys

import aotcuda_recorder
from aotcuda_recorder import dry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_ALIGNMENT = 256
_IDLE = frozenset(
    [
        "cuCtxPopCurrent", "cuCtxPushCurrent", "cuCtxSynchronize", "cuDevicePrimaryCtxRelease",
        "cuDevicePrimaryCtxReset", "cuCtxEnablePeerAccess", "cuEventDestroy", "cuEventQuery", "cuEventRecord",
        "cuEventSynchronize", "cuMemHostRegister", "cuMemHostUnregister", "cuProfilerStart", "cuProfilerStop",
        "cuStreamDestroy", "cuStreamSynchronize", "cuStreamWaitEvent", "cuInit",
    ]
)  # fmt: skip
"""Functions of the driver that do nothing."""


def patch(module: ModuleType) -> None:
    """Patch `cudadrv.driver` or `cudadrv.nvvm`."""
    if module.__name__.endswith(".nvvm"):
        module.__dict__["is_available"] = lambda: True
        return
    names: Any = module.__dict__
    device = _Device(module)
    calls = _Calls(module)
    driver: Any = names["Driver"]
    driver.is_available = property(lambda _: True)
    driver.ensure_initialized = lambda _: None
    driver.get_version = lambda _: aotcuda_recorder.stand_in("gpu").DRIVER
    driver.get_device_count = lambda _: 1
    driver.get_device = lambda _, devnum=0: device.check(devnum)
    driver.list_devices = lambda _: [device]
    driver.__getattr__ = lambda _, name: calls.function(name)
    names["driver"].initialization_error = None
    names["_logger"] = names["make_logger"]()
    names["_to_core_stream"] = lambda stream: stream
    names["Stream"].add_callback = lambda self, callback, arg=None: callback(self, 0, arg)
    context: Any = names["Context"]
    context.pop = lambda _: None
    context.get_max_potential_block_size = lambda *_, **__: (
        dry.require_target().attribute("MULTIPROCESSOR_COUNT"),
        256,
    )
    context.get_active_blocks_per_multiprocessor = lambda *_, **__: 2


def copy_array(function: Any, arguments: tuple[Any, ...]) -> bool:
    """Run a kernel of the front end that assigns or transposes an array; return False for another kernel."""
    numpy: Any = sys.modules["numpy"]
    name = function.__module__
    if not name.endswith((".cudadrv.devicearray", ".kernels.transpose")):
        return False
    first, second = (_view(numpy, item) for item in arguments)
    target, source = (first, second) if name.endswith("devicearray") else (second, first.T)
    numpy.copyto(target, source)
    return True


def _view(numpy: Any, array: Any) -> Any:
    """Return the memory of a device array, which is host memory, as a NumPy array."""
    described = getattr(array, "__cuda_array_interface__", None)
    return array if described is None else numpy.asarray(_Described(described))


class _Described:
    def __init__(self, described: dict[str, Any]) -> None:
        self.__array_interface__ = {**described, "version": 3}


class _Handle(int):
    """A handle; older releases use an object of ctypes."""

    @property
    def value(self) -> int:
        """Return the number."""
        return int(self)


_CONTEXT = _Handle(1)


class _Device:
    """The only device, with the target's properties."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._context: Any = None
        self.id = 0
        self.name = dry.require_target().name
        self.compute_capability = dry.require_target().capability
        self.uuid = aotcuda_recorder.stand_in("gpu").UUID
        self.supports_float16 = True
        self.supports_bfloat16 = self.compute_capability >= (8, 0)
        self.supports_fp8 = self.compute_capability >= (8, 9)

    def check(self, number: int) -> _Device:
        """Return the device; raise an error for another number than 0."""
        if number:
            message = f"device {number}: `aotcuda record --dry` has one GPU, number 0"
            raise self._module.__dict__["CudaSupportError"](message)
        return self

    def get_primary_context(self) -> Any:
        """Return its context, an object of the front end."""
        if self._context is None:
            self._context = self._module.__dict__["Context"](self, _CONTEXT)
        return self._context

    def get_device_identity(self) -> dict[str, int]:
        """Return the identity of the only device."""
        return {"pci_domain_id": 0, "pci_bus_id": 0, "pci_device_id": 0}

    def release_primary_context(self) -> None:
        """Do nothing."""

    def reset(self) -> None:
        """Free the allocations of the context."""
        if self._context is not None:
            self._context.reset()

    def __getattr__(self, name: str) -> int:
        if not name.isupper():
            raise AttributeError(name)
        return dry.require_target().attribute(name)

    def __repr__(self) -> str:
        return f"<CUDA device 0 '{self.name}', for `aotcuda record --dry`>"


class _Calls:
    """Functions of the driver, by CUDA's names."""

    def __init__(self, module: ModuleType) -> None:
        self._binding: Any = module.__dict__["binding"]
        self._error: Any = module.__dict__["CudaSupportError"]
        self._numpy: Any = sys.modules["numpy"]
        self._blocks: dict[int, tuple[Any, int]] = {}
        self._handles = itertools.count(1)
        self.cuMemcpyHtoD = self.cuMemcpyHtoDAsync = self.cuMemcpyDtoD = self.cuMemcpyDtoDAsync = self._copy
        self.cuMemcpyDtoH = self.cuMemcpyDtoHAsync = self._copy_to_host
        self.cuMemsetD8 = self.cuMemsetD8Async = self._set
        self.cuMemFree = self.cuMemFreeHost = self._free

    def function(self, name: str) -> Any:
        """Return a function by its name."""
        if name in _IDLE:
            return lambda *_: None
        if not name.startswith("cu"):
            raise AttributeError(name)
        if not hasattr(self, name):
            message = f"`aotcuda record --dry` has no {name}; run the program on a GPU"
            raise self._error(message)
        return getattr(self, name)

    def cuMemAlloc(self, size: int) -> Any:  # noqa: N802 (CUDA's name, as of the functions below)
        return self._binding.CUdeviceptr(self._allocate(size))

    def cuMemAllocManaged(self, size: int, _flags: int) -> Any:  # noqa: N802
        return self.cuMemAlloc(size)

    def cuMemHostAlloc(self, size: int, _flags: int) -> int:  # noqa: N802
        return self._allocate(size)

    def cuMemHostGetDevicePointer(self, pointer: Any, _flags: int) -> Any:  # noqa: N802
        return self._binding.CUdeviceptr(int(pointer))

    def cuPointerGetAttribute(self, _attribute: object, pointer: Any) -> Any:  # noqa: N802
        return pointer

    def cuMemGetAddressRange(self, pointer: Any) -> tuple[int, int]:  # noqa: N802
        address = int(pointer)
        for start, (_, size) in self._blocks.items():
            if start <= address < start + size:
                return start, size
        return address, 0

    def cuMemGetInfo(self) -> tuple[int, int]:  # noqa: N802
        return dry.require_target().memory, dry.require_target().memory

    def cuCtxGetCurrent(self) -> int:  # noqa: N802
        return _CONTEXT

    def cuCtxGetDevice(self) -> int:  # noqa: N802
        return 0

    def cuDeviceGetAttribute(self, code: Any, _device: int) -> int:  # noqa: N802
        return dry.require_target().attribute(code.name.replace("CU_DEVICE_ATTRIBUTE_", ""))

    def cuDeviceCanAccessPeer(self, *_: object) -> int:  # noqa: N802
        return 0

    def cuDriverGetVersion(self) -> int:  # noqa: N802
        return 13000

    def cuStreamCreate(self, _flags: int) -> Any:  # noqa: N802
        return self._binding.CUstream(_ALIGNMENT * next(self._handles))

    def cuEventCreate(self, _flags: int) -> int:  # noqa: N802
        return _ALIGNMENT * next(self._handles)

    def cuEventElapsedTime(self, *_: object) -> float:  # noqa: N802
        return 1.0

    def _allocate(self, size: int) -> int:
        block = self._numpy.zeros(size + _ALIGNMENT, self._numpy.uint8)
        start = int(-(-block.ctypes.data // _ALIGNMENT) * _ALIGNMENT)
        self._blocks[start] = block, size
        return start

    def _free(self, pointer: Any) -> None:
        dry.forget(int(pointer))
        self._blocks.pop(int(pointer), None)

    def _copy(self, target: Any, source: Any, size: int, *_: object) -> None:
        ctypes.memmove(int(target), int(source), size)

    def _copy_to_host(self, target: Any, source: Any, size: int, *_: object) -> None:
        dry.report_read(int(source), size, "a copy to the host")
        ctypes.memmove(int(target), int(source), size)

    def _set(self, pointer: Any, byte: int, size: int, *_: object) -> None:
        ctypes.memset(int(pointer), byte, size)
