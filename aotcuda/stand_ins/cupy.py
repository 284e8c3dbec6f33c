"""Find the stand-ins for CuPy, which are packages of `aotcuda.testing` and need NumPy."""

from __future__ import annotations

import os
from importlib.machinery import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

NAMES = ("cupy", "cupyx")
FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "testing")  # noqa: PTH118, PTH120 (starts fast)


def find(name: str) -> ModuleSpec | None:
    """Return the stand-in for a package; None for another package, or if the program has a stand-in of its own."""
    if name not in NAMES or PathFinder.find_spec("numpy") is None:
        return None
    has_own = PathFinder.find_spec(name) is not None and PathFinder.find_spec("cupy_backends") is None
    return None if has_own else PathFinder.find_spec(name, [FOLDER])
