"""Read a pyproject.toml, which may be missing or have any content."""

from __future__ import annotations

import os
import re

from . import foreign

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Content = dict[str, Any]

FILE_NAME = "pyproject.toml"
_DEEPEST = 100
"""The greatest depth of tables; projects have about eight."""

_TOO_DEEP = f"is nested more than {_DEEPEST} tables deep; write fewer tables"
_LONG_KEY = re.compile(
    r"""(?<![\w."'-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){%d}""" % _DEEPEST  # noqa: UP031 (braces)
)
"""A dotted key with more than `_DEEPEST` parts, bare or quoted."""

LISTED = "tool.aotcuda: expected a table, found a list; write [tool.aotcuda], in single brackets"


def read(path: str | os.PathLike[str]) -> tuple[str, Content] | None:
    """Return the text and the content of a TOML file; None if there is no such file.

    Raises:
        foreign.UnreadableError: The file cannot be read, or is not TOML.
    """
    import tomllib  # noqa: PLC0415 (launches seldom read this file)

    try:
        if not os.path.lexists(path):
            return None
        text = foreign.content(path).decode()
        if text.startswith("\ufeff"):
            message = "begins with a byte order mark, which TOML does not allow; save it without one"
            raise foreign.UnreadableError(message)
        if _LONG_KEY.search(text) is None:  # tomllib takes minutes for such a key
            data = tomllib.loads(text)
            if _depth(data) <= _DEEPEST:
                return text, data
        message = _TOO_DEEP
    except ValueError as error:
        message = f"is not valid TOML: {error}"
    except RecursionError:
        message = _TOO_DEEP
    raise foreign.UnreadableError(message)


def _depth(data: object) -> int:
    """Return the depth of nested tables and lists."""
    depth, level = 0, [data]
    while level and depth <= _DEEPEST:
        inner = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
        depth += 1
    return depth


def content(path: str | os.PathLike[str]) -> Content:
    """Return the content of a TOML file; empty if it cannot be read."""
    try:
        file = read(path)
    except foreign.UnreadableError:
        return {}
    return {} if file is None else file[1]


def table(data: object, *keys: str) -> Content:
    """Return a nested table; empty if a key is missing or its value is no table."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def strings(data: object) -> list[str]:
    """Return the strings of an array; an empty list for another value."""
    return [item for item in data if isinstance(item, str)] if isinstance(data, list) else []
