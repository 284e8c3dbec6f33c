"""Answer for NVML, the library behind `nvidia-smi`: one GPU, on which nothing runs.

Programs call NVML by NVIDIA's module `pynvml`, or by a copy of it. The module finds functions as attributes of its
global `nvmlLib`, which is a `Library` here.
"""

from __future__ import annotations

from . import gpu as gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .gpu import Gpu

_SUCCESS, _NOT_SUPPORTED, _NOT_FOUND = 0, 3, 6
_DRIVER = b"580.65.06"
_PCI = b"00000000:01:00.0"


class Library:
    """NVML's functions by their names in C.

    Args:
        gpu: The GPU.
    """

    def __init__(self, gpu: Gpu) -> None:
        memory = {"total": gpu.memory, "free": gpu.memory, "used": 0, "reserved": 0}
        pci = {"busId": _PCI, "busIdLegacy": _PCI[4:], "domain": 0, "bus": 1, "device": 0}
        clock = gpu.attribute("CLOCK_RATE") // 1000  # MHz
        major, minor = gpu.capability
        cuda = gpus.DRIVER[0] * 1000 + gpus.DRIVER[1] * 10
        self._outputs: dict[str, tuple[Any, ...]] = {
            "nvmlDeviceGetClockInfo": (clock,),
            "nvmlDeviceGetCount": (1,),
            "nvmlDeviceGetCudaComputeCapability": (major, minor),
            "nvmlDeviceGetCurrPcieLinkGeneration": (5,),
            "nvmlDeviceGetIndex": (0,),
            "nvmlDeviceGetMaxClockInfo": (clock,),
            "nvmlDeviceGetMemoryInfo": (memory,),
            "nvmlDeviceGetMinorNumber": (0,),
            "nvmlDeviceGetName": (gpu.name.encode(),),
            "nvmlDeviceGetPciInfo": (pci,),
            "nvmlDeviceGetPersistenceMode": (1,),
            "nvmlDeviceGetTemperature": (40,),
            "nvmlDeviceGetUUID": (gpus.UUID.encode(),),
            "nvmlDeviceGetUtilizationRates": ({"gpu": 0, "memory": 0},),
            "nvmlSystemGetCudaDriverVersion": (cuda,),
            "nvmlSystemGetDriverVersion": (_DRIVER,),
            "nvmlSystemGetNVMLVersion": (b"13." + _DRIVER,),
        }

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        plain = name.rpartition("_v")[0] if name[-3:-1] == "_v" else name

        def function(*arguments: Any) -> Any:
            return self._call(plain, arguments)

        return function

    def _call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Write a function's results into its arguments, and return NVML's status."""
        if name == "nvmlErrorString":
            return b"Not Supported"
        if name in ("nvmlInit", "nvmlInitWithFlags", "nvmlShutdown"):
            return _SUCCESS
        if name == "nvmlDeviceGetHandleByIndex" and int(getattr(arguments[0], "value", arguments[0])):
            return _NOT_FOUND
        if name.startswith("nvmlDeviceGetHandleBy"):
            return _SUCCESS
        values = self._outputs.get(name)
        if values is None:
            return _NOT_SUPPORTED
        targets = [item for item in (getattr(word, "_obj", None) for word in arguments) if item is not None]
        if not targets:  # text is written into a buffer of the program
            targets = [item for item in arguments if hasattr(item, "raw")]
        for target, value in zip(targets, values):  # noqa: B905 (strict= came with Python 3.10)
            _write(target, value)
        return _SUCCESS


def _write(target: Any, value: Any) -> None:
    if isinstance(value, dict):
        for name, item in value.items():
            if hasattr(target, name):
                setattr(target, name, item)
    else:
        target.value = value
