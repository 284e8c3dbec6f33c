"""Write structured types as one line of text, to compare them: `|V16{a:<i4@0,b:<f8@8}`.

The text begins as NumPy's type string does; behind it stand the fields with their own types and offsets, taken from the
`descr` of the array interface protocols (NumPy reference, "The array interface protocol"), in which gaps are unnamed.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def structured(typestr: str, descr: Sequence[Any] | None) -> str:
    """Return the text for a type of `typestr` (`"|V16"`); without fields if `descr` has none."""
    fields = _fields(descr)[0] if descr else []
    return f"{typestr}{{{','.join(fields)}}}" if fields else typestr


def _fields(descr: Sequence[Any]) -> tuple[list[str], int]:
    """Return the fields of a `descr` as text, and its size in bytes."""
    texts = []
    offset = 0
    for name, kind, *shape in descr:
        if isinstance(kind, str):
            text, size = kind, int("".join(filter(str.isdigit, kind.partition("[")[0])))
            size *= 4 if "U" in kind else 1  # of strings it counts the characters
        else:
            inner, size = _fields(kind)
            text = f"{{{','.join(inner)}}}"
        for extent in shape[0] if shape and isinstance(shape[0], tuple | list) else shape:
            size *= extent
            text += f"*{extent}"
        label = name[1] if isinstance(name, tuple) else name
        if label:
            texts.append(f"{label}:{text}@{offset}")
        offset += size
    return texts, offset
