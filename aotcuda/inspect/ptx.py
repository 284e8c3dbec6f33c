"""PTX: the kernels in a module of it (PTX ISA, "Kernel and Function Directives: .entry")."""

from __future__ import annotations

import re

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+([A-Za-z_$%][\w$]*)")


def kernels(text: bytes) -> tuple[str, ...]:
    """The names of the kernels, in the order of their definition."""
    return tuple(_ENTRY.findall(_COMMENT.sub(" ", text.decode(errors="replace"))))
