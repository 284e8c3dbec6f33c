"""Warn of kernels that need more memory than a GPU has. No compiler refuses them; their launches fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotcuda import arch
from aotcuda.gpus import BY_NUMBER, MOST_LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aotcuda import manifest
    from aotcuda.builder.frontends.protocol import CompiledKernel, Unit


def shared_memory(kernels: Iterable[tuple[Unit, CompiledKernel]]) -> list[str]:
    """Return a warning for each kernel whose compiled-in shared memory exceeds that of a target."""
    variants: dict[str, list[dict[str, int]]] = {}
    for unit, built in kernels:
        variants.setdefault(unit.key, []).append({target: launch["shared"] for target, launch in built.launches})
    found = []
    for key, needs in variants.items():
        if (excess := _excess(needs, most_shared, "variants")) is not None:
            subject, worst = excess
            sizes = ", ".join(f"{size} bytes for {target}, which has {most_shared(target)}" for target, size in worst)
            problem = f"{subject} more shared memory for a block than there is, and cannot be launched there"
            found.append(f"{key}: {problem}: {sizes}; have smaller tiles or fewer stages")
    return found


def local_memory(module: str, kernels: Iterable[manifest.Kernel]) -> list[str]:
    """Return a warning for each kernel of a module whose threads need more local memory than GPUs have."""
    found = []
    for kernel in kernels:
        overloads = [overload["resources"].items() for overload in kernel["overloads"]]
        needs = [{target: resources["local"] or 0 for target, resources in overload} for overload in overloads]
        if (excess := _excess(needs, lambda _target: MOST_LOCAL, "signatures")) is not None:
            subject, worst = excess
            sizes = ", ".join(f"{size} bytes for {target}" for target, size in worst)
            problem = f"{subject} more local memory for a thread than the {MOST_LOCAL} bytes that GPUs have"
            advice = "have smaller local arrays, or arrays in global memory"
            found.append(f"{module}.{kernel['name']}: {problem}, and cannot be launched: {sizes}; {advice}")
    return found


def most_shared(target: str) -> int:
    """Return the bytes of shared memory that a block may have on a target's GPUs; very many if they are not known."""
    row = BY_NUMBER.get(arch.parse(target).capability)
    return row.limits.shared_block if row is not None and row.limits is not None else 1 << 31


def _excess(
    needs: Sequence[Mapping[str, int]], most: Callable[[str], int], noun: str
) -> tuple[str, list[tuple[str, int]]] | None:
    """Find the variants of a kernel that need more bytes than a target has.

    Args:
        needs: For each variant the bytes that it needs, by target.
        most: Returns the bytes that a target has.
        noun: The plural noun for variants in the message.

    Returns:
        The start of a sentence and the largest excessive need for each target; None if every variant fits.
    """
    over = [{target: size for target, size in need.items() if size > most(target)} for need in needs]
    count = sum(map(bool, over))
    if not count:
        return None
    subject = "it needs" if len(needs) == 1 else f"{count} of its {len(needs)} {noun} need{'s' * (count == 1)}"
    worst: dict[str, int] = {}
    for found in over:
        worst |= {target: max(size, worst.get(target, 0)) for target, size in found.items()}
    return subject, sorted(worst.items())
