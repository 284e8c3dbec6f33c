"""Find the kernels of a PTX module (PTX ISA, "Kernel and Function Directives: .entry")."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Every repetition is possessive, and a comment or string without an end takes the rest, so no byte is read twice.
_COMMENT = rb"//[^\n]*+|/\*(?>(?s:.*?)\*/|(?s:.*+))"
_ENTRY = re.compile(
    rb"(?:[^./\"]++|%(comment)s|\"[^\"\n]*+\"?+|/|\.+(?!entry))*+"
    rb"\.entry(?:(?:\s++|%(comment)s)++([A-Za-z_$%%][\w$]*+))?+" % {b"comment": _COMMENT}
)


def kernels(text: bytes) -> tuple[str, ...]:
    """Return the names of the kernels, in the order of their definition."""
    return tuple(dict.fromkeys(_names(text)))


def _names(text: bytes) -> Iterator[str]:
    position = 0
    while match := _ENTRY.match(text, position):
        position = match.end()
        if name := match[1]:
            yield name.decode()
