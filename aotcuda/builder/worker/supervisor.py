"""The process between a build and its worker: it sees to it that whatever ends, all ends.

It starts the worker, waits, and ends every process below it when the worker has ended, when it is asked to (SIGTERM),
and when the process that started it is gone, however that came about. It runs no code of the user's and imports
nothing that could fail. The worker dies with it, and the worker's children with the worker.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress

from aotcuda.builder.worker import channel, lifetime
from aotcuda.builder.worker.channel import Sender

_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> int:
    """Supervise a worker.

    Arguments: the process that started this one, the descriptors for messages and for the result, the token of the
    messages, and the extra that a missing package would come with.
    """
    parent, messages, result = map(int, sys.argv[1:4])
    token, extra = sys.argv[4:6]
    sys.argv[1:] = []  # the user's modules have no use for them
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # one that is inherited as ignored would hide how children end
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_STOP, signal.SIGCHLD})
    lifetime.adopt_orphans()
    lifetime.die_with(parent, signal.SIGTERM)
    messages, result = channel.settle(messages, result)
    here = os.getpid()
    worker = os.fork()
    if worker == 0:
        return _work(here, messages, result, token, extra)
    os.close(result)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the job is the worker's; if it dies, the sender is to notice
    code = None
    while code is None and signal.sigwait({*_STOP, signal.SIGCHLD}) not in _STOP:
        code = lifetime.reap(worker)
    lifetime.end_descendants()
    os.set_blocking(messages, False)  # it may be full of what a source has written, and nobody reads that any more
    Sender(messages, token)(ended=code)
    os._exit(0)  # nothing is left to be tidied up, and the build waits for it


def _work(supervisor: int, messages: int, result: int, token: str, extra: str) -> int:
    # In a group of its own, where `kill(0, ...)` in a source stays without effect on the supervisor.
    os.setpgid(0, 0)
    for number in _STOP:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # also what a thread that started this build had blocked
    lifetime.die_with(supervisor, signal.SIGKILL)
    tell = Sender(messages, token)
    end = _End()
    atexit.register(end.leave)  # the first one, so it comes behind all that sources register
    try:
        from aotcuda.builder.worker import main as worker  # noqa: PLC0415 (the supervisor needs nothing of it)
    except ImportError as error:
        message = f"building needs compilers, which are not installed ({error}); run: pip install {extra!r}"
        tell(error="ToolchainError", message=message)
        return 1
    end.status = worker.main(tell, result)
    return end.status


class _End:
    """The end of a worker: what is left to Python by then is to free a compiler's objects one by one.

    Attributes:
        status: Its exit code.
    """

    def __init__(self) -> None:
        self.status = 1
        self._of = os.getpid()

    def leave(self) -> None:
        """End the process; one that a source has forked ends as it would."""
        if os.getpid() != self._of:
            return
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # a source may have closed them
                stream.flush()
        with suppress(Exception):  # what sources have printed from C
            import ctypes  # noqa: PLC0415 (which a worker's compilers have imported)

            ctypes.CDLL(None).fflush(None)
        os._exit(self.status)
