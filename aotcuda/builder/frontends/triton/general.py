"""Make general variants: variants with fewer hints, which serve launches with integers that no run recorded.

A variant is right for each launch that fulfils its hints, and it is slower than the launch's own variant only if it
lacks a hint that matters. So few hints are dropped. For the variants with equal types, constants and options, one
general variant has the hints of integers that all of them share. For each size of the kernel, another one lacks the
hints of that size too. A size is a set of integers that vary together, such as a number of columns and a stride. In all
of them a pointer is aligned if a recorded launch had it so, because unaligned pointers cost most.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.builder.frontends.triton.type_notation import Type
    from aotcuda.builder.frontends.triton.variants_file import RecordedKernel, Variant

MOST_SIZES = 3
"""The most sizes of a kernel for which hints are dropped."""


def variants(kernel: RecordedKernel) -> list[Variant]:
    """Return the general variants of a kernel that its listed variants lack."""
    groups: dict[str, list[Variant]] = {}
    for variant in kernel.variants:
        plain = [_base(item).plain for item in variant.types]
        groups.setdefault(repr((plain, variant.constants_and_options)), []).append(variant)
    sizes = _sizes(kernel)
    result = []
    for group in groups.values():
        known = {variant.types for variant in group}
        shared = _shared_hints([variant.types for variant in group])
        for size in (frozenset[int](), *sizes):
            types = tuple(_base(item) if at in size else item for at, item in enumerate(shared))
            if types not in known:
                known.add(types)
                result.append(replace(group[0], types=types))
    return result


def _base(item: Type) -> Type:
    """Return the type of an integer without hints; other types are unchanged."""
    return item if item.pointer or not item.hint else replace(item, hint=0)


def _shared_hints(rows: Sequence[tuple[Type, ...]]) -> tuple[Type, ...]:
    """Return the types with the hints of integers that all rows have, and of pointers that any row has."""
    types = []
    for column in zip(*rows, strict=True):
        hints = {item.hint for item in column}
        hint = max(hints) if column[0].pointer else hints.pop() if len(hints) == 1 else 0
        types.append(replace(column[0], hint=hint))
    return tuple(types)


def _sizes(kernel: RecordedKernel) -> list[frozenset[int]]:
    """Return the sizes of a kernel, each as numbers of arguments that are not constexprs."""
    if kernel.sizes is not None and kernel.variants:
        constants = {name for name, _ in kernel.variants[0].constexprs}
        plain = [name for name in kernel.parameters if name not in constants]
        numbers = {name: at for at, name in enumerate(plain)}
        sizes = [frozenset(numbers[name] for name in size if name in numbers) for size in kernel.sizes]
        return [size for size in sizes if size][:MOST_SIZES]
    rows = [variant.types for variant in kernel.variants]
    differing = {
        at
        for row in rows
        for at, (item, first) in enumerate(zip(row, rows[0], strict=False))
        if _is_integer(item) and _is_integer(first) and item.hint != first.hint
    }
    return [frozenset(differing)] if differing else []


def _is_integer(item: Type) -> bool:
    return item.takes_hints and not item.pointer
