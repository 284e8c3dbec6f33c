"""Turn Ctrl-C and the signals that end a process into one exception inside a build, and one line for the user.

A build runs in another tool's main program. It handles a signal only during the build, and only if no other code has a
handler for the signal.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aotcuda.errors import AotcudaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if sys.platform != "win32" else []))
_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)

NOTHING_WRITTEN = "build interrupted; nothing was written"
WRITTEN = "build interrupted; its files had been written"


class Interrupted(KeyboardInterrupt):
    """A signal ended this build. The argument tells if files were written."""

    code = 128 + signal.SIGINT
    """The exit status for the signal."""


@contextmanager
def raise_interrupts() -> Iterator[None]:
    """Raise `Interrupted` inside the block for signals without another handler; only the main thread can do so."""
    handlers: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: handler for number in _SIGNALS if (handler := signal.getsignal(number)) in _DEFAULTS}
    for number in handlers:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _raise(number: int, frame: FrameType | None) -> None:
    del frame
    interrupted = Interrupted(NOTHING_WRITTEN)
    interrupted.code = 128 + number
    raise interrupted


@contextmanager
def end_in_one_line(abort: Callable[[str, int], object]) -> Iterator[None]:
    """End the build in one line for an error or a signal inside the block.

    Args:
        abort: Ends the build with a message and an exit code. With `AOTCUDA_DEBUG=1` errors are raised instead.
    """
    try:
        with raise_interrupts():
            yield
    except AotcudaError as error:
        if os.environ.get("AOTCUDA_DEBUG") == "1":
            raise
        abort(f"aotcuda: {error}", 1)
    except Interrupted as stop:
        abort(f"aotcuda: {stop}", stop.code)
