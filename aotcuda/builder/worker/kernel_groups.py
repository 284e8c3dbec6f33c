"""Divide a module's kernels into groups that become machine code together, and the groups among processes.

After an edit, a module of independent kernels need not be linked as a whole. Its kernels become machine code in groups,
which the build cache stores, and an image is linked from the groups' code. The functions that link run in children of
the worker.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from aotcuda import manifest
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import nvjitlink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aotcuda.arch import Target

    Group = tuple[str, ...]
    """Kernels of a module that become machine code together, by symbol."""
    Apart = dict[tuple[Group, Target], list[LinkInput]]
    """The code of each group, for each target."""
    Code = tuple[bytes, dict[str, int]]
    """The linker's output, and the spilled bytes of its kernels."""
    Objects = dict[tuple[Group, Target], Code]
    """The machine code of each group; empty if it cannot be linked with other code."""
    Generate = Callable[[Sequence[LinkInput], Target], list[LinkInput]]
    """A function that makes linkable code from inputs that the front end compiled for a target."""


LEAST, MOST = 3, 8
"""The fewest and the most kernels of a group; the average is five."""

_ENDS = frozenset("01234")
"""A group may end before a kernel whose name's digest ends in one of these digits."""


def divide(names: Sequence[str]) -> list[Group]:
    """Divide a module's kernels into groups of neighbours that become machine code together.

    Linking five kernels one by one takes a third longer than linking them at once; an edit of one kernel costs its
    whole group. Names decide where groups end, so a new or removed kernel changes only the groups next to it.
    """
    found: list[list[str]] = []
    for name in names:
        size = len(found[-1]) if found else MOST
        ends = size >= LEAST and manifest.digest(name.encode())[-1] in _ENDS
        if size >= MOST or ends:
            found.append([])
        found[-1].append(name)
    return [tuple(group) for group in found]


def divide_among(groups: Sequence[Apart], jobs: int) -> list[Apart]:
    """Divide a module's groups among processes, each group with all or some of its targets.

    Starting a process takes as long as one or two kernels. The first shares are large and the last ones small, so all
    processes end at about the same time.
    """
    if len(groups) < jobs:
        each = -(-jobs // len(groups)) if groups else 1
        return [
            {key: one[key] for key in [*one][start::each]} for one in groups for start in range(min(each, len(one)))
        ]
    waiting = {key: part for one in groups for key, part in one.items()}
    left = sum(len(group) for group, _ in waiting)
    found: list[Apart] = []
    size = 0
    for key, part in waiting.items():
        if size <= 0:
            found.append({})
            size = max(left // (2 * jobs), MOST)
        found[-1][key] = part
        size -= len(key[0])
        left -= len(key[0])
    return found


def make_objects(module: str, groups: Apart, generate: Generate, *settings: Any) -> Objects:
    """Return the machine code of some groups; in a child, since it leaves the folder it is in."""
    os.chdir("/")  # as for `linked`
    return {
        (group, target): nvjitlink.relocatable(module, generate(part, target), target, *settings)
        for (group, target), part in groups.items()
    }


def spilled_bytes(target: Target, objects: Objects) -> dict[str, int]:
    """Return the spilled bytes of the kernels in some machine code."""
    return {name: size for (_, at), (_, sizes) in objects.items() if at == target for name, size in sizes.items()}


def link(
    module: str,
    inputs: Sequence[LinkInput],
    target: Target,
    generate: Generate,
    settings: tuple[Any, ...],
    spills: Mapping[str, int],
) -> Code:
    """Link inputs into an image. `spills` are the spilled bytes of inputs that are machine code already."""
    # The linker writes the current folder into line tables; an image must not tell where it was built.
    os.chdir("/")
    data, found = nvjitlink.link(module, generate(inputs, target), target, *settings)
    return data, {**found, **spills}


def link_inputs(target: Target, objects: Objects) -> list[LinkInput]:
    """Return the machine code of a module's kernels for a target; empty if the image is linked from other code."""
    found = ((group, data) for (group, at), (data, _) in objects.items() if at == target)
    return [LinkInput(kind="cubin", name=f"machine code of {short_list(group)}", data=data) for group, data in found]


def short_list(names: Sequence[str]) -> str:
    """Return the names of kernels for the title of a step."""
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]
