"""Read untrusted files and print untrusted text: from a user, a project, a wheel or a cache.

Commands and builds read these files with `read`, and escape their text with `escape`.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

    from ..errors import AotcudaError

LARGEST_TEXT = 16 << 20
"""The most bytes of a text file."""

_PIECE = 1 << 20
"""The most bytes of one read."""

_LONGEST = 1000
"""The most characters of an excerpt."""

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
    error: type[AotcudaError] | None = None,
) -> bytes:
    """Return the content of a regular file.

    Args:
        path: The file.
        limit: The most bytes that it may have.
        remedy: What the user can do if the file cannot be read; the error ends with it.
        follow: Follow a symbolic link.
        error: The class of the error, by default TargetError.

    Raises:
        AotcudaError: The file is missing, not regular, too large, or cannot be read.
    """
    try:
        return content(path, limit, follow=follow)
    except UnreadableError as problem:
        message = f"{escape(os.fspath(path))}: {problem}; {remedy}"
        if error is not None:
            raise error(message) from None
    from ..errors import TargetError  # noqa: PLC0415 (most launches need no errors)

    raise TargetError(message)


def content(path: str | os.PathLike[str], limit: int = LARGEST_TEXT, *, follow: bool = True) -> bytes:
    """Return the content of a regular file of at most `limit` bytes.

    Raises:
        UnreadableError: The file is missing, not regular, too large, or cannot be read.
    """
    with open(open_regular(path, follow=follow), "rb") as file:
        pieces: list[bytes] = []
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            problem = f"has {size:,} bytes, and aotcuda reads {limit:,} at most"
            raise UnreadableError(problem)
        remaining = limit + 1
        try:
            while remaining and (piece := file.read(min(remaining, _PIECE))):
                pieces.append(piece)
                remaining -= len(piece)
        except OSError as reason:
            problem = f"cannot be read ({reason.strerror})"
            raise UnreadableError(problem) from None
    if not remaining:
        problem = f"has more than the {limit:,} bytes that aotcuda reads at most"
        raise UnreadableError(problem)
    return b"".join(pieces)


def open_regular(path: str | os.PathLike[str], *, follow: bool = True) -> int:
    """Open a regular file for reading and return its descriptor; never wait for a pipe, or open a device.

    Raises:
        UnreadableError: The file is missing, not regular, or cannot be opened.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        problem = why_irregular(os.stat(path, follow_symlinks=follow))  # some devices act when they are opened
        if problem is None:
            descriptor = os.open(path, flags | (0 if follow else getattr(os, "O_NOFOLLOW", 0)))
            problem = why_irregular(os.fstat(descriptor))  # another file may have the path now
            if problem is None:
                return descriptor
            os.close(descriptor)
    except OSError as reason:
        problem = f"cannot be read ({reason.strerror})"
    except ValueError:  # a NUL, or half a surrogate pair
        problem = "is not a path"
    raise UnreadableError(problem)


def why_irregular(status: os.stat_result) -> str | None:
    """Return the reason that a file is not regular; None for a regular file."""
    if stat.S_ISREG(status.st_mode):
        return None
    return f"is {_KINDS.get(stat.S_IFMT(status.st_mode), 'something else')}, not a regular file"


def show(text: str, stream: TextIO | None = None) -> None:
    """Print a text with escaped lines and spaces in place of tabs, to standard output by default."""
    print("\n".join(escape(line.expandtabs()) for line in text.split("\n")), file=stream)


def escape(text: object) -> str:
    r"""Return text in one line, with escapes such as `\x1b` in place of characters that do not print.

    Escaped are control characters, line breaks, half surrogates and marks that change the direction of writing. So no
    name can move a terminal's cursor, or break an error into several lines. Backslashes do not change.
    """
    line = str(text)
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)


def excerpt(text: str) -> str:
    """Return an escaped text; of a long text, the beginning and the number of further characters."""
    if len(text) <= _LONGEST:
        return escape(text)
    return f"{escape(text[:_LONGEST])}... ({len(text) - _LONGEST:,} more characters)"
