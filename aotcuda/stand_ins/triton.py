"""Stand in for Triton's driver: the target of compilations, and the properties of the GPU."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .gpu import Gpu


class Properties(dict[str, int]):
    """Triton's dictionary with the properties of a GPU, which reports queries."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__(gpu.triton_properties())
        self._gpu = gpu

    def __getitem__(self, name: str) -> int:
        value: int = self._gpu.answered(name, super().__getitem__(name), depends_on_target=self._gpu.differs(name))
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """Return a property, or the default."""
        return self[name] if name in self else default  # noqa: SIM401 (this is `get`)


class Utilities:
    """Stand for `driver.utils`."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def get_device_properties(self, _device: object = 0) -> Properties:
        return Properties(self._gpu)


class Driver:
    """Stand for `triton.runtime.driver.active`, without launches."""

    def __init__(self, gpu: Gpu, target: Any = None) -> None:
        """Store the GPU, and Triton's `GPUTarget` if it is not the capability alone."""
        self._gpu = gpu
        self._target = target
        self.utils: Any = Utilities(gpu)

    def get_current_device(self) -> int:
        self._gpu.answered("Triton's current device", 0, presence=True)
        return 0

    def set_current_device(self, device: int) -> None:
        del device

    def get_device_capability(self, _device: object = 0) -> tuple[int, int]:
        self._gpu.answered("get_device_capability()", self._gpu.capability, depends_on_target=True)
        return self._gpu.capability

    def get_current_target(self) -> Any:
        major, minor = self._gpu.capability
        self._gpu.answered("Triton's current target", f"sm_{major}{minor}", depends_on_target=True)
        if self._target is not None:
            return self._target
        return sys.modules["triton.backends.compiler"].__dict__["GPUTarget"]("cuda", major * 10 + minor, 32)

    def get_active_torch_device(self) -> Any:
        return sys.modules["torch"].device("cuda", 0)

    def is_active(self) -> bool:
        return True
