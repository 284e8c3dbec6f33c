"""Answer the GPU queries of Numba's interface with the driver: `cuda.gpus`, `cuda.current_context()`."""

from __future__ import annotations

import ctypes
import sys
from contextlib import contextmanager

from ...errors import CudaError, RuntimeUnavailableError
from ...runtime import driver as drivers
from . import numba_proxy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ...runtime.driver import Driver

_PACKAGES = ("numba", "numba_cuda_mlir")

_errors: dict[tuple[type, ...], type] = {}
"""Classes of `add_numba_class`, by their base classes."""

_ATTRIBUTES = {
    "MAX_THREADS_PER_BLOCK": 1,
    "MAX_BLOCK_DIM_X": 2,
    "MAX_BLOCK_DIM_Y": 3,
    "MAX_BLOCK_DIM_Z": 4,
    "MAX_GRID_DIM_X": 5,
    "MAX_GRID_DIM_Y": 6,
    "MAX_GRID_DIM_Z": 7,
    "MAX_SHARED_MEMORY_PER_BLOCK": 8,
    "TOTAL_CONSTANT_MEMORY": 9,
    "WARP_SIZE": 10,
    "MAX_REGISTERS_PER_BLOCK": 12,
    "CLOCK_RATE": 13,
    "MULTIPROCESSOR_COUNT": 16,
    "INTEGRATED": 18,
    "CAN_MAP_HOST_MEMORY": 19,
    "COMPUTE_MODE": 20,
    "CONCURRENT_KERNELS": 31,
    "ECC_ENABLED": 32,
    "PCI_BUS_ID": 33,
    "PCI_DEVICE_ID": 34,
    "MEMORY_CLOCK_RATE": 36,
    "GLOBAL_MEMORY_BUS_WIDTH": 37,
    "L2_CACHE_SIZE": 38,
    "MAX_THREADS_PER_MULTI_PROCESSOR": 39,
    "ASYNC_ENGINE_COUNT": 40,
    "UNIFIED_ADDRESSING": 41,
    "PCI_DOMAIN_ID": 50,
    "COMPUTE_CAPABILITY_MAJOR": 75,
    "COMPUTE_CAPABILITY_MINOR": 76,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 81,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 82,
    "MANAGED_MEMORY": 83,
    "COOPERATIVE_LAUNCH": 95,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 97,
}
"""Device attributes (`CUdevice_attribute`, cuda.h) that programs read."""


class Device:
    """A GPU with the interface of Numba's devices.

    Attributes:
        id: Its ordinal.
        name: The product's name.
        compute_capability: `(major, minor)`.

    The driver's attributes, such as `MULTIPROCESSOR_COUNT`, are attributes of the object.
    """

    def __init__(self, package: str, index: int) -> None:
        self._package = package
        self._device = _driver().devices[index]
        self.id = index
        self.name = self._device.name
        self.compute_capability = self._device.capability

    def __getattr__(self, name: str) -> Any:
        number = _ATTRIBUTES.get(name)
        if number is None:
            if name.startswith("_"):
                message = f"{self!r} has no attribute {name!r}"
                raise AttributeError(message, name=name, obj=self)
            cuda = numba_proxy.attribute(numba_proxy.import_numba(self._package, f"{name} of {self!r}"), "cuda")
            return getattr(cuda.gpus[self.id], name)
        driver, value = _driver(), ctypes.c_int()
        code = driver.call["cuDeviceGetAttribute"](ctypes.byref(value), number, self._device.handle)
        driver.check(code, f"{self!r} did not report its {name}")
        return value.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<CUDA device {self.id} '{self.name}'>"


class Gpu(Device):
    """An item of `cuda.gpus`: a GPU, and a context manager that makes it current."""

    def __enter__(self) -> Context:
        entered = _entered(self.id)
        entered.__enter__()
        self.__dict__.setdefault("_entered", []).append(entered)
        return Context(self._package, self.id)

    def __exit__(self, *_: object) -> None:
        self._entered.pop().__exit__(None, None, None)


class Gpus:
    """All GPUs in the driver's order; none without a driver."""

    def __init__(self, package: str) -> None:
        self._package = package

    @property
    def lst(self) -> list[Gpu]:
        """Return the GPUs."""
        return list(self)

    @property
    def current(self) -> Gpu | None:
        """Return the current GPU; None if this thread has no context.

        Raises:
            RuntimeUnavailableError: There is no driver or no GPU.
        """
        index = _driver().current_device()
        return None if index is None else self[index]

    def __len__(self) -> int:
        return len(_driver().devices) if is_available() else 0

    def __getitem__(self, index: int) -> Gpu:
        return Gpu(self._package, range(len(_driver().devices))[index])

    def __iter__(self) -> Iterator[Gpu]:
        return (Gpu(self._package, index) for index in range(len(self)))

    def __repr__(self) -> str:
        return ", ".join(map(repr, self))


class MemoryInfo(tuple[int, int]):
    """Free and total bytes of a GPU's memory."""

    __slots__ = ()

    @property
    def free(self) -> int:
        """Return the free bytes."""
        return self[0]

    @property
    def total(self) -> int:
        """Return the total bytes."""
        return self[1]


class Context:
    """A GPU's primary context with the interface of Numba's contexts."""

    def __init__(self, package: str, index: int) -> None:
        self._package = package
        self.device = Device(package, index)

    def synchronize(self) -> None:
        """Wait for all work on the GPU.

        Raises:
            CudaError: A kernel has failed.
        """
        with _entered(self.device.id) as driver:
            driver.check(driver.call["cuCtxSynchronize"](), f"synchronizing {self.device!r} failed")

    def get_memory_info(self) -> MemoryInfo:
        """Return the free and total bytes of the GPU's memory.

        Raises:
            CudaError: The driver reports an error.
        """
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        with _entered(self.device.id) as driver:
            code = driver.call["cuMemGetInfo_v2"](ctypes.byref(free), ctypes.byref(total))
            driver.check(code, f"the memory of {self.device!r} could not be read")
        return MemoryInfo((free.value, total.value))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            message = f"{self!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)
        cuda = numba_proxy.attribute(numba_proxy.import_numba(self._package, f"{name} of {self!r}"), "cuda")
        return getattr(cuda.current_context(self.device.id), name)

    def __repr__(self) -> str:
        return f"<CUDA context of device {self.device.id}>"


def is_available() -> bool:
    """Return True if there is a GPU and a working driver."""
    try:
        drivers.get()
    except (RuntimeUnavailableError, CudaError):
        return False
    return True


def current_context(package: str, index: int | None) -> Context:
    """Return the context of a GPU (by default the current GPU), and make it current in this thread.

    Raises:
        RuntimeUnavailableError: There is no driver or no GPU.
    """
    driver = _driver()
    current = driver.current_device()
    if index is None:
        index = current or 0
    elif not 0 <= index < len(driver.devices):
        message = f"there is no GPU {index}; the driver shows {len(driver.devices)}, from 0 on"
        raise IndexError(message)
    if current != index:
        driver.make_current(index)
    return Context(package, index)


def missing_gpu_class(package: str) -> type[Exception]:
    """Return the class of the error for a missing GPU; Numba's class if Numba is imported."""
    numba_class = _numba_class(package, "error", "CudaSupportError")
    return RuntimeUnavailableError if numba_class is None else numba_class


def driver_error_class(package: str) -> type[Exception]:
    """Return the class of the error for a failed driver call; Numba's class if Numba is imported."""
    numba_class = _numba_class(package, "driver", "CudaAPIError")
    return CudaError if numba_class is None else numba_class


def add_numba_class(error: RuntimeUnavailableError) -> RuntimeUnavailableError:
    """Return an error that is also an instance of Numba's error for a missing GPU, if Numba is imported."""
    bases = (type(error), *filter(None, (_numba_class(package, "error", "CudaSupportError") for package in _PACKAGES)))
    if len(bases) == 1 or isinstance(error, bases[1:]):
        return error
    if bases not in _errors:
        _errors[bases] = type(type(error).__name__, bases, {})
    copy: RuntimeUnavailableError = _errors[bases](*error.args)
    return copy


@contextmanager
def _entered(index: int) -> Iterator[Driver]:
    """Make the primary context of a GPU current during a block, and afterwards the context that was current before."""
    driver = _driver()
    before = driver.current_context()
    driver.make_current(index)
    try:
        yield driver
    finally:
        driver.check(driver.call["cuCtxSetCurrent"](before), "the context that was current could not be made current")


def _driver() -> Driver:
    try:
        return drivers.get()
    except RuntimeUnavailableError as error:
        raise add_numba_class(error) from error


def _numba_class(package: str, module: str, name: str) -> type[Exception] | None:
    """Return a class of a module of `numba.cuda.cudadrv` if the module is imported, or None."""
    for path in (f"{package}.cuda.cudadrv.{module}", f"{package}.numba_cuda.cudadrv.{module}"):
        kind = getattr(sys.modules.get(path), name, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            return kind
    return None
