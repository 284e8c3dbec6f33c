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
    from aotcuda.builder.frontends.protocol import Ir

    Group = tuple[str, ...]
    """Kernels of a module that become machine code together, by symbol."""
    GroupCode = dict[tuple[Group, Target], list[LinkInput | Ir]]
    """The code of each group, for each target."""
    Code = tuple[bytes, dict[str, int]]
    """The linker's output, and the spilled bytes of its kernels."""
    Objects = dict[tuple[Group, Target], Code]
    """The machine code of each group for each target; empty bytes if it cannot be linked with other code."""
    Generate = Callable[[Sequence[LinkInput | Ir], Target], list[LinkInput]]
    """A function that makes linkable code from inputs that the front end compiled for a target."""


LEAST, MOST = 3, 8
"""The fewest and the most kernels of a group; the average is five."""

_ENDS = frozenset("01234")
"""A group may end before a kernel whose name's digest ends in one of these digits."""


def divide(names: Sequence[str]) -> list[Group]:
    """Divide a module's kernels into groups of neighbours that become machine code together.

    Linking five kernels one by one takes a third longer than linking them at once. After an edit of one kernel, its
    whole group is linked again. Names decide where groups end, so a new or removed kernel changes only the groups next
    to it.
    """
    groups: list[list[str]] = []
    for name in names:
        size = len(groups[-1]) if groups else MOST
        ends = size >= LEAST and manifest.digest(name.encode())[-1] in _ENDS
        if size >= MOST or ends:
            groups.append([])
        groups[-1].append(name)
    return [tuple(group) for group in groups]


def divide_among(groups: Sequence[GroupCode], jobs: int) -> list[GroupCode]:
    """Divide a module's groups among processes, each group with all or some of its targets.

    Starting a process takes as long as one or two kernels. The first shares are large and the last ones small, so all
    processes end at about the same time.
    """
    if len(groups) < jobs:
        each = -(-jobs // max(len(groups), 1))
        return [
            {key: code[key] for key in [*code][start::each]} for code in groups for start in range(min(each, len(code)))
        ]
    waiting = {key: inputs for code in groups for key, inputs in code.items()}
    count = sum(len(group) for group, _ in waiting)
    shares: list[GroupCode] = []
    size = 0
    for (group, target), inputs in waiting.items():
        if size <= 0:
            shares.append({})
            size = max(count // (2 * jobs), MOST)
        shares[-1][group, target] = inputs
        size -= len(group)
        count -= len(group)
    return shares


# The linker writes the current folder into line tables. An image must not tell where it was built.
_FOLDER = "/"


def make_objects(module: str, groups: GroupCode, generate: Generate, *settings: Any) -> Objects:
    """Return the machine code of some groups; run in a child, because it changes the current folder."""
    os.chdir(_FOLDER)
    return {
        (group, target): nvjitlink.relocatable(module, generate(inputs, target), target, *settings)
        for (group, target), inputs in groups.items()
    }


def spilled_bytes(target: Target, objects: Objects) -> dict[str, int]:
    """Return the spilled bytes of the kernels in the machine code for a target."""
    return {
        name: size
        for (_, of_target), (_, sizes) in objects.items()
        if of_target == target
        for name, size in sizes.items()
    }


def link(
    module: str,
    inputs: Sequence[LinkInput | Ir],
    target: Target,
    generate: Generate,
    settings: tuple[Any, ...],
    spills: Mapping[str, int],
) -> Code:
    """Link inputs into an image; run in a child, because it changes the current folder.

    `spills` are the spilled bytes of kernels whose machine code is among the inputs.
    """
    os.chdir(_FOLDER)
    data, of_generated = nvjitlink.link(module, generate(inputs, target), target, *settings)
    return data, {**of_generated, **spills}


def link_inputs(target: Target, objects: Objects) -> list[LinkInput]:
    """Return the machine code of a module's kernels for a target; empty if the image is linked from other code."""
    return [
        LinkInput(kind="cubin", name=f"machine code of {short_list(group)}", data=data)
        for (group, of_target), (data, _) in objects.items()
        if of_target == target
    ]


def short_list(names: Sequence[str]) -> str:
    """Return the names of kernels, shortened for the title of a step."""
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]
