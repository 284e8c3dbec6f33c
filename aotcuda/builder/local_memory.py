"""Kernels that need more local memory for a thread than GPUs have, which no compiler refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotcuda import arch
from aotcuda.builder import excess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda import manifest


def warnings(module: str, kernels: Sequence[manifest.Kernel]) -> list[str]:
    """A line for each kernel of a module whose launches are refused."""
    return [text for kernel in kernels for text in _warning(f"{module}.{kernel['name']}", kernel["overloads"])]


def _warning(where: str, overloads: Sequence[manifest.Overload]) -> list[str]:
    needs = [{target: found["local"] or 0 for target, found in one["resources"].items()} for one in overloads]
    found = excess.find(needs, lambda _target: arch.MOST_LOCAL, "signatures")
    if found is None:
        return []
    which, worst = found
    sizes = ", ".join(f"{size} bytes for {target}" for target, size in worst)
    problem = f"{which} more local memory for a thread than the {arch.MOST_LOCAL} bytes that GPUs have"
    advice = "have smaller local arrays, or arrays in global memory"
    return [f"{where}: {problem}, and cannot be launched: {sizes}; {advice}"]
