"""Kernels that need more local memory for a thread than GPUs have, which no compiler refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotcuda import arch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda import manifest


def warnings(module: str, kernels: Sequence[manifest.Kernel]) -> list[str]:
    """A line for each kernel of a module whose launches are refused."""
    return [text for kernel in kernels for text in _warning(f"{module}.{kernel['name']}", kernel["overloads"])]


def _warning(where: str, overloads: Sequence[manifest.Overload]) -> list[str]:
    worst: dict[str, int] = {}
    concerned = 0
    for overload in overloads:
        needed = {target: found["local"] or 0 for target, found in overload["resources"].items()}
        over = {target: size for target, size in needed.items() if size > arch.MOST_LOCAL}
        concerned += bool(over)
        worst |= {target: max(size, worst.get(target, 0)) for target, size in over.items()}
    if not worst:
        return []
    which = "it needs"
    if len(overloads) > 1:
        which = f"{concerned} of its {len(overloads)} signatures need{'s' * (concerned == 1)}"
    sizes = ", ".join(f"{size} bytes for {target}" for target, size in sorted(worst.items()))
    problem = f"{which} more local memory for a thread than the {arch.MOST_LOCAL} bytes that GPUs have"
    advice = "have smaller local arrays, or arrays in global memory"
    return [f"{where}: {problem}, and cannot be launched: {sizes}; {advice}"]
