"""The version of aotcuda, and the order of versions."""

from __future__ import annotations

__version__ = "0.1.0"
"""The version; the build of aotcuda's own wheel reads it from this file."""


def is_older(version: str, floor: str) -> bool:
    """Return True if `version` precedes `floor`, by their numbers: 0.2.0rc1 and 0.2.0.dev3 count as 0.2.0."""
    return _release(version) < _release(floor)


def _release(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, without final zeros: (0, 2) for 0.2.0rc1."""
    numbers = []
    for part in version.split("."):
        rest = part.lstrip("0123456789")
        digits = part[: len(part) - len(rest)]
        if not digits:
            break
        numbers.append(int(digits[:9]))
        if rest:
            break
    while numbers and not numbers[-1]:
        del numbers[-1]
    return tuple(numbers)
