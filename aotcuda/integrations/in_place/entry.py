"""Decide if a source that imports `aotcuda.numba` gets packaged kernels or Numba itself.

Each importing source is decided by the files that the build wrote beside it, since a process may import built packages
and source trees without a build. All sources get Numba in builds, with `AOTCUDA_IN_PLACE=0`, and with numba-cuda's
simulator.
"""

from __future__ import annotations

import sys

from aotcuda.integrations.in_place import sources
from aotcuda.runtime.module import is_simulated as is_simulated_here

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_COMPILERS = ("numba", "numba_cuda", "numba_cuda_mlir")


def attribute(package: str, name: str, namespace: dict[str, Any]) -> object:
    """Return what a source gets under a name of `aotcuda.numba` or `aotcuda.numba_cuda_mlir`.

    Args:
        package: `numba` or `numba_cuda_mlir`.
        name: The name.
        namespace: The names of the importing source.

    Raises:
        AttributeError: Numba has no such name.
        ModuleNotFoundError: The source is not packaged, and Numba is not installed.
    """
    if name.startswith("__") and name != "__version__":
        message = f"module 'aotcuda.{package}' has no attribute {name!r}"
        raise AttributeError(message, name=name)
    if is_numba(package, namespace):
        return _real(package, name, namespace)
    from aotcuda.integrations.in_place import cuda_module  # noqa: PLC0415 (builds get Numba itself)

    return cuda_module.attribute(package, name)


def is_numba(package: str, namespace: dict[str, Any]) -> bool:
    """Return True if a source gets Numba itself."""
    if sources.is_switched_off() or is_simulated(package):
        return True
    if str(namespace.get("__name__")).partition(".")[0] in _COMPILERS:
        return True  # the compiler resolves a name in a kernel
    return not sources.is_packaged(namespace)


def is_simulated(package: str) -> bool:
    """Return True if Numba's simulator runs the kernels; numba-cuda-mlir has none."""
    return package == "numba" and is_simulated_here()


def _real(package: str, name: str, namespace: dict[str, Any]) -> object:
    from aotcuda.errors import DependencyError  # noqa: PLC0415 (packaged sources need none)
    from aotcuda.integrations.in_place import numba_proxy  # noqa: PLC0415

    try:
        found = numba_proxy.need(package, f"aotcuda.{package}.{name}")
    except DependencyError:
        source = namespace.get("__name__")
        message = (
            f"{source} is not packaged here, so aotcuda.{package} is {package} itself, which is not installed: "
            f"pip install {numba_proxy.requirement(package)!r}, or build the package (pip install -e .)"
        )
        raise ModuleNotFoundError(message, name=package) from None
    if name == "cuda" and is_simulated(package):
        # In a simulated kernel `cuda` is that of the launch; the simulator replaces it where it is a global itself.
        kernels: Any = sys.modules.get("numba.cuda.simulator.kernel")
        running = kernels._kernel_context if kernels is not None else None  # noqa: SLF001 (the simulator has no other)
        if running is not None:
            return running
        simulated = numba_proxy.of_package(found, name)
        _complete_gpu()
        return simulated
    return numba_proxy.of_package(found, name)


def _complete_gpu() -> None:
    """Add the attributes to the simulator's GPU that programs ask for before they launch."""
    from aotcuda.gpus import EVERYWHERE  # noqa: PLC0415 (only the simulator needs the table)

    devices: Any = sys.modules["numba.cuda.simulator.cudadrv.devices"]
    for attribute, value in {**EVERYWHERE, "MAX_REGISTERS_PER_BLOCK": 65536}.items():
        if not hasattr(devices.FakeCUDADevice, attribute):
            setattr(devices.FakeCUDADevice, attribute, value)
