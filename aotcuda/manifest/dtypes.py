"""Write structured types as text in one line, `|V16{a:<i4@0,b:<f8@8}`.

The text of a structured type is NumPy's type string, and the fields with their types and offsets. They come from the
`descr` of the array interface (NumPy reference, "The array interface protocol"), where gaps have no names.
"""

from __future__ import annotations

from ..common.scalar_types import NAMED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def structured(typestr: str, descr: Sequence[Any] | None) -> str:
    """Return the text for a type string such as `"|V16"` with the fields of `descr`, if it has fields."""
    fields = _fields(descr)[0] if descr else []
    return f"{typestr}{{{','.join(fields)}}}" if fields else typestr


def _fields(descr: Sequence[Any]) -> tuple[list[str], int]:
    """Return the fields of a `descr` as text, and its size in bytes."""
    texts = []
    offset = 0
    for name, kind, *shape in descr:
        if isinstance(kind, str):
            text, size = kind, NAMED.get(kind) or int("".join(filter(str.isdigit, kind.partition("[")[0])))
            size *= 4 if "U" in kind else 1  # the number counts characters of strings
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
