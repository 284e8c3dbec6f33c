"""How much shared memory a block can have, by compute capability, and the kernels that need more of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotcuda import arch
from aotcuda.builder import excess

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aotcuda.builder.frontends.protocol import CompiledKernel, Unit

_KIB = 1024
MOST = {
    (7, 5): 64 * _KIB,
    (8, 0): 163 * _KIB,
    (8, 6): 99 * _KIB,
    (8, 7): 163 * _KIB,
    (8, 9): 99 * _KIB,
    (9, 0): 227 * _KIB,
    (10, 0): 227 * _KIB,
    (10, 3): 227 * _KIB,
    (11, 0): 227 * _KIB,
    (12, 0): 99 * _KIB,
    (12, 1): 99 * _KIB,
}
"""Bytes; in the CUDA programming guide, "Technical Specifications per Compute Capability"."""


def warnings(kernels: Iterable[tuple[Unit, CompiledKernel]]) -> list[str]:
    """A line for each kernel whose launches a target refuses, of those whose shared memory was compiled into them."""
    variants: dict[str, list[CompiledKernel]] = {}
    for unit, built in kernels:
        variants.setdefault(unit.key, []).append(built)
    return [text for key, built in variants.items() for text in _warning(key, built)]


def _warning(key: str, variants: Sequence[CompiledKernel]) -> list[str]:
    needs = [{target: launch["shared"] for target, launch in built.launches} for built in variants]
    found = excess.find(needs, _most, "variants")
    if found is None:
        return []
    which, worst = found
    sizes = ", ".join(f"{size} bytes for {target}, which has {_most(target)}" for target, size in worst)
    problem = f"{which} more shared memory for a block than there is, and cannot be launched there"
    return [f"{key}: {problem}: {sizes}; have smaller tiles or fewer stages"]


def _most(target: str) -> int:
    return MOST.get(arch.parse(target).capability, 1 << 31)
