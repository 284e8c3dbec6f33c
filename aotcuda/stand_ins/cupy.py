"""Find the stand-ins for CuPy, which are packages of `aotcuda.testing` and need NumPy."""

from __future__ import annotations

import os
from importlib.machinery import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Any

NAMES = ("cupy", "cupyx")
FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "testing")  # noqa: PTH118, PTH120 (starts fast)


class Finder:
    """A finder of the stand-ins for `sys.meta_path`; it finds none if the program has a stand-in of its own."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Implement MetaPathFinder.find_spec."""
        del path, target
        if name not in NAMES or PathFinder.find_spec("numpy") is None:
            return None
        has_own = PathFinder.find_spec(name) is not None and PathFinder.find_spec("cupy_backends") is None
        return None if has_own else PathFinder.find_spec(name, [FOLDER])
