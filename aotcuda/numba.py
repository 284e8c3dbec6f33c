"""Replace Numba in a module that defines and launches kernels: `from aotcuda.numba import cuda, float32`.

If the module was packaged in place, this import needs no Numba, and its kernels launch packaged images. In a source
tree that was never built, in builds, in Numba's simulator and with `AOTCUDA_IN_PLACE=0`, the names are Numba's own. See
docs/numba.md.
"""

from __future__ import annotations

import sys as _sys

from . import bundled as _bundled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from numba import *  # noqa: F403, TID251 (what type checkers see)
    from numba import cuda as cuda  # noqa: PLC0414, TID251

_entry: Any = _bundled.part("integrations.in_place.entry")


def __getattr__(name: str) -> Any:
    return _entry.attribute("numba", name, _sys._getframe(1).f_globals)  # noqa: SLF001 (who imports it decides)
