"""Group kernels that become machine code together, and share the groups out among processes.

A module whose kernels have nothing in common need not be linked as a whole after an edit: its kernels become machine
code in groups, which are kept in the build cache, and an image is linked of the groups' code. What links here runs in
children of the worker.
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
    """What came out of the linker, and what it spilled."""
    Objects = dict[tuple[Group, Target], Code]
    """Their machine code, which is empty where it cannot be linked with others."""
    Generate = Callable[[Sequence[LinkInput], Target], list[LinkInput]]
    """Makes linkable code of inputs that the front end compiled for a target."""


LEAST, MOST = 3, 8
"""Kernels of a group; five on average."""

_ENDS = frozenset("01234")
"""Before a kernel whose name's digest ends in one of these, a group ends if it may."""


def grouped(names: Sequence[str]) -> list[Group]:
    """Return a module's kernels in groups that become machine code together, each of some that follow each other.

    The linker takes a third longer for five kernels one by one than for five at once, and an edit of one costs all of
    its group. The neighbouring names decide where groups end, so a kernel that is added or removed changes the groups
    next to it, and those farther off stay as they are kept.
    """
    found: list[list[str]] = []
    for name in names:
        size = len(found[-1]) if found else MOST
        ends = size >= LEAST and manifest.digest(name.encode())[-1] in _ENDS
        if size >= MOST or ends:
            found.append([])
        found[-1].append(name)
    return [tuple(group) for group in found]


def shares(groups: Sequence[Apart], jobs: int) -> list[Apart]:
    """Return a module's groups as they are shared out among processes, each for all of its targets or for some.

    To start a process takes as long as one or two kernels do. So shares are large at first and smaller towards the end,
    each a part of what is left, and the processes have nothing more to do at about the same time.
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


def relocatable(module: str, groups: Apart, generate: Generate, *settings: Any) -> Objects:
    """Return the machine code of some groups; in a child, since it leaves the folder it is in."""
    os.chdir("/")  # as for `linked`
    return {
        (group, target): nvjitlink.relocatable(module, generate(part, target), target, *settings)
        for (group, target), part in groups.items()
    }


def spilled(target: Target, objects: Objects) -> dict[str, int]:
    """Return the spilled bytes of the kernels in some machine code."""
    return {name: size for (_, at), (_, of) in objects.items() if at == target for name, size in of.items()}


def linked(
    module: str,
    inputs: Sequence[LinkInput],
    target: Target,
    generate: Generate,
    settings: tuple[Any, ...],
    spills: Mapping[str, int],
) -> Code:
    """Link inputs into an image; `spills` are those of machine code among them, which the linker does not report."""
    # The linker writes the current folder into line tables; an image must not tell where it was built.
    os.chdir("/")
    data, found = nvjitlink.link(module, generate(inputs, target), target, *settings)
    return data, {**found, **spills}


def objects_of(target: Target, objects: Objects) -> list[LinkInput]:
    """Return the machine code of a module's kernels for a target; nothing where it is linked of other code."""
    found = ((group, data) for (group, of), (data, _) in objects.items() if of == target)
    return [LinkInput(kind="cubin", name=f"machine code of {and_more(group)}", data=data) for group, data in found]


def and_more(names: Sequence[str]) -> str:
    """Return the names of kernels for the title of a step."""
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]
