"""Replace compilation and launches of Numba-CUDA-MLIR; its dispatcher types arguments as on a GPU."""

from __future__ import annotations

import functools

import aotcuda_recorder
from aotcuda_recorder import dry, log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

_copy_array = aotcuda_recorder.stand_in("numba").copy_array


def patch(module: ModuleType) -> None:
    """Patch `numba_cuda_mlir.descriptor`, before its launches are recorded."""
    names: Any = module.__dict__
    marshaller = names["_ArgMarshaller"]
    dispatcher = names["MLIRDispatcher"]
    marshaller._launch = lambda *_, **__: None
    marshaller.__call__ = _wrap_call(marshaller.__call__)
    dispatcher._compile_public = _replacement_of_compile(names)
    dispatcher._get_kernel_attr = lambda _, _attr, default, _sig=None: default
    dispatcher.enable_caching = lambda _: None  # kernels in its cache are machine code


def _wrap_call(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a launch to store the arrays that the kernel could have written."""

    @functools.wraps(call)
    def wrapper(self: Any, *args: Any) -> Any:
        function = self._dispatcher.py_func
        if _copy_array(function, args):
            return None
        with dry.report_refusals(function.__name__, args), dry.ignore_reads():  # arrays of the host are copied back
            result = call(self, *args)
        with log.guard("the arrays of a launch cannot be read"):
            dry.mark_arrays_written(args)
        return result

    return wrapper


def _replacement_of_compile(names: dict[str, Any]) -> Callable[..., Any]:
    """Return a compilation that makes an overload without machine code."""

    def compile_(self: Any, sig: Any, **_: Any) -> Any:
        arguments, result = names["sigutils"].normalize_signature(sig)
        if arguments not in self.overloads:
            self.overloads[arguments] = _Compiled(names["typing"].signature(result or names["types"].none, *arguments))
        return self.overloads[arguments]

    return compile_


class _Compiled:
    """Stand for a compiled kernel."""

    objectmode = False
    entry_point = None

    def __init__(self, signature: Any) -> None:
        self.signature = signature
        self.metadata: dict[str, object] = {}
