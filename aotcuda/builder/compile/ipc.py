"""Send messages from a worker to the build that started it: pickled objects in a pipe of `multiprocessing`.

The same pipes carry the results of the worker's forked children (`pool`). A source that writes into the pipe by
accident is reported. There is no protection against intent, because the project's code runs in the worker.
"""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from aotcuda.errors import AotcudaError

UNREADABLE = (
    "code of the project wrote to, or closed, file descriptors that the build's processes use; a source may use only "
    "descriptors that it has opened itself"
)
"""The text of an error about a message that cannot be read."""


@dataclass(frozen=True, slots=True)
class Step:
    """The current work of the worker; `total` is 0 if the number of steps is unknown."""

    title: str
    done: int
    total: int
    slowest: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker's last message: the error that ended the build."""

    error: AotcudaError


@dataclass(frozen=True, slots=True)
class Finished:
    """The worker's last message: the job's `Result`."""

    result: Any


class Sender:
    """The worker's end of the pipe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pid = os.getpid()
        self._last: Step | None = None

    def __call__(self, *, step: str, done: int, total: int, slowest: str = "") -> None:
        """Report a step, and the slowest one so far; a report that equals the last one is not sent."""
        if (message := Step(step, done, total, slowest)) != self._last:
            self._last = message
            self.send(message)

    def send(self, message: Step | Failed | Finished) -> None:
        """Send a message; end the process if it is a copy that a source has forked, because one process builds."""
        if os.getpid() != self._pid:
            os._exit(0)
        try:
            self._connection.send(message)
        except BrokenPipeError:  # the build has ended, and nothing reads the message
            os._exit(1)
        except OSError:  # a source has closed the pipe
            print(f"aotcuda: {UNREADABLE}", file=sys.stderr, flush=True)
            os._exit(1)


def read(connection: Connection) -> object:
    """Return the next object from a pipe.

    Raises:
        EOFError: Every process that could write has ended or closed the pipe.
        ValueError: The bytes in the pipe are not a message.
    """
    try:
        data = connection.recv_bytes()
    except (OSError, OverflowError, MemoryError) as error:  # the pipe has ended within a message, or has a wrong size
        raise ValueError(UNREADABLE) from error
    try:
        return pickle.loads(data)
    except Exception as error:  # wrong bytes can make pickle raise any error
        raise ValueError(UNREADABLE) from error
