"""Have the stand-in for CuPy (`aotcuda.testing.cupy`) report reads of results and launches of Numba's kernels."""

from __future__ import annotations

from aotcuda_recorder import dry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


def patch(module: ModuleType) -> None:
    """Set the hooks of the stand-in."""
    hooks = module.__dict__.get("_Hooks")
    if hooks is not None:
        hooks.results = dry
        hooks.launch = staticmethod(_launch)


def _launch(name: str, grid: Any, block: Any, args: Any) -> None:
    kernel = dry.kernels.get(name)
    if kernel is not None:
        kernel.launch(tuple(args), grid, block)
