"""A difference between two builds, and how differences are found and told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LONG = 40
"""Values with more characters are told in the JSON alone."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One difference.

    Attributes:
        kind: What it is about: `module`, `kernel`, `function`, `link`, `gpu`, `image`, `function image`, `driver`,
            `setting`, `toolchain`, `resources`, `size`.
        name: Which one: a kernel, a target, a key.
        text: What happened to it, in words.
        breaks: Whether a user of the old build would break.
        old: What it was; None for what is new.
        new: What it is; None for what is gone.
    """

    kind: str
    name: str
    text: str
    breaks: bool = False
    old: Any = None
    new: Any = None


def named(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    """What is only on one side."""
    for name in sorted(old.keys() - new.keys()):
        yield Change(kind=kind, name=name, text="removed", breaks=True)
    for name in sorted(new.keys() - old.keys()):
        yield Change(kind=kind, name=name, text="added")


def others(old: Mapping[str, Any], new: Mapping[str, Any], told: frozenset[str]) -> Iterator[tuple[str, Any, Any]]:
    """Each key that differs and is not in `told`, with both values; None for one that is missing."""
    for key in sorted((old.keys() | new.keys()) - told):
        if old.get(key) != new.get(key):
            yield key, old.get(key), new.get(key)


def became(was: object, now: object) -> str:
    """How a value changed, in words; what is long is in the JSON alone."""
    texts = (shown(was), shown(now))
    return "changed" if max(map(len, texts)) > _LONG else f"was {texts[0]} and is {texts[1]}"


def shown(value: object) -> str:
    """A value as text: strings as they are, what is missing as `none`, all else as JSON."""
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)
