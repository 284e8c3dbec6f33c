"""Have the stand-in for CuPy (`aotcuda.testing.cupy`) describe the target, and report reads and launches."""

from __future__ import annotations

from aotcuda_recorder import cuda_cpp, dry, functions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


def patch(module: ModuleType) -> None:
    """Set the target and the hooks of the stand-in."""
    hooks = module.__dict__.get("_Hooks")
    if hooks is not None:
        module.__dict__["cuda"]._Chosen.gpu = dry.require_target()
        hooks.results = dry
        hooks.launch = staticmethod(_launch)
        hooks.source = staticmethod(cuda_cpp.record)
        hooks.site = staticmethod(functions.site)


def _launch(name: str, grid: Any, block: Any, args: Any) -> None:
    kernel = dry.kernels.get(name)
    if kernel is not None:
        kernel.launch(tuple(args), grid, block)
