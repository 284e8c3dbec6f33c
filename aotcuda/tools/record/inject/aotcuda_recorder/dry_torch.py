"""Let PyTorch answer for the target, by `aotcuda/stand_ins/pytorch.py`."""

from __future__ import annotations

import aotcuda_recorder
from aotcuda_recorder import dry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def patch(module: ModuleType) -> None:
    """Replace PyTorch's functions that query a GPU."""
    aotcuda_recorder.stand_in("pytorch").install(module, dry.require_target(), dry)
