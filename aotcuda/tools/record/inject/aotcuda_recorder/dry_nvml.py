"""Let modules that call NVML (`pynvml` and its copies) get answers for the target, by `aotcuda/stand_ins/nvml.py`."""

from __future__ import annotations

import aotcuda_recorder
from aotcuda_recorder import dry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def patch(module: ModuleType) -> None:
    """Replace the library of a module."""
    if "nvmlLib" in module.__dict__:
        module.__dict__["nvmlLib"] = aotcuda_recorder.stand_in("nvml").Library(dry.require_target())
