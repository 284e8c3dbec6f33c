"""Text that files and their makers decide, made fit for a terminal."""

from __future__ import annotations

_LONGEST = 1000


def shown(text: str) -> str:
    r"""The text, and as `\x1b` whatever does not print: control characters, half surrogates, marks of direction.

    So no name can move a terminal's cursor, or break the one line of an error.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def brief(text: str) -> str:
    """As `shown`, of what is longer than a page only the beginning."""
    if len(text) <= _LONGEST:
        return shown(text)
    return f"{shown(text[:_LONGEST])}... ({len(text) - _LONGEST:,} more characters)"
