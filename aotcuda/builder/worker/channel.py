"""The messages from the worker to the process that started it: lines of JSON, each marked with the build's own token.

The worker runs the user's modules, and what it holds open is open to them. A line without the token is none of the
worker's, and a descriptor that is no longer the one it was is not written to.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
from typing import TYPE_CHECKING, NoReturn

from aotcuda.builder.worker import interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOST = 113
"""Exit status of a worker whose descriptors were closed, or replaced by others."""

FULL = 114
"""Exit status of a worker that has no room for what it made."""

NO_ROOM = "there is no room for what was built: raise the limit for the size of files (ulimit -f), or free some memory"
"""What to say of that: results are handed over in memory, as files without names."""


_TICK = 0.5
"""Seconds after which the reader looks up: a signal that comes just before it waits is answered then."""

MESSAGES = 3
"""The descriptor of messages in the worker; that of the result is the next one."""


def settle(messages: int, result: int) -> tuple[int, int]:
    """Move the two descriptors to the numbers that they have in every worker, closed to the programs that it starts."""
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 2 * MESSAGES) for descriptor in (messages, result)]
    for number, descriptor in enumerate(moved, MESSAGES):
        os.dup2(descriptor, number, inheritable=False)
    for descriptor in {messages, result, *moved} - {MESSAGES, MESSAGES + 1}:
        os.close(descriptor)
    return MESSAGES, MESSAGES + 1


class ForeignBytesError(Exception):
    """The channel has bytes that the worker did not send; they are the argument, up to the next that it did."""


class Owned:
    """A descriptor of this process, which the user's code may close or replace.

    Attributes:
        number: Its number.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._identity = self._look()

    def check(self) -> None:
        """End the process, with status LOST, if the descriptor is not what it was."""
        if self._look() != self._identity:
            lost()

    def write(self, data: bytes) -> None:
        """Write all of `data`; ends the process if that cannot be done."""
        self.check()
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self.number, view) :]
        except OSError as error:  # it was closed, or whoever reads is gone, if it is not this
            if error.errno in (errno.EFBIG, errno.ENOSPC, errno.ENOMEM):
                os._exit(FULL)
            lost()

    def _look(self) -> tuple[int, int] | None:
        try:
            found = os.fstat(self.number)
        except OSError:
            return None
        return found.st_dev, found.st_ino


class Sender:
    """The worker's end."""

    def __init__(self, descriptor: int, token: str) -> None:
        self._pipe = Owned(descriptor)
        self._token = token.encode()
        self._pid = os.getpid()

    def __call__(self, **message: object) -> None:
        """Send a message."""
        if os.getpid() != self._pid:
            os._exit(0)  # a copy of the worker that a source made by os.fork: one build is enough
        self._pipe.write(b"%s %s\n" % (self._token, json.dumps(message).encode()))


def receive(descriptor: int, token: str, idle: Callable[[], None] = lambda: None) -> Iterator[dict[str, object]]:
    """The messages that come in, until nobody is left who could send one; `idle` is called while there are none.

    Raises:
        ForeignBytesError: Somebody else wrote to the descriptor.
    """
    start = token.encode() + b" "
    data = b""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while True:
        interrupt.check()
        while not poll.poll(_TICK * 1000):
            interrupt.check()
            idle()
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            return
        data += chunk
        while data:
            if not data.startswith(start[: len(data)]):
                raise ForeignBytesError(data.partition(start)[0])
            line, newline, rest = data.partition(b"\n")
            if not newline:
                break
            try:
                message = json.loads(line[len(start) :])
            except ValueError:  # written by two at once
                raise ForeignBytesError(data) from None
            yield message
            data = rest


def lost() -> NoReturn:
    """End the worker: it has no way left to say why."""
    os._exit(LOST)
