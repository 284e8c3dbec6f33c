"""The first steps of a worker: import what it needs, or say which package is missing, and end quickly."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from aotcuda.builder.worker import ipc
from aotcuda.errors import ToolchainError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


def main(connection: Connection, requirement: str) -> int:
    """Do the job on standard input; returns the exit status.

    Args:
        connection: The pipe for messages.
        requirement: What pip installs where a compiler is missing.
    """
    sender = ipc.Sender(connection)
    status = [1]
    # Registered first, so that it runs after all exit handlers of sources. It leaves without freeing the compilers'
    # objects one by one; a process that a source has forked ends as usual.
    atexit.register(_leave, os.getpid(), status)
    try:
        from aotcuda.builder.worker import main as worker  # noqa: PLC0415 (what cannot be imported is reported)
    except ImportError as error:
        message = f"building needs compilers, which are not installed ({error}); run: pip install {requirement!r}"
        sender.send(ipc.Failed(ToolchainError(message)))
    else:
        status[0] = worker.main(sender)
    return status[0]


def _leave(worker: int, status: list[int]) -> None:
    if os.getpid() != worker:
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # a source may have closed them
            stream.flush()
    ctypes.CDLL(None).fflush(None)  # what sources have printed from C
    os._exit(status[0])
