"""Being interrupted: Ctrl-C and the signals that ask a process to end, as one exception, said in one line.

Builds run under other tools' main programs. Of their signals only those are taken that nobody has a handler for, and
only while something is being built.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aotcuda.errors import AotcudaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NOBODYS = (signal.SIG_DFL, signal.default_int_handler)

_TIDYING = 3.0
"""Seconds after a signal in which others are not answered; then they are, since any code may have hidden the first."""

NOTHING_WRITTEN = "build interrupted; nothing was written"
WRITTEN = "build interrupted; its files had been written"


class Interrupted(KeyboardInterrupt):
    """A signal asked this process to end. The argument says how far the build was."""

    code = 128 + signal.SIGINT
    """The exit status that says so."""


_active: list[Guard] = []


def check() -> None:
    """Raise Interrupted once more, if it was raised and did not come through.

    A signal's exception rises wherever Python is; in a finaliser or a callback it is printed or lost, and the build
    would go on. So it asks here when it waits, and before it writes.
    """
    for guard in _active:
        guard.check()


class Guard:
    """While it is on, a signal raises Interrupted, and more of them do not disturb the tidying up.

    It is a context: on inside the block, off behind it.
    """

    def __init__(self) -> None:
        self._before: dict[int, object] = {}
        self._quietly = False
        self._raised = -_TIDYING
        self._taken: Interrupted | None = None

    def on(self, *, quietly: bool = False) -> None:
        """Take the signals; not in threads, where Python has no way to.

        Args:
            quietly: Another program's code is running: a signal prints its line and ends the process, with what that
                code has to do at its end.
        """
        self.check()  # a signal that came while another program's code ran, and did not end it
        self._quietly = quietly
        _active.append(self)
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) in _NOBODYS:
                    self._before[number] = signal.signal(number, self._take)

    def off(self) -> None:
        """Give them back."""
        if self in _active:
            _active.remove(self)
        while self._before:
            signal.signal(*self._before.popitem())  # type: ignore[arg-type]  # what `signal` itself returned

    def check(self) -> None:
        """Raise what a signal has raised already; end the process if its line has been printed."""
        if self._taken is not None and self._quietly:
            sys.exit(self._taken.code)
        if self._taken is not None:
            raise self._taken

    def __enter__(self) -> Self:
        self.on()
        return self

    def __exit__(self, *_: object) -> None:
        self.off()

    def _take(self, number: int, frame: FrameType | None) -> None:
        del frame
        now = time.monotonic()
        if now - self._raised < _TIDYING:
            return
        self._raised = now
        code = 128 + number
        interrupted = Interrupted(NOTHING_WRITTEN)
        interrupted.code = code
        self._taken = interrupted
        if self._quietly:
            print(f"aotcuda: {NOTHING_WRITTEN}", file=sys.stderr)
            sys.exit(code)
        raise interrupted


@contextmanager
def in_one_line(guard: Guard, abort: Callable[[str, int], object]) -> Iterator[None]:
    """A block whose errors, and whose interruption, are one line and the end of the build.

    Args:
        guard: Turns signals into `Interrupted` while the block runs.
        abort: Ends the build with a message and an exit code. With `AOTCUDA_DEBUG=1` errors pass by it.
    """
    try:
        with guard:
            yield
    except AotcudaError as error:
        if os.environ.get("AOTCUDA_DEBUG") == "1":
            raise
        abort(f"aotcuda: {error}", 1)
    except Interrupted as stop:
        abort(f"aotcuda: {stop}", stop.code)
