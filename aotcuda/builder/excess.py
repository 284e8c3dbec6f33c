"""Kernels that need more memory of some kind than GPUs have, which no compiler refuses: what warnings say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def find(
    needs: Sequence[Mapping[str, int]], most: Callable[[str], int], noun: str
) -> tuple[str, list[tuple[str, int]]] | None:
    """The start of a sentence on what of a kernel needs too much, and the largest such need for each target, in order.

    Args:
        needs: For each of the kernel's variants the bytes that it needs, by target.
        most: The bytes that a target has.
        noun: What the variants are called, in the plural.

    Returns:
        None if all variants have what they need.
    """
    over = [{target: size for target, size in need.items() if size > most(target)} for need in needs]
    concerned = sum(map(bool, over))
    if not concerned:
        return None
    which = "it needs" if len(needs) == 1 else f"{concerned} of its {len(needs)} {noun} need{'s' * (concerned == 1)}"
    worst: dict[str, int] = {}
    for found in over:
        worst |= {target: max(size, worst.get(target, 0)) for target, size in found.items()}
    return which, sorted(worst.items())
