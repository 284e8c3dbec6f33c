"""Stand in for the driver of Numba-CUDA and Numba-CUDA-MLIR, with host memory and without execution.

Both have a module `cudadrv.driver` for arrays, streams and devices. Its classes stay, and its driver is replaced.
"""

from __future__ import annotations

import ctypes
import itertools
import sys

from . import gpu as gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .gpu import Gpu

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


PRIVATE_PARTS = {
    "cudadrv.driver:Driver.is_available": "(self)",
    "cudadrv.driver:Driver.ensure_initialized": "(self)",
    "cudadrv.driver:Driver.__getattr__": "(self, fname)",
    "cudadrv.driver:Driver.get_version": "(self)",
    "cudadrv.driver:Driver.get_device_count": "(self)",
    "cudadrv.driver:Driver.get_device": "(self, devnum=0)",
    "cudadrv.driver:Driver.list_devices": "(self)",
    "cudadrv.driver:Context.__init__": "(self, device, handle)",
    "cudadrv.driver:Context.get_memory_info": "(self)",
    "cudadrv.driver:Context.pop": "(self)",
    "cudadrv.driver:Stream.add_callback": "(self, callback, arg=None)",
    "cudadrv.driver:make_logger": "()",
}
"""Functions of both compilers that `install` replaces or calls, relative to `numba.cuda`, with their parameters."""


def install(module: ModuleType, gpu: Gpu, device: Device, missing: str, results: Any = None) -> None:
    """Replace the driver of `cudadrv.driver` for the whole process.

    Args:
        module: The module.
        gpu: The GPU that programs see.
        device: The only device.
        missing: The error of a function of the driver that needs a GPU; `{name}` is its name.
        results: An object whose methods `report_read` and `forget` are told of reads and freed memory.
    """
    names: Any = module.__dict__
    device.module = module
    calls = _Calls(module, gpu, missing, results)
    driver: Any = names["Driver"]
    driver.is_available = property(lambda _: gpu.answered("cuda.is_available()", answer=True))
    driver.ensure_initialized = lambda _: None
    driver.get_version = lambda _: gpu.answered("the driver's version", gpus.DRIVER)
    driver.get_device_count = lambda _: gpu.answered("how many GPUs there are", 1, presence=True)
    driver.get_device = lambda _, _devnum=0: device
    driver.list_devices = lambda _: [device]
    driver.__getattr__ = lambda _, name: calls.function(name)
    names["driver"].is_initialized = True  # so that nothing calls cuInit
    names["driver"].initialization_error = None
    names["_logger"] = names["make_logger"]()
    names["_to_core_stream"] = lambda stream: stream
    names["Stream"].add_callback = lambda self, callback, arg=None: callback(self, 0, arg)
    context: Any = names["Context"]
    memory = context.get_memory_info
    context.get_memory_info = lambda self: gpu.answered("get_memory_info()", memory(self))
    context.pop = lambda _: None
    context.get_max_potential_block_size = lambda *_, **__: (device.MULTIPROCESSOR_COUNT, 256)
    context.get_active_blocks_per_multiprocessor = lambda *_, **__: 2


def copy_array(function: Any, arguments: tuple[Any, ...]) -> bool:
    """Run a kernel of the front end that assigns or transposes an array; return False for another kernel."""
    numpy: Any = sys.modules["numpy"]
    name = getattr(function, "__module__", "")
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


class Device:
    """The only device, with the properties of a GPU.

    Attributes:
        module: The module `cudadrv.driver`.
    """

    module: ModuleType
    id = 0

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._context: Any = None

    def get_primary_context(self) -> Any:
        """Return its context, an object of the front end."""
        if self._context is None:
            self._context = self.module.__dict__["Context"](self, _CONTEXT)
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

    def __getattr__(self, name: str) -> Any:
        value = self._gpu.numba_attribute(name)
        return self._gpu.answered(name, value, depends_on_target=self._gpu.differs(name))

    def __repr__(self) -> str:
        return "<a GPU that is not there>"


class _Calls:
    """Functions of the driver, by CUDA's names."""

    def __init__(self, module: ModuleType, gpu: Gpu, missing: str, results: Any) -> None:
        self._gpu = gpu
        self._missing = missing
        self._results = results
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
            raise self._error(self._missing.format(name=name))
        return getattr(self, name)

    def cuMemAlloc(self, size: int) -> Any:
        return self._binding.CUdeviceptr(self._allocate(size))

    def cuMemAllocManaged(self, size: int, _flags: int) -> Any:
        return self.cuMemAlloc(size)

    def cuMemHostAlloc(self, size: int, _flags: int) -> int:
        return self._allocate(size)

    def cuMemHostGetDevicePointer(self, pointer: Any, _flags: int) -> Any:
        return self._binding.CUdeviceptr(int(pointer))

    def cuPointerGetAttribute(self, _attribute: object, pointer: Any) -> Any:
        return pointer

    def cuMemGetAddressRange(self, pointer: Any) -> tuple[int, int]:
        address = int(pointer)
        for start, (_, size) in self._blocks.items():
            if start <= address < start + size:
                return start, size
        return address, 0

    def cuMemGetInfo(self) -> tuple[int, int]:
        return self._gpu.memory, self._gpu.memory

    def cuCtxGetCurrent(self) -> int:
        return _CONTEXT

    def cuCtxGetDevice(self) -> int:
        return 0

    def cuDeviceGetAttribute(self, code: Any, _device: int) -> int:
        return self._gpu.attribute(code.name.replace("CU_DEVICE_ATTRIBUTE_", ""))

    def cuDeviceCanAccessPeer(self, *_: object) -> int:
        return 0

    def cuDriverGetVersion(self) -> int:
        return gpus.DRIVER[0] * 1000 + gpus.DRIVER[1] * 10

    def cuStreamCreate(self, _flags: int) -> Any:
        return self._binding.CUstream(_ALIGNMENT * next(self._handles))

    def cuEventCreate(self, _flags: int) -> int:
        return _ALIGNMENT * next(self._handles)

    def cuEventElapsedTime(self, *_: object) -> float:
        return 1.0

    def _allocate(self, size: int) -> int:
        block = self._numpy.zeros(size + _ALIGNMENT, self._numpy.uint8)
        start = int(-(-block.ctypes.data // _ALIGNMENT) * _ALIGNMENT)
        self._blocks[start] = block, size
        return start

    def _free(self, pointer: Any) -> None:
        if self._results is not None:
            self._results.forget(int(pointer))
        self._blocks.pop(int(pointer), None)

    def _copy(self, target: Any, source: Any, size: int, *_: object) -> None:
        ctypes.memmove(int(target), int(source), size)

    def _copy_to_host(self, target: Any, source: Any, size: int, *_: object) -> None:
        if self._results is not None:
            self._results.report_read(int(source), size, "a copy to the host")
        ctypes.memmove(int(target), int(source), size)

    def _set(self, pointer: Any, byte: int, size: int, *_: object) -> None:
        ctypes.memset(int(pointer), byte, size)
