"""Record the launches of Numba-CUDA-MLIR, which all go through `_ArgMarshaller._launch`."""

from __future__ import annotations

import functools
import inspect

from aotcuda_recorder import log, numba_cuda, types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from types import CodeType, ModuleType
    from typing import Any

    from aotcuda_recorder.log import Entry

FRONT_END = "numba-cuda-mlir"
_ENTRIES = "_aotcuda_recorder_entries"


def patch(module: ModuleType) -> None:
    """Patch `numba_cuda_mlir.descriptor`."""
    marshaller: Any = module.__dict__["_ArgMarshaller"]
    dispatcher: Any = module.__dict__["MLIRDispatcher"]
    dispatcher.__init__ = numba_cuda.wrap_init(dispatcher.__init__, FRONT_END)
    marshaller._launch = _wrap_launch(marshaller._launch, numba_cuda.Gpus("numba_cuda_mlir.numba_cuda.cudadrv.devices"))
    lazy = {getattr(dispatcher, name).__code__ for name in ("specialize", "_compile")}
    dispatcher.compile = _wrap_compile(dispatcher.compile, lazy | {inspect.unwrap(marshaller.__call__).__code__})
    for name in ("_compile_device_callee", "compile_device"):
        setattr(dispatcher, name, numba_cuda.wrap_compile_device(getattr(dispatcher, name), FRONT_END))


def _wrap_launch(launch: Callable[..., Any], gpus: numba_cuda.Gpus) -> Callable[..., Any]:
    @functools.wraps(launch)
    def recorded(self: Any, argtypes: Any, *rest: Any, **more: Any) -> Any:
        dispatcher = self._dispatcher
        try:
            result = launch(self, argtypes, *rest, **more)
        except Exception:
            if dispatcher.targetoptions.get("debug"):  # with debug, errors of the kernel are raised after its launch
                _count(dispatcher, argtypes, gpus)
            raise
        _count(dispatcher, argtypes, gpus)
        return result

    return recorded


def _count(dispatcher: Any, argtypes: Any, gpus: numba_cuda.Gpus) -> None:
    with log.guard("a launch cannot be recorded"):
        _entry(dispatcher, tuple(argtypes)).count(gpus.ordinal(), gpus.label)


def _entry(dispatcher: Any, argtypes: tuple[Any, ...]) -> Entry:
    entries: dict[tuple[Any, ...], Entry] = dispatcher.__dict__.setdefault(_ENTRIES, {})
    entry = entries.get(argtypes)
    if entry is None:
        function = dispatcher.py_func
        facts = numba_cuda.function_facts(FRONT_END, "kernel", function, dispatcher.targetoptions)
        facts |= types.signature(function, _compiled_types(dispatcher, argtypes))
        entry = entries[argtypes] = log.entry(facts, numba_cuda.launch_facts(function))
    return entry


def _compiled_types(dispatcher: Any, argtypes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the types for which a launch was compiled; with eager signatures, those of the matching one."""
    overloads: list[tuple[Any, ...]] = [*dispatcher.overloads]
    if argtypes in overloads or dispatcher._can_compile:
        return argtypes
    takes = dispatcher._can_reuse_overload
    fitting = (
        overload for overload in overloads if len(overload) == len(argtypes) and all(map(takes, overload, argtypes))
    )
    return next(fitting, argtypes)


def _wrap_compile(compile_kernel: Callable[..., Any], lazy: Container[CodeType]) -> Callable[..., Any]:
    """Wrap `compile` of a dispatcher to record eager signatures and annotations."""

    @functools.wraps(compile_kernel)
    def recorded(self: Any, *args: Any, **more: Any) -> Any:
        result = compile_kernel(self, *args, **more)
        with log.guard("a kernel cannot be recorded"):
            if not self.targetoptions.get("device"):
                numba_cuda.declare(_entry(self, tuple(result.signature.args)).facts, lazy)
        return result

    return recorded
