"""One change between two builds, and helpers that find and describe changes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LONGEST = 40
"""The most characters of a value in the text output. Longer values are in the JSON output only."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change.

    Attributes:
        kind: The subject: `module`, `kernel`, `function`, `link`, `gpu`, `image`, `function image`, `driver`,
            `setting`, `toolchain`, `resources`, `size`.
        name: The name of a kernel, a target or a key.
        text: The change in words.
        breaks: True if code that uses the old build may fail with the new one.
        old: The old value; None for an addition.
        new: The new value; None for a removal.
    """

    kind: str
    name: str
    text: str
    breaks: bool = False
    old: Any = None
    new: Any = None


def added_and_removed(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    """Yield a change for each name that only `old` or only `new` has."""
    for name in sorted(old.keys() - new.keys()):
        yield Change(kind=kind, name=name, text="removed", breaks=True)
    for name in sorted(new.keys() - old.keys()):
        yield Change(kind=kind, name=name, text="added")


def changed_keys(
    old: Mapping[str, Any], new: Mapping[str, Any], skipped: frozenset[str]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield each key that differs and is not in `skipped`, with both values; None for a missing one."""
    for key in sorted((old.keys() | new.keys()) - skipped):
        if old.get(key) != new.get(key):
            yield key, old.get(key), new.get(key)


def describe(old: object, new: object) -> str:
    """Describe the change of a value, without long values."""
    texts = (value_text(old), value_text(new))
    return "changed" if max(map(len, texts)) > _LONGEST else f"was {texts[0]} and is {texts[1]}"


def value_text(value: object) -> str:
    """Return a value as text: strings unchanged, a missing value as `none`, others as JSON."""
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)
