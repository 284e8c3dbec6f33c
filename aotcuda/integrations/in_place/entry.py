"""Decide if a source that imports `aotcuda.numba` gets packaged kernels or Numba itself.

The files that the build wrote next to each importing source decide, since a process may import built packages
and source trees without a build. All sources get Numba in builds, with `AOTCUDA_IN_PLACE=0`, and with numba-cuda's
simulator.
"""

from __future__ import annotations

import sys

from ...common import data_folder
from ...runtime.module import is_simulated as is_simulated_here
from . import sources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_IMPORT = "_find_and_load_unlocked"
"""The function of Python's import system that imports a submodule."""

_COMPILERS = ("numba", "numba_cuda", "numba_cuda_mlir")


def attribute(package: str, name: str, namespace: dict[str, Any]) -> object:
    """Return the object that a source gets under a name of `aotcuda.numba` or `aotcuda.numba_cuda_mlir`.

    Args:
        package: `numba` or `numba_cuda_mlir`.
        name: The name.
        namespace: The names of the importing source.

    Raises:
        AttributeError: Numba has no such name.
        ModuleNotFoundError: The source is not packaged, and Numba is not installed; or a submodule is imported.
    """
    if name == "__path__" and sys._getframe(2).f_code.co_name == _IMPORT:  # noqa: SLF001 (tools read it, too)
        message = (
            f"aotcuda.{package} has no submodules; write from aotcuda.{package} import cuda, and below it the whole "
            "name, such as cuda.random.xoroshiro128p_uniform_float32 or cuda.libdevice.sinf"
        )
        raise ModuleNotFoundError(message)
    if name.startswith("__") and name != "__version__":
        message = f"module 'aotcuda.{package}' has no attribute {name!r}"
        raise AttributeError(message, name=name)
    if is_numba(package, namespace):
        return _numba_attribute(package, name, namespace)
    from . import cuda_module  # noqa: PLC0415 (builds get Numba itself)

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


def _numba_attribute(package: str, name: str, namespace: dict[str, Any]) -> object:
    """Return an attribute of Numba itself.

    Raises:
        ModuleNotFoundError: Numba is not installed.
    """
    from contextlib import suppress  # noqa: PLC0415 (packaged sources need none)
    from importlib import import_module  # noqa: PLC0415

    from ...common import uninstalled_hook  # noqa: PLC0415
    from ...errors import DependencyError  # noqa: PLC0415
    from . import numba_proxy  # noqa: PLC0415

    try:
        numba = numba_proxy.import_numba(package, f"aotcuda.{package}.{name}")
    except DependencyError:
        source = str(namespace.get("__name__"))
        remedy = data_folder.frozen_remedy(source.partition(".")[0]) or (
            f"pip install {numba_proxy.requirement(package)!r}, or build the package (pip install -e .)"
        )
        if fault := uninstalled_hook.fault_of_package(source.partition(".")[0]):
            remedy += f"; {fault}"
        message = (
            f"{source} is not packaged here, so aotcuda.{package} is {package} itself, which is not installed: {remedy}"
        )
        raise ModuleNotFoundError(message, name=package) from None
    if name == "cuda":
        with suppress(ImportError):  # numba-cuda-mlir 0.5 has none
            import_module(f"{package}.cuda.random")  # neither package imports it
    if name == "cuda" and is_simulated(package):
        # A simulated kernel needs the `cuda` of its launch. The simulator replaces only globals with the name `cuda`.
        kernels: Any = sys.modules.get("numba.cuda.simulator.kernel")
        running = kernels._kernel_context if kernels is not None else None  # noqa: SLF001 (the simulator has no other)
        if running is not None:
            return running
        _complete_gpu()
    return numba_proxy.package_attribute(numba, name)


def _complete_gpu() -> None:
    """Add attributes that programs use and that the simulator's GPU and its `cuda` lack."""
    from ...gpus import EVERYWHERE  # noqa: PLC0415 (only the simulator needs the table)

    devices: Any = sys.modules["numba.cuda.simulator.cudadrv.devices"]
    for attribute, value in {**EVERYWHERE, "MAX_REGISTERS_PER_BLOCK": 65536}.items():
        if not hasattr(devices.FakeCUDADevice, attribute):
            setattr(devices.FakeCUDADevice, attribute, value)
    api: Any = sys.modules["numba.cuda.simulator.kernelapi"]
    api.FakeCUDAModule.random = sys.modules["numba.cuda.random"]  # `cuda` in a simulated kernel has none
