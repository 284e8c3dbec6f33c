"""Suggest the name that a user probably meant."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar of `names`, or None if none is similar; a name with one other letter is."""
    from difflib import get_close_matches  # noqa: PLC0415 (only errors come here)

    names = list(names)
    near = get_close_matches(name, names, n=1) or [other for other in names if _is_one_edit(name, other)]
    return near[0] if near else None


def did_you_mean(name: str, names: Iterable[str], otherwise: str) -> str:
    """Return the question "did you mean" with the most similar one of `names`, or `otherwise` if none is similar."""
    near = nearest(name, names)
    return f"did you mean {near}?" if near else otherwise


def _is_one_edit(first: str, second: str) -> bool:
    """Return True if one letter was added, removed or replaced, and at least one letter is left."""
    short, long = sorted((first, second), key=len)
    start = 0
    while start < len(short) and short[start] == long[start]:
        start += 1
    rest = len(long) - start - 1
    removed = len(long) == len(short) + 1 and short[start:] == long[start + 1 :]
    replaced = len(long) == len(short) and short[start + 1 :] == long[start + 1 :]
    return (start > 0 or rest > 0) and (removed or replaced)
