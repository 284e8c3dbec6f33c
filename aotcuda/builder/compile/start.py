"""Start a worker below its reaper.

The reaper is the process that the build starts. It forks the worker, waits, and ends every process below it
(`process_tree`); it runs no code of the project. The worker imports what it needs, or reports which package is missing.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection

from aotcuda.builder.compile import ipc, process_tree
from aotcuda.errors import ToolchainError

_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> int:
    """Start a worker, and end all processes below this one when the worker ends or a signal ends this process.

    The arguments of the program are the process that started this one, the descriptor of the pipe for messages, and
    the requirement whose installation brings missing packages. The exit status is that of the worker, or 128 plus the
    number of the signal that ended the worker.
    """
    parent, descriptor, requirement = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    sys.argv[1:] = []  # the project's modules have no use for them
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an inherited SIG_IGN would hide how children end
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_STOP, signal.SIGCHLD})
    process_tree.adopt_orphans()
    process_tree.end_with_parent(parent, signal.SIGTERM)
    os.set_inheritable(descriptor, False)  # programs that a source starts do not get it
    reaper = os.getpid()
    worker = os.fork()
    if worker == 0:
        os.setpgid(0, 0)
        for number in _STOP:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        process_tree.end_with_parent(reaper, signal.SIGKILL)
        return _work(Connection(descriptor, readable=False), requirement)
    os.close(descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # only the worker reads the job
    status = None
    while status is None and signal.sigwait({*_STOP, signal.SIGCHLD}) not in _STOP:
        status = process_tree.reap(worker)
    process_tree.end_descendants()
    os._exit(1 if status is None else status if status >= 0 else 128 - status)


def _work(connection: Connection, requirement: str) -> int:
    """Do the job on standard input as the worker, and return the exit status."""
    sender = ipc.Sender(connection)
    status = [1]
    # The first registered handler runs last, after all handlers of sources. It ends the process without freeing the
    # compilers' objects one by one. A process that a source has forked ends as usual.
    atexit.register(_exit_at_once, os.getpid(), status)
    try:
        from aotcuda.builder.compile import main as worker  # noqa: PLC0415 (the worker reports what cannot be imported)
    except ImportError as error:
        message = f"building needs compilers, which are not installed ({error}); run: pip install {requirement!r}"
        sender.send(ipc.Failed(ToolchainError(message)))
    else:
        status[0] = worker.main(sender)
    return status[0]


def _exit_at_once(worker: int, status: list[int]) -> None:
    if os.getpid() != worker:
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # a source may have closed them
            stream.flush()
    ctypes.CDLL(None).fflush(None)  # C code of sources may have printed
    os._exit(status[0])
