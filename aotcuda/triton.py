"""Replace Triton in a module that defines and launches kernels: `from aotcuda.triton import triton, tl`.

In a module that was packaged in place, `triton` is a module whose kernels launch the packaged code. Elsewhere (a source
tree without a build, a build, `TRITON_INTERPRET=1`, `AOTCUDA_IN_PLACE=0`) it is Triton itself. `tl` is always
`triton.language`. Without Triton, packaged modules get light objects with the same interface. See docs/triton.md.
"""

from __future__ import annotations

import sys as _sys

from . import bundled as _bundled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import triton as triton  # noqa: PLC0414
    import triton.language as tl  # noqa: F401
    from triton import *  # noqa: F403

_entry: Any = _bundled.part("integrations.in_place.triton.entry")


def __getattr__(name: str) -> Any:
    return _entry.attribute(name, _sys._getframe(1).f_globals)  # noqa: SLF001 (the importing module decides)
