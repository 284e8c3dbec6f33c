"""Read files, and show text, that a user, a project, a wheel or a cache brought: nobody vouches for them.

Every command and every build reads such files with `read` and prints such text with `shown`.
"""

from __future__ import annotations

import os
import stat

from aotcuda.errors import TargetError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.errors import AotcudaError

LARGEST_TEXT = 16 << 20
"""Bytes that a file of text may have: a source, a table, a record."""

_PIECE = 1 << 20
_LONGEST = 1000
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}


def read(
    path: str | os.PathLike[str],
    limit: int = LARGEST_TEXT,
    *,
    remedy: str = "name another file",
    follow: bool = True,
    error: type[AotcudaError] = TargetError,
) -> bytes:
    """Return the content of a regular file.

    Args:
        path: The file.
        limit: The most bytes that it may have.
        remedy: What the user can do if the file cannot be read; the error ends with it.
        follow: Follow a symbolic link.
        error: The class of the error.

    Raises:
        AotcudaError: The file is missing, is not a regular one, is too large, or cannot be read.
    """
    try:
        problem, data = _read(os.fspath(path), limit, follow=follow)
    except (OSError, ValueError) as reason:  # ValueError: a NUL in the path
        problem, data = f"cannot be read ({getattr(reason, 'strerror', None) or reason})", b""
    if problem is not None:
        message = f"{shown(os.fspath(path))}: {problem}; {remedy}"
        raise error(message)
    return data


def _read(path: str, limit: int, *, follow: bool) -> tuple[str | None, bytes]:
    """Return what is wrong with a file, or its content."""
    # Some devices act when they are opened.
    if (problem := irregular(os.stat(path, follow_symlinks=follow))) is not None:
        return problem, b""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags | (0 if follow else getattr(os, "O_NOFOLLOW", 0)))
    with open(descriptor, "rb") as file:
        if (problem := irregular(os.fstat(descriptor))) is not None:
            return problem, b""
        pieces: list[bytes] = []
        left = limit + 1
        while left and (piece := file.read(min(left, _PIECE))):
            pieces.append(piece)
            left -= len(piece)
    if not left:
        return f"has more than {limit:,} bytes, the most that it may have", b""
    return None, b"".join(pieces)


def irregular(status: os.stat_result) -> str | None:
    """Return what a file is if it is not a regular one, else None."""
    if stat.S_ISREG(status.st_mode):
        return None
    return f"is {_KINDS.get(stat.S_IFMT(status.st_mode), 'something else')}, not a regular file"


def shown(text: object) -> str:
    r"""Return text as a terminal can show it in one line, with `\x1b` in place of what does not print.

    Escaped are control characters, line breaks, half surrogates and marks that change the direction of writing, so no
    name can move a terminal's cursor, or break the one line of an error. Backslashes stay as they are.
    """
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in plain)


def brief(text: str) -> str:
    """Return text as `shown` does, and of more than a page only the beginning."""
    if len(text) <= _LONGEST:
        return shown(text)
    return f"{shown(text[:_LONGEST])}... ({len(text) - _LONGEST:,} more characters)"
