"""Lock a file: one process compiles, and the others wait.

The system releases the lock of a process that has ended; the file stays. Where files cannot be locked, as on some
network file systems, each process compiles, and each result replaces the one before it.
"""

from __future__ import annotations

import errno
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import FileIO

if sys.platform == "win32":
    import msvcrt

    def _lock(file: FileIO) -> None:
        while True:
            try:
                return msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
            except OSError as error:
                if error.errno != errno.EDEADLOCK:  # the function gives up after ten seconds
                    raise

    def _unlock(file: FileIO) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(file: FileIO) -> None:
        fcntl.flock(file, fcntl.LOCK_EX)

    def _unlock(file: FileIO) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)  # closing the file is not enough: a forked child may have it open


def acquire(path: str) -> FileIO | None:
    """Wait for the lock of the file at `path`, whose folder exists; return the file, None if it cannot be locked."""
    try:
        file = open(path, "a+b", buffering=0)  # noqa: SIM115 (`release` closes it)
    except OSError:
        return None
    try:
        _lock(file)
    except BaseException as error:
        file.close()
        if isinstance(error, OSError):
            return None
        raise
    return file


def release(file: FileIO) -> None:
    """Release a lock."""
    with file:
        _unlock(file)
