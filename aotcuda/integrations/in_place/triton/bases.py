"""Define the base classes of packaged kernels: Triton's classes, or light classes if Triton is not installed."""

from __future__ import annotations

from importlib import import_module

from aotcuda.integrations.in_place.triton import without_triton

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _import_triton() -> Any:
    try:
        return import_module("triton")
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        return None


triton: Any = _import_triton()
is_installed = triton is not None
if is_installed:
    Autotuner: Any = triton.runtime.autotuner.Autotuner
    Heuristics: Any = triton.runtime.autotuner.Heuristics
    JITFunction: Any = triton.runtime.jit.JITFunction
    runtime: Any = triton.knobs.runtime
else:
    triton, runtime = without_triton.package(), without_triton.RUNTIME
    Autotuner, Heuristics = without_triton.Autotuner, without_triton.Heuristics
    JITFunction = without_triton.JITFunction
