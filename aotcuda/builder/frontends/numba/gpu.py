"""Stand in for the GPU driver of Numba's compilers during a build, for a GPU of the target.

The presence of a GPU, and properties that all GPUs share, are answered. Other properties are answered as in a dry run
of `aotcuda record`, and the answers are marked as dependent on the target. The build then imports the sources once for
each capability. An `@intrinsic` may query while a unit is compiled; the unit is then compiled once for each capability.
Everything that needs memory of a GPU, or launches, raises an error with a remedy for the user's code.

The driver is never called, even if the build machine has one.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from aotcuda.builder.frontends import gpu_queries
from aotcuda.builder.frontends.gpu_queries import MISSING, gpu
from aotcuda.builder.frontends.numba import target_dependence
from aotcuda.gpus import EVERYWHERE, describe
from aotcuda.stand_ins import gpu as stand_in_gpu

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

gpu_queries.is_caller(__file__)
importing = gpu.importing
_LATER = "do it in a function that is called later"

_SINCE = {"supports_float16": (5, 3), "supports_bfloat16": (8, 0), "supports_fp8": (8, 9)}
_ANSWERED = (*_SINCE, "compute_capability", "name", "uuid")
"""Attributes of a GPU that are not CUDA's, whose names are in capitals."""


class Gpu:
    """A replacement for `numba.cuda`'s device."""

    def __init__(self, error: type[Exception], memory_info: Any = None) -> None:
        self.id = 0
        self._error = error
        self._context = Context(self, error, memory_info)

    def get_primary_context(self) -> Context:
        """Return the only context."""
        return self._context

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not (name.isupper() or name in _ANSWERED):
            message = f"a GPU has no {name}"
            raise AttributeError(message)
        if name in EVERYWHERE or name == "uuid":
            value = EVERYWHERE.get(name, stand_in_gpu.UUID)
            gpu.queried(name, value)
            return value
        compiling = target_dependence.current_watch()
        if compiling is None and not gpu.is_importing:
            raise self._error(MISSING)
        value = compiling.run(partial(_fact, name)) if compiling is not None else _fact(name, gpu.capability)
        gpu.queried(name, value, depends_on_target=True)
        return value

    def __repr__(self) -> str:
        return "<the GPU that the build is for>"


def _fact(name: str, capability: tuple[int, int]) -> Any:
    """Return a property of a GPU with a compute capability, as dry runs do."""
    facts = describe(capability)
    if name == "compute_capability":
        return capability
    if name == "name":
        return facts["name"]
    if name in _SINCE:
        return capability >= _SINCE[name]
    return stand_in_gpu.Gpu(facts).attribute(name)


class Context:
    """The context of `Gpu`: attributes that are not defined here raise an error."""

    def __init__(self, device: Gpu, error: type[Exception], memory_info: Any) -> None:
        self.device = device
        self._error = error
        self._memory_info = memory_info

    def get_memory_info(self) -> Any:
        """Return the free and the total memory in bytes."""
        gpu.queried("get_memory_info()", gpu.memory)
        return self._memory_info(gpu.memory, gpu.memory)

    def push(self) -> None:
        """Do nothing, because there is no context to make current."""

    def pop(self) -> None:
        """Do nothing, because `push` does nothing."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._error(MISSING)


def _query_error(error: type[Exception], query: str, reason: str) -> Exception:
    gpu.queried(query, reason, is_error=True)
    message = f"a build cannot tell {query}: {reason}; query it in a function that is called later"
    return error(message)


PRIVATE_PARTS = {
    "cudadrv.driver:Driver.is_available": "(self)",
    "cudadrv.driver:Driver.__getattr__": "(self, fname)",
    "cudadrv.driver:Driver.get_version": "(self)",
    "cudadrv.driver:Driver.get_device_count": "(self)",
    "cudadrv.driver:Driver.get_device": "(self, devnum=0)",
    "cudadrv.driver:Driver.list_devices": "(self)",
    "cudadrv.devices:_DeviceContextManager.__init__": "(self, device)",
    "cudadrv.devices:_DeviceList.lst": "(self)",
    "cudadrv.devices:_DeviceList.current": "(self)",
    "cudadrv.devices:_Runtime.get_or_create_context": "(self, devnum)",
    "cudadrv.devices:_Runtime.ensure_context": "(self)",
    "cudadrv.devices:_Runtime.reset": "(self)",
    "api:detect": "()",
}
"""Functions of both compilers that `answer` replaces or calls, relative to `numba.cuda`, with their parameters."""


def answer(driver: Any, devices: Any, error: type[Exception], namespaces: Iterable[Any]) -> None:
    """Make a compiler's driver answer queries for a GPU of the target; all other calls raise `error` with `MISSING`.

    Args:
        driver: Its module with the class `Driver`.
        devices: Its module that keeps devices and contexts.
        error: The exception that the compiler raises without a driver.
        namespaces: The modules in which users find the function `detect`.
    """
    device = Gpu(error, driver.MemoryInfo)
    manager = devices._DeviceContextManager(device)  # noqa: SLF001 (its module is patched below)

    def is_available(_: Any) -> bool:
        gpu.queried("cuda.is_available()", "True")
        return True

    def get_version(_: Any) -> tuple[int, int]:
        gpu.queried("the driver's version", stand_in_gpu.DRIVER)
        return stand_in_gpu.DRIVER

    def get_device_count(_: Any) -> int:
        gpu.queried("how many GPUs there are", 1)
        return 1

    def list_managers(_: Any) -> list[Any]:
        gpu.queried("cuda.gpus", "that there is one", presence=True)
        return [manager]

    def get_context(_: Any, devnum: Any = None) -> Context:
        if devnum not in (None, 0):
            raise _query_error(error, f"GPU {devnum}", "there is one GPU in a build, number 0")
        gpu.queried("the current GPU", "that there is one", presence=True)
        return device.get_primary_context()

    def detect() -> bool:
        gpu.queried("cuda.detect()", "True")
        return True

    def missing(*_: Any) -> NoReturn:
        raise error(MISSING)

    @contextmanager
    def ensure_context(_: Any) -> Iterator[None]:
        missing()
        yield

    driver_class: Any = driver.Driver
    driver_class.is_available = property(is_available)
    driver_class.__getattr__ = missing
    driver_class.get_version = get_version
    driver_class.get_device_count = get_device_count
    driver_class.get_device = lambda _, devnum=0: get_context(_, devnum).device
    driver_class.list_devices = lambda _: [device]
    driver.driver.is_initialized = True  # so that nothing calls cuInit
    driver.driver.initialization_error = None
    devices._DeviceList.lst = property(list_managers)  # noqa: SLF001
    devices._DeviceList.current = property(lambda _: manager)  # noqa: SLF001
    runtime: Any = devices._Runtime  # noqa: SLF001
    runtime.get_or_create_context = get_context
    runtime.ensure_context = ensure_context
    runtime.reset = lambda _: None
    for namespace in namespaces:
        namespace.detect = detect


def refuse_launches(*calls: tuple[type, str, str]) -> None:
    """Replace methods that launch kernels by functions that raise RuntimeError.

    Args:
        calls: For each method its class, its name and the attribute that holds the kernel; "" for the object itself.
    """
    for owner, method, attribute in calls:

        def launch(self: Any, *_: Any, _attribute: str = attribute, **__: Any) -> Any:
            kernel = getattr(self, _attribute) if _attribute else self
            name = getattr(getattr(kernel, "py_func", None), "__qualname__", "this")
            message = f"{name} is a kernel; launching it needs a GPU, and a build has none; {_LATER}"
            raise RuntimeError(message)

        setattr(owner, method, launch)
