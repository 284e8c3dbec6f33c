"""Let libraries answer for the target, by the stand-ins of aotcuda: Numba's drivers, PyTorch, NVML and CuPy."""

from __future__ import annotations

import aotcuda_recorder
from aotcuda_recorder import cuda_cpp, dry, functions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_MISSING = "`aotcuda record --dry` has no {name}; run the program on a GPU"


def patch(module: ModuleType) -> None:
    """Patch `cudadrv.driver` or `cudadrv.nvvm`, PyTorch, a module for NVML, or `aotcuda.testing.cupy`."""
    names: Any = module.__dict__
    target = dry.require_target()
    if module.__name__.endswith("cudadrv.nvvm"):
        names["is_available"] = lambda: True
    elif module.__name__.endswith("cudadrv.driver"):
        numba = aotcuda_recorder.stand_in("numba")
        numba.install(module, target, numba.Device(target), _MISSING, dry)
    elif module.__name__ == "torch":
        aotcuda_recorder.stand_in("pytorch").install(module, target, dry)
    elif "nvmlLib" in names:
        names["nvmlLib"] = aotcuda_recorder.stand_in("nvml").Library(target)
    elif "_Hooks" in names:  # a program's own stand-in for CuPy has none
        names["cuda"]._Chosen.gpu = target
        hooks = names["_Hooks"]
        hooks.results = dry
        hooks.launch = staticmethod(_launch)
        hooks.source = staticmethod(cuda_cpp.record)
        hooks.site = staticmethod(functions.site)


def _launch(name: str, grid: Any, block: Any, args: Any) -> None:
    kernel = dry.kernels.get(name)
    if kernel is not None:
        kernel.launch(tuple(args), grid, block)
