"""Replace numba-cuda-mlir in a module that defines and launches kernels: `from aotcuda.numba_cuda_mlir import cuda`.

If the module was packaged in place, this import needs no compiler, and its kernels launch packaged images. In a source
tree that was never built, in builds and with `AOTCUDA_IN_PLACE=0`, the names are numba-cuda-mlir's own. See
docs/numba.md.
"""

from __future__ import annotations

import sys as _sys

from . import bundled as _bundled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from numba_cuda_mlir import *  # noqa: F403 (what type checkers see)
    from numba_cuda_mlir import cuda as cuda  # noqa: PLC0414

_entry: Any = _bundled.part("integrations.in_place.entry")


def __getattr__(name: str) -> Any:
    return _entry.attribute("numba_cuda_mlir", name, _sys._getframe(1).f_globals)  # noqa: SLF001 (who imports it decides)
