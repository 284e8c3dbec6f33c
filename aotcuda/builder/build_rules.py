"""What a build depends on, as build systems read it."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from aotcuda.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_NEVER_THERE = "a-file-whose-name-cannot-stand-here"
"""Stands for files whose names the format cannot have: it is never there, so that all is built again each time."""


def depfile(targets: Iterable[Path], files: Iterable[Path]) -> bytes:
    """A dependency file, as compilers write it with `-MD -MP` for make, ninja and CMake: what `targets` were made from.

    Each file is a target of its own, too, so that make goes on where one of them is gone. The names are as make quotes
    them; where `warnings` tells that one cannot be written, the rule is such that the build runs each time.
    """
    given = list(files)
    names = [_escaped(path) for path in given if _is_writable(path)]
    if len(names) < len(given):
        names.append(_NEVER_THERE)
    # Of `target: a=b c` make would make a variable with the value `b c`, unless another name comes first.
    if names and "=" in names[0]:
        plain = [*names, _escaped(os.path.realpath(sys.executable)), _NEVER_THERE]
        names.insert(0, next(name for name in plain if "=" not in name))
    rule = " \\\n  ".join([f"{' '.join(map(_escaped, targets))}:", *dict.fromkeys(names)])
    # `a=b:` would be a variable as well, and `a%b:` a rule for other files.
    gone = [f"{name}:" for name in dict.fromkeys(names) if not {"=", "%"} & {*name}]
    return "".join(f"{text}\n" for text in [rule, *gone]).encode(errors="surrogateescape")


def warnings(targets: Iterable[Path], files: Iterable[Path]) -> list[str]:
    """What users should know of a dependency file: of names that make or ninja do not read as they are.

    Raises:
        BuildError: A target has such a name that there is no rule for it.
    """
    found = []
    for path in targets:
        if not _is_writable(path):
            message = f"{_shown(path)} has a name for which no dependency file can have a rule; write to another folder"
            raise BuildError(message)
    if named := next((path for path in targets if "=" in str(path)), None):
        found.append(
            f"make takes the rule for {named} for a variable, because of the =, and would build nothing again (ninja "
            "and CMake do not); give it a relative path, or build in a folder without ="
        )
    if hidden := [path for path in files if not _is_writable(path)]:
        more = f" and {len(hidden) - 1} more" if len(hidden) > 1 else ""
        found.append(
            f"no dependency file can have the name {_shown(hidden[0])}{more}, so make and ninja build each time; "
            "rename it"
        )
    return found


def _is_writable(path: Path) -> bool:
    """Whether there is a way to write a name: a `;` begins a recipe for make, and ends a name for ninja."""
    text = str(path)
    return not {"\n", "\r", ";"} & {*text} and not text.endswith("\\")


def _shown(path: Path) -> str:
    return ascii(str(path)) if not str(path).isprintable() else str(path)


def _escaped(path: Path | str) -> str:
    text = str(path).replace("$", "$$")
    # Backslashes count as such unless they stand before what needs one itself.
    return re.sub(r"(\\*)([ \t#:|])", r"\1\1\\\2", text)
