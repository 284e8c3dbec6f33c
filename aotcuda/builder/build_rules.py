"""What a build depends on, as build systems read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def depfile(targets: Iterable[Path], files: Iterable[Path]) -> bytes:
    """A dependency file, as compilers write it with `-MD -MP` for make, ninja and CMake: what `targets` were made from.

    Each file is a target of its own, too, so that make goes on where one of them is gone. Names that end with
    a backslash or have a line break are left out: the format has no way to write them.
    """
    names = [_escaped(path) for path in files if "\n" not in str(path) and not str(path).endswith("\\")]
    rule = " \\\n  ".join([f"{' '.join(map(_escaped, targets))}:", *names])
    return "".join(f"{text}\n" for text in [rule, *(f"{name}:" for name in names)]).encode(errors="surrogateescape")


def _escaped(path: Path) -> str:
    text = str(path).replace("$", "$$")
    for letter in " #":
        text = text.replace(letter, f"\\{letter}")
    return text
