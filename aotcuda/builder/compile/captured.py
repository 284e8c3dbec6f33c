"""Capture what a compiler writes to standard error in a child; the text outlives a crash of the child.

The file is in memory. The parent opens it before it forks the child, and reads it after the child has died.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LARGEST = 1 << 20
_ERROR = re.compile(r"(?:error|fatal|assert\w*|terminate)\b.*", re.IGNORECASE)

_inherited: list[int] = []
"""The file of this child; none in a process that was not forked for a task."""


def open_file() -> int:
    """Return the descriptor of a file for a child that is forked next."""
    return os.memfd_create("stderr")


def inherit(file: int) -> None:
    """Use the file that the parent has opened for this child."""
    _inherited[:] = [file]


@contextmanager
def capturing() -> Iterator[list[str]]:
    """Capture standard error in a block. The list has the text after a block that fails; else the text is printed."""
    texts: list[str] = []
    file = _inherited[0] if _inherited else open_file()
    sys.stderr.flush()
    original = os.dup(2)
    os.ftruncate(file, 0)
    os.lseek(file, 0, os.SEEK_SET)
    os.dup2(file, 2)
    is_done = False
    try:
        yield texts
        is_done = True
    finally:
        sys.stderr.flush()
        os.dup2(original, 2)
        texts.append(read(file))
        if is_done:
            os.write(original, texts[0].encode(errors="surrogateescape"))
        os.close(original)
        os.ftruncate(file, 0)
        if not _inherited:
            os.close(file)


def read(file: int) -> str:
    """Return the end of what was captured in a file."""
    size = os.fstat(file).st_size
    return os.pread(file, _LARGEST, max(0, size - _LARGEST)).decode(errors="surrogateescape")


def last_error(text: str) -> str:
    """Return the last line of a text that reads like an error, or the last line; empty without a line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line)]
    return [*[""], *lines[-1:], *errors[-1:]][-1][:300]
