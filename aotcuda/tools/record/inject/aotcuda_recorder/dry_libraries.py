"""Let Numba's drivers, PyTorch, NVML, CuPy and cuda.core answer for the target, by the stand-ins of aotcuda."""

from __future__ import annotations

import aotcuda_recorder
from aotcuda_recorder import cuda_cpp, dry, functions, log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_MISSING = "`aotcuda record --dry` has no {name}; run the program on a GPU"


def patch(module: ModuleType) -> None:
    """Patch `cudadrv.driver` or `cudadrv.nvvm`, PyTorch, a module for NVML, `aotcuda.testing.cupy`, or cuda.core."""
    names: Any = module.__dict__
    target = dry.require_target()
    if module.__name__.endswith("cudadrv.nvvm"):
        names["is_available"] = lambda: True
    elif module.__name__.endswith("cudadrv.driver"):
        numba = aotcuda_recorder.stand_in("numba")
        numba.install(module, target, numba.Device(target), _MISSING, dry)
    elif module.__name__ == "torch":
        aotcuda_recorder.stand_in("pytorch").install(module, target, dry)
    elif "ObjectCode" in names:  # cuda.core has another name inside
        cuda_core = aotcuda_recorder.stand_in("cuda_core")
        cuda_core.Hooks.launch = staticmethod(_launch_source)
        cuda_core.Hooks.site = staticmethod(functions.site)
        cuda_core.install(module, target)
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


def _launch_source(source: Any, name: str, config: Any, args: tuple[Any, ...]) -> None:
    if source is None:  # code of another compiler or language
        with log.guard("the arrays of a launch cannot be read"):
            dry.mark_arrays_written(args)
        return
    cooperative = bool(getattr(config, "cooperative_launch", False))
    cuda_cpp.record(source.text, name, args, options=source.options, made=source.made, cooperative=cooperative)
