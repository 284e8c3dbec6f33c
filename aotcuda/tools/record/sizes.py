"""Find the sizes of Triton kernels: sets of integers that vary together among the launches of a kernel.

A number of columns and the strides that are computed from it have values that map one to one. A build makes a variant
without the hints of each size, so that launches with another number of columns find packaged code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aotcuda.builder.frontends.triton.config import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Integers:
    """The integers of the launches of a kernel.

    Attributes:
        module, function, path: As in `Record`.
        names: The parameters that were integers.
        rows: Their values, in each launch with other values.
        equal: The constexprs that equalled a size or a stride of an array in a launch.
    """

    module: str
    function: str
    path: str
    names: list[str]
    rows: list[list[int]]
    equal: list[str]

    @property
    def order(self) -> tuple[str, ...]:
        """Return a key that is equal for launches of one kernel with integers for the same parameters."""
        return (self.module, self.function, self.path, *self.names)


def merged(items: Iterable[Integers]) -> list[Integers]:
    """Return one item for each kernel and its names, with the rows of all."""
    found: dict[tuple[str, ...], Integers] = {}
    for item in items:
        before = found.get(item.order)
        if before is None:
            found[item.order] = replace(item, rows=_distinct(item.rows))
        else:
            equal = sorted({*before.equal, *item.equal})
            found[item.order] = replace(before, rows=_distinct([*before.rows, *item.rows]), equal=equal)
    return [found[order] for order in sorted(found)]


def _distinct(rows: Iterable[Sequence[int]]) -> list[list[int]]:
    return [[*row] for row in sorted({tuple(row) for row in rows})]


def of(items: Sequence[Integers]) -> list[list[str]]:
    """Return the sizes of a kernel by the integers of its launches, those with the most values first."""
    names = list(dict.fromkeys(name for item in items for name in item.names))
    launches = [dict(zip(item.names, row, strict=True)) for item in items for row in item.rows]
    columns = {name: [launch.get(name) for launch in launches] for name in names}
    groups: list[list[str]] = []
    for name in names:
        column = columns[name]
        if len({value for value in column if value is not None}) < 2:
            continue
        for group in groups:
            other = columns[group[0]]
            if len({*column}) == len({*other}) == len({*zip(column, other, strict=True)}):
                group.append(name)
                break
        else:
            groups.append([name])
    return sorted(groups, key=lambda group: -len({*columns[group[0]]}))


def join(sizes: Sequence[Sequence[str]], others: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the sizes of two records: two integers stay together only if both records have them together."""
    groups: dict[tuple[int, int], list[str]] = {}
    for name in dict.fromkeys(name for size in (*sizes, *others) for name in size):
        places = [
            next((at for at, size in enumerate(each) if name in size), -1 - len(groups)) for each in (sizes, others)
        ]
        groups.setdefault((places[0], places[1]), []).append(name)
    return [*groups.values()]


def fixed(variants: Iterable[dict[str, Any]], items: Iterable[Integers]) -> list[str]:
    """Return the integer constexprs of a kernel whose recorded values alone are packaged, although users may vary them.

    Neither an autotuner nor a heuristic sets them, and they had several values, or equalled a size or a stride.

    Args:
        variants: The options of the kernel's records.
        items: The integers of its launches.
    """
    values: dict[str, set[int]] = {}
    computed: set[str] = set()
    for options in variants:
        computed |= {*options.get("chosen", ()), *options.get("computed", ()), *OPTIONS}
        for name, value in options["constants"].items():
            if type(value) is int:
                values.setdefault(name, set()).add(value)
    equal = {name for item in items for name in item.equal}
    return sorted(name for name, found in values.items() if name not in computed and (len(found) > 1 or name in equal))


def for_kernel(source: str, path: str, items: Iterable[Integers]) -> list[Integers]:
    """Return the integers of the launches of a kernel, by its module and its path without decorators."""
    return [item for item in items if item.module == source and _is_path(item.path, path)]


def _is_path(path: str, wanted: str) -> bool:
    """Return True if a path is `wanted`, perhaps through decorators: `softmax.fn` for `softmax`."""
    return path == wanted or (path.startswith(f"{wanted}.fn") and not path[len(wanted) :].replace(".fn", ""))


def known(value: Any) -> list[list[str]]:
    """Return the sizes in a kernel's entry of a variants file; none if they are damaged, which a build reports."""
    lists = value if isinstance(value, list) else []
    return [[*map(str, size)] for size in lists if isinstance(size, list)]
