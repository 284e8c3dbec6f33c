"""Read a pyproject.toml that may be missing or have any content."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Content = dict[str, Any]

FILE_NAME = "pyproject.toml"
LISTED = "tool.aotcuda: expected a table, found a list; write [tool.aotcuda], in single brackets"


class UnreadableError(Exception):
    """The file cannot be read. The message continues after the file name: "is not valid TOML: ..."."""


def read(path: str | os.PathLike[str]) -> tuple[str, Content] | None:
    """Return the text and the content of a TOML file; None if there is no such file.

    Raises:
        UnreadableError: It cannot be read, or is no TOML.
    """
    import tomllib  # noqa: PLC0415 (few launches come here)

    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for
            message = "is no file"
            raise UnreadableError(message)
        with open(path, "rb") as file:
            text = file.read().decode()
        if text.startswith("\ufeff"):
            message = "begins with a byte order mark, which no TOML has; save it without one"
            raise UnreadableError(message)
        return text, tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        message = f"cannot be read ({error.strerror})"
    except ValueError as error:
        message = f"is not valid TOML: {error}"
    except RecursionError:
        message = "is not valid TOML: it is nested too deeply"
    raise UnreadableError(message)


def content(path: str | os.PathLike[str]) -> Content:
    """Return the content of a TOML file; empty if it cannot be read."""
    try:
        found = read(path)
    except UnreadableError:
        return {}
    return {} if found is None else found[1]


def table(data: object, *keys: str) -> Content:
    """Return a nested table; empty if one of them is missing or no table."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def strings(data: object) -> list[str]:
    """Return the strings of an array; none for another value."""
    return [item for item in data if isinstance(item, str)] if isinstance(data, list) else []
