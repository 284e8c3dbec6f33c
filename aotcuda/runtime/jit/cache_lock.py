"""A lock file: one process compiles, the others wait, on any file system.

O_CREAT | O_EXCL creates the file, which is atomic on NFS, too. The file names its holder, and the holder renews the
file's time. A waiter takes the lock over if the holder has ended, or if the holder has not renewed the file for some
time by the waiter's clock; clocks of different machines need not agree. If two processes hold the lock nevertheless,
both compile, and one result is discarded.
"""

from __future__ import annotations

import os
import stat
import time

from aotcuda.common import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

RENEWED_EVERY = 2.0
STALE_AFTER = 20.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25


class Lock:
    """A lock that this process holds, until `release`."""

    __slots__ = ("_content", "_path", "_stop")

    def __init__(self, path: str, content: bytes) -> None:
        """Prepare a lock; no other lock has this content."""
        from threading import Event  # noqa: PLC0415 (few launches compile)

        self._path = path
        self._content = content
        self._stop = Event()

    def renew(self) -> None:
        """Start the thread that renews the file's time."""
        _renew(self._path, self._stop)

    def release(self) -> None:
        """Release it, unless another process has taken it over."""
        self._stop.set()
        _remove(self._path, self._content)


def acquire(path: str, is_obsolete: Callable[[], bool], patience: float) -> Lock | None:
    """Take the lock at `path`.

    Args:
        path: The file; its folder exists.
        is_obsolete: Returns True if the holder's result exists, so the lock is not needed any more.
        patience: Seconds to wait.

    Returns:
        The lock; None if `is_obsolete` returned True, if the time is over, or if the file can be neither created nor
        taken over.
    """
    content = _new_content()
    pause, deadline = _FIRST_PAUSE, time.monotonic() + patience
    watched: tuple[bytes, int] | None = None
    since = 0.0
    while True:
        try:
            return _create(path, content)
        except FileExistsError:
            pass
        except OSError:
            return None
        if is_obsolete():
            return None
        now = time.monotonic()
        state = _state(path)
        if state is None:
            continue  # the holder has just released it
        if state != watched:
            watched, since = state, now
        if _is_dead(state[0]) or now - since > STALE_AFTER:
            if not _remove(path, state[0]):
                return None
            continue
        if now > deadline:
            return None
        time.sleep(min(pause, deadline - now) if deadline > now else 0)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _create(path: str, content: bytes) -> Lock:
    """Create the lock's file, if there is none.

    Raises:
        FileExistsError: The file exists.
        OSError: The file cannot be created.
    """
    lock = Lock(path, content)
    try:
        with open(path, "xb") as file:
            file.write(content)
        lock.renew()
    except FileExistsError:
        raise
    except BaseException:  # an interrupt, which may come after the file was created
        _remove(path, b"")
        lock.release()
        raise
    return lock


def _renew(path: str, stop: Event) -> None:
    from threading import Thread  # noqa: PLC0415 (few launches compile)

    def renew() -> None:
        while not stop.wait(RENEWED_EVERY):
            try:
                os.utime(path)
            except OSError:
                return

    Thread(target=renew, name="aotcuda-lock", daemon=True).start()


def _remove(path: str, content: bytes) -> bool:
    """Remove a lock with this content; another content belongs to a process that has taken the lock over.

    Return False if the file cannot be removed, as on a read-only disk.
    """
    try:
        if _read(path) == content:
            os.unlink(path)
    except FileNotFoundError:  # another process has removed it
        pass
    except OSError:
        return False
    return True


def _state(path: str) -> tuple[bytes, int] | None:
    try:
        return _read(path), os.stat(path).st_mtime_ns
    except OSError:
        return None


def _read(path: str) -> bytes:
    if not stat.S_ISREG(os.lstat(path).st_mode):  # opening a pipe would wait
        return b""
    with open(path, "rb") as file:
        return file.read(1000)


def _new_content() -> bytes:
    """Return the content of a new lock of this process; its last line is unique."""
    return f"{system.machine()}\n{os.getpid()}\n{system.start_time(os.getpid())}\n{time.monotonic_ns()}".encode()


def _is_dead(content: bytes) -> bool:
    """Return True if the holder is a process of this machine that has ended."""
    try:
        machine, pid, started, _ = content.decode().split("\n")
        number = int(pid)
    except ValueError:
        return False  # the holder has not written it yet
    if machine != system.machine():
        return False
    if system.has_ended(number):
        return True
    actual = system.start_time(number)
    return bool(started and actual and started != actual)
