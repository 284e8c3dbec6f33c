"""Let PyTorch answer for the target, by `aotcuda/testing/pytorch.py`."""

from __future__ import annotations

import importlib.util
import json
import os

import aotcuda_recorder
from aotcuda_recorder import dry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def patch(module: ModuleType) -> None:
    """Replace PyTorch's functions that query a GPU."""
    file = os.path.join(aotcuda_recorder.testing_folder(), "pytorch.py")
    spec = importlib.util.spec_from_file_location("aotcuda_recorder.pytorch", file)
    assert spec is not None  # noqa: S101 (it is a Python file)
    assert spec.loader is not None  # noqa: S101
    stand_in = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stand_in)
    stand_in.install(module, json.loads(aotcuda_recorder.environ[aotcuda_recorder.TARGET]), dry)
