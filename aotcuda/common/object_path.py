"""Paths to objects in a module: attributes and items, such as `Solver.step` and `_by_groups[2]`.

An item is an integer, or a string of letters, digits, hyphens and underscores in double quotes.
"""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_NAME, _ITEM = r"[^\W\d]\w*", r'\[(?:0|-?[1-9]\d{0,17}|"[\w-]*")\]'
_PART = re.compile(rf"(?:(?<=.)\.|^){_NAME}|{_ITEM}")

PATTERN = rf"{_NAME}(?:\.{_NAME}|{_ITEM})*"
"""A regular expression for a whole path."""

ERRORS = (AttributeError, LookupError, TypeError)
"""The errors of `step` for an object that has no such attribute or item."""


def split(path: str) -> list[str]:
    """Return the parts of a path: names of attributes, and items in brackets.

    Raises:
        ValueError: The text is no path.
    """
    parts = [match[0] for match in _PART.finditer(path)]
    if not parts or "".join(parts) != path or parts[0].startswith("["):
        message = f"{path!r} is no path to an object"
        raise ValueError(message)
    return [part.removeprefix(".") for part in parts]


def join(parts: Iterable[str]) -> str:
    """Return the path of parts."""
    return "".join(part if part.startswith("[") else f".{part}" for part in parts).removeprefix(".")


def step(value: Any, part: str) -> Any:
    """Return the attribute or item of an object that a part names; the object's own errors pass."""
    return value[json.loads(part[1:-1])] if part.startswith("[") else getattr(value, part)


def walk(value: Any, parts: Iterable[str]) -> Any:
    """Return the object that parts lead to from an object, or None; other errors than `ERRORS` pass."""
    for part in parts:
        try:
            value = step(value, part)
        except ERRORS:
            return None
    return value
