"""Read files, and show text, of a user, a project, a wheel or a cache, which are not trusted.

Every command and every build reads such files with `read` and prints such text with `shown`.
"""

from __future__ import annotations

import os
import stat

from aotcuda.errors import TargetError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

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


class UnreadableError(Exception):
    """A file cannot be read; the text continues after the file's name: "is a pipe, not a regular file"."""


def read(
    path: str | os.PathLike[str],
    limit: int = LARGEST_TEXT,
    *,
    remedy: str = "name another file",
    follow: bool = True,
    error: type[AotcudaError] = TargetError,
    where: str = "",
) -> bytes:
    """Return the content of a regular file.

    Args:
        path: The file.
        limit: The most bytes that it may have.
        remedy: What the user can do if the file cannot be read; the error ends with it.
        follow: Follow a symbolic link.
        error: The class of the error.
        where: What the error begins with, if not the path.

    Raises:
        AotcudaError: The file is missing, is not a regular one, is too large, or cannot be read.
    """
    try:
        return content(path, limit, follow=follow)
    except UnreadableError as problem:
        message = f"{where or shown(os.fspath(path))}: {problem}; {remedy}"
        raise error(message) from None


def content(path: str | os.PathLike[str], limit: int = LARGEST_TEXT, *, follow: bool = True) -> bytes:
    """Return the content of a regular file of at most `limit` bytes.

    Raises:
        UnreadableError: The file is missing, is not a regular one, is too large, or cannot be read.
    """
    with open(open_regular(path, follow=follow), "rb") as file:
        pieces: list[bytes] = []
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            problem = f"has {size:,} bytes, and aotcuda reads {limit:,} at most"
            raise UnreadableError(problem)
        left = limit + 1
        try:
            while left and (piece := file.read(min(left, _PIECE))):
                pieces.append(piece)
                left -= len(piece)
        except OSError as reason:
            problem = f"cannot be read ({reason.strerror})"
            raise UnreadableError(problem) from None
    if not left:
        problem = f"has more than the {limit:,} bytes that aotcuda reads at most"
        raise UnreadableError(problem)
    return b"".join(pieces)


def open_regular(path: str | os.PathLike[str], *, follow: bool = True) -> int:
    """Open a regular file for reading, and return its descriptor; no pipe is waited for, and no device touched.

    Raises:
        UnreadableError: The file is missing, is not a regular one, or cannot be opened.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        problem = irregular(os.stat(path, follow_symlinks=follow))  # some devices act when they are opened
        if problem is None:
            descriptor = os.open(path, flags | (0 if follow else getattr(os, "O_NOFOLLOW", 0)))
            problem = irregular(os.fstat(descriptor))  # the path may lead elsewhere by now
            if problem is None:
                return descriptor
            os.close(descriptor)
    except OSError as reason:
        problem = f"cannot be read ({reason.strerror})"
    except ValueError:  # a NUL, or half a surrogate pair
        problem = "is not a path"
    raise UnreadableError(problem)


def irregular(status: os.stat_result) -> str | None:
    """Return what a file is if it is not a regular one, else None."""
    if stat.S_ISREG(status.st_mode):
        return None
    return f"is {_KINDS.get(stat.S_IFMT(status.st_mode), 'something else')}, not a regular file"


def show(text: str, stream: TextIO | None = None) -> None:
    """Print text of one or more lines, each as `shown` has it; to standard output unless a stream is given."""
    print(lines(text), file=stream)


def lines(text: str) -> str:
    """Return text of several lines, each as `shown` has it, with spaces in place of tabs."""
    return "\n".join(shown(line.expandtabs()) for line in text.split("\n"))


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
