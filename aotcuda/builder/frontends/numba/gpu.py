"""Stand in for the GPU driver of Numba's compilers during a build, for a GPU of the target.

There are three kinds of queries:

- The presence of a GPU, and properties that all GPUs share, are answered.
- Properties that follow from the compute capability are answered, and the answers are marked as dependent on it. The
  build then imports the sources once for each capability. An `@intrinsic` may query while a unit is compiled; the unit
  is then compiled once for each capability.
- All others raise an error with a remedy for the user's code.

The driver is never called, even if the build machine has one.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from aotcuda.builder.frontends.numba import target_dependence
from aotcuda.builder.frontends.protocol import GpuQuery
from aotcuda.gpus import BY_NUMBER, EVERYWHERE, example

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LATER = "do it in a function that is called later"
MISSING = f"this needs a GPU, and a build has none; {_LATER}"

_LIMITS = {
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": "shared",
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": "shared_block",
    "MAX_THREADS_PER_MULTIPROCESSOR": "threads",
    "MAX_REGISTERS_PER_BLOCK": "registers_block",
}
"""The attributes of `aotcuda.gpus.Limits`, by CUDA's names."""


@dataclass(slots=True)
class _Import:
    """The state of the current import.

    Attributes:
        capability: The compute capability that the sources are imported for; None outside of imports.
        root: The project's folder.
        compilers: The folders of packages whose own queries are not recorded.
        queries: The recorded queries, in order and without duplicates.
    """

    capability: tuple[int, int] | None = None
    root: str = ""
    compilers: tuple[str, ...] = ()
    queries: dict[GpuQuery, None] = field(default_factory=dict)


_import = _Import()


@contextmanager
def importing(capability: tuple[int, int], root: str, compilers: Iterable[str]) -> Iterator[dict[GpuQuery, None]]:
    """Answer as a GPU of `capability` would, and yield the queries of all code outside the packages `compilers`."""
    folders = [folder for name in compilers for folder in getattr(sys.modules.get(name), "__path__", ())]
    _import.capability, _import.root = capability, root
    _import.compilers = tuple(f"{folder}/" for folder in folders)
    _import.queries = {}
    try:
        yield _import.queries
    finally:
        _import.capability = None


def _record(query: str, answer: object, **properties: bool) -> None:
    """Record a query of the imported code, with fields of `GpuQuery` as `properties`."""
    place = _querying_line()
    if place is not None and _import.capability is not None:
        _import.queries.setdefault(GpuQuery(place=place, query=query, answer=str(answer), **properties))


def _querying_line() -> str | None:
    """Return file and line of the code that queries; None for a query of the compiler itself."""
    frame = sys._getframe()  # noqa: SLF001 (its documented use)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_import.compilers):
            pass
        elif file != __file__ and not file.startswith("<frozen ") and not file.endswith("/contextlib.py"):
            inside = os.path.relpath(file, _import.root) if file.startswith(f"{_import.root}/") else file
            return f"{inside}:{frame.f_lineno}"
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


_SINCE = {"supports_float16": (5, 3), "supports_bfloat16": (8, 0), "supports_fp8": (8, 9)}
_ANSWERED = (*_SINCE, "compute_capability", "name", "uuid", "get_device_identity")
"""Attributes of a GPU that are not CUDA's, whose names are in capitals."""


class Gpu:
    """A replacement for `numba.cuda`'s device that knows only its compute capability."""

    def __init__(self, error: type[Exception]) -> None:
        self.id = 0
        self._error = error
        self._context = Context(self, error)

    def get_primary_context(self) -> Context:
        """Return the only context."""
        return self._context

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not (name.isupper() or name in _ANSWERED):
            message = f"a GPU has no {name}"
            raise AttributeError(message)
        if name in EVERYWHERE:
            _record(name, EVERYWHERE[name])
            return EVERYWHERE[name]
        return self._answer(name)

    def __repr__(self) -> str:
        return "<the GPU that the build is for>"

    def _answer(self, name: str) -> Any:
        compiling = target_dependence.current_watch()
        capability = compiling.capability if compiling is not None else _import.capability
        if capability is None:
            raise self._error(MISSING)
        try:
            value = compiling.run(partial(_fact, name)) if compiling is not None else _fact(name, capability)
        except KeyError:
            number = ".".join(map(str, capability))
            reason = f"the compute capability of the target, {number}, does not determine it"
            raise _query_error(self._error, name, reason) from None
        _record(name, value, depends_on_target=True)
        return value


def _fact(name: str, capability: tuple[int, int]) -> Any:
    """Return a property of a GPU that follows from its compute capability."""
    if name == "compute_capability":
        return capability
    if name == "name":
        return example(capability)
    if name in _SINCE:
        return capability >= _SINCE[name]
    if name in ("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR"):
        return capability[name.endswith("MINOR")]
    row = BY_NUMBER[capability]
    if row.limits is None:
        raise KeyError(name)
    return getattr(row.limits, _LIMITS[name])


class Context:
    """The context of `Gpu`: attributes that are not defined here raise an error."""

    def __init__(self, device: Gpu, error: type[Exception]) -> None:
        self.device = device
        self._error = error

    def push(self) -> None:
        """Do nothing, because there is no context to make current."""

    def pop(self) -> None:
        """Do nothing, because `push` does nothing."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._error(MISSING)


def _query_error(error: type[Exception], query: str, reason: str) -> Exception:
    _record(query, reason, is_error=True)
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
    gpu = Gpu(error)
    manager = devices._DeviceContextManager(gpu)  # noqa: SLF001 (its module is patched below)

    def is_available(_: Any) -> bool:
        _record("cuda.is_available()", "True")
        return True

    def get_version(_: Any) -> NoReturn:
        raise _query_error(error, "the driver's version", "it depends on the machine that launches")

    def get_device_count(_: Any) -> int:
        _record("how many GPUs there are", 1)
        return 1

    def list_managers(_: Any) -> list[Any]:
        _record("cuda.gpus", "that there is one", is_presence_only=True)
        return [manager]

    def get_context(_: Any, devnum: Any = None) -> Context:
        if devnum not in (None, 0):
            raise _query_error(error, f"GPU {devnum}", "there is one GPU in a build, number 0")
        _record("the current GPU", "that there is one", is_presence_only=True)
        return gpu.get_primary_context()

    def detect() -> bool:
        _record("cuda.detect()", "True")
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
    driver_class.list_devices = lambda _: [gpu]
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
