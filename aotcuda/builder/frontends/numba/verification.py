"""A fault of CUDA 12's libNVVM: for GPUs from compute capability 10.0 on its verifier refuses what it compiles.

It is the floating-point atomic addition (`atomicrmw fadd`, and the intrinsics that stand for it): "atomicrmw does not
support operation: 'fadd'" (12.9.86). Without the verifier it becomes the same instruction as for older GPUs,
and as by CUDA 13. So for those GPUs another text or another target is verified than is compiled.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aotcuda.builder import toolchain

if TYPE_CHECKING:
    from aotcuda.arch import Target

OLDER = "compute_90"
"""A target with the same dialect as that of front ends which have one for all GPUs, and with a sound verifier."""

_ADDITION = re.compile(r"\batomicrmw (volatile )?fadd\b")


def misjudges(target: Target) -> bool:
    """Whether the verifier refuses what is right, for a target."""
    return toolchain.toolkit_version() < (13, 0) and target.capability >= (10, 0)


def without_additions(text: str) -> str:
    """A text to verify in place of `text`: with another operation that has the same operands and is not refused."""
    return _ADDITION.sub(r"atomicrmw \1fsub", text)
