"""Stand in for the GPU driver of Numba's compilers during a build, for a GPU of the target.

The stand-in is that of dry runs of `aotcuda record`, with arrays in host memory. Answers that depend on the target are
marked, and the build then imports the sources once for each capability. An `@intrinsic` may query while a unit is
compiled; the unit is then compiled once for each capability. Launches raise an error with a remedy for the user's code.

The driver is never called, even if the build machine has one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from aotcuda.builder.frontends import gpu_queries
from aotcuda.builder.frontends.gpu_queries import MISSING, gpu
from aotcuda.builder.frontends.numba import target_dependence
from aotcuda.gpus import describe
from aotcuda.stand_ins import numba as stand_in
from aotcuda.stand_ins.gpu import Gpu

gpu_queries.is_caller(__file__)
importing = gpu.importing
PRIVATE_PARTS = stand_in.PRIVATE_PARTS
_LATER = "do it in a function that is called later"


class _Device(stand_in.Device):
    """The device of sources and of compilations."""

    def __getattr__(self, name: str) -> Any:
        compiling = target_dependence.current_watch()
        if compiling is not None:
            return compiling.run(partial(_fact, name))
        if not gpu.is_importing and not name.startswith("_"):
            raise self.module.__dict__["CudaSupportError"](MISSING)
        return super().__getattr__(name)


def _fact(name: str, capability: tuple[int, int]) -> Any:
    """Return a property of a GPU with a compute capability."""
    return Gpu(describe(capability)).numba_attribute(name)


def answer(driver: Any) -> None:
    """Make a compiler's module `cudadrv.driver` answer for a GPU of the target."""
    stand_in.install(driver, gpu, _Device(gpu), f"{{name}}: {MISSING}")


def refuse_launches(*calls: tuple[type, str, str]) -> None:
    """Replace methods that launch kernels by functions that raise RuntimeError, unless a kernel copies an array.

    Args:
        calls: For each method its class, its name and the attribute that holds the kernel; "" for the object itself.
    """
    for owner, method, attribute in calls:

        def launch(self: Any, *args: Any, _attribute: str = attribute, **__: Any) -> Any:
            kernel = getattr(self, _attribute) if _attribute else self
            function = getattr(kernel, "py_func", None)
            if stand_in.copy_array(function, args):
                return
            name = getattr(function, "__qualname__", "this")
            message = f"{name} is a kernel; launching it needs a GPU, and a build has none; {_LATER}"
            raise RuntimeError(message)

        setattr(owner, method, launch)
