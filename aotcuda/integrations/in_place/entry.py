"""Which `cuda` a source gets that imports `aotcuda.numba`: what is packaged, or Numba itself.

Decided for each importing source, by what the build has left beside it: a process may have packages that were built
beside source trees that were not. Three settings decide for all of them that it is Numba: builds, `AOTCUDA_IN_PLACE=0`
and, for numba-cuda, its simulator.
"""

from __future__ import annotations

import os
import sys

from aotcuda.integrations.in_place import sources
from aotcuda.runtime.module import is_simulated as is_simulated_here

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_COMPILERS = ("numba", "numba_cuda", "numba_cuda_mlir")


def attribute(package: str, name: str, namespace: dict[str, Any]) -> object:
    """What a source gets under a name of `aotcuda.numba` or `aotcuda.numba_cuda_mlir`.

    Args:
        package: What that module stands for: `numba` or `numba_cuda_mlir`.
        name: The name.
        namespace: The names of the source that asks.

    Raises:
        AttributeError: It is none that Numba has.
        ModuleNotFoundError: The source is not packaged, and Numba is not installed.
    """
    if name.startswith("__") and name != "__version__":
        message = f"module 'aotcuda.{package}' has no attribute {name!r}"
        raise AttributeError(message, name=name)
    if is_numba(package, namespace):
        return _real(package, name, namespace)
    from aotcuda.integrations.in_place import facade  # noqa: PLC0415 (Numba itself is wanted in builds, and before them)

    return facade.attribute(package, name)


def is_numba(package: str, namespace: dict[str, Any]) -> bool:
    """Whether a source gets Numba itself."""
    environ = os.environ
    if environ.get("AOTCUDA_BUILDING") == "1" or environ.get("AOTCUDA_IN_PLACE") == "0" or is_simulated(package):
        return True
    if str(namespace.get("__name__")).partition(".")[0] in _COMPILERS:
        return True  # a compiler that asks what a name in a kernel stands for
    return not sources.is_packaged(namespace)


def is_simulated(package: str) -> bool:
    """Whether the simulator runs a compiler's kernels; numba-cuda-mlir has none."""
    return package == "numba" and is_simulated_here()


def _real(package: str, name: str, namespace: dict[str, Any]) -> object:
    from aotcuda.errors import DependencyError  # noqa: PLC0415 (packaged sources need none)
    from aotcuda.integrations.in_place import deferred  # noqa: PLC0415

    try:
        found = deferred.need(package, f"aotcuda.{package}.{name}")
    except DependencyError:
        source = namespace.get("__name__")
        message = (
            f"{source} is not packaged here, so aotcuda.{package} is {package} itself, which is not installed: "
            f"pip install {deferred.requirement(package)!r}, or build the package (pip install -e .)"
        )
        raise ModuleNotFoundError(message, name=package) from None
    if name == "cuda" and is_simulated(package):
        # In a simulated kernel `cuda` is the one of that launch; the simulator replaces it where it is a global itself.
        kernels: Any = sys.modules.get("numba.cuda.simulator.kernel")
        running = kernels._kernel_context if kernels is not None else None  # noqa: SLF001 (the simulator has no other)
        if running is not None:
            return running
        simulated = deferred.of_package(found, name)
        _complete_gpu()
        return simulated
    return deferred.of_package(found, name)


def _complete_gpu() -> None:
    """Let the simulator's GPU answer what programs ask before they launch; it knows none of that."""
    from aotcuda.builder.frontends.numba import gpu  # noqa: PLC0415 (in the simulator alone)

    devices: Any = sys.modules["numba.cuda.simulator.cudadrv.devices"]
    for attribute, value in gpu.EVERYWHERE.items():
        if not hasattr(devices.FakeCUDADevice, attribute):
            setattr(devices.FakeCUDADevice, attribute, value)
