"""The processes of a build end together: a worker dies with the build, and everything below a worker dies with it.

Three things of the kernel do this. `PR_SET_PDEATHSIG` sends a process a signal when its parent ends, however it ends.
`PR_SET_CHILD_SUBREAPER` makes the reaper, a small process between build and worker, the parent of every process below
it whose own parent ends, daemons included. A process group of its own keeps `kill(0, ...)` in a source away from the
reaper. The reaper runs no code of the project.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

# From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_GRACE = 0.5
"""Seconds that a process has to end by itself after SIGTERM, before it gets SIGKILL."""
_PATIENCE = 1.0
"""Seconds that a killed process has to be gone; one that waits for a dead disk would hold the build up for ever."""


def main() -> int:
    """Start a worker, and end every process below this one when it ends or when this process is asked to end.

    Arguments: the process that started this one, the descriptor of the pipe for messages, and the requirement that a
    missing package would come with. The exit status is the worker's; 128 and the number for one that a signal ended.
    """
    parent, descriptor, requirement = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    sys.argv[1:] = []  # the project's modules have no use for them
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an inherited SIG_IGN would hide how children end
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_STOP, signal.SIGCHLD})
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    die_with(parent, signal.SIGTERM)
    os.set_inheritable(descriptor, False)  # programs that a source starts do not get it
    reaper = os.getpid()
    worker = os.fork()
    if worker == 0:
        os.setpgid(0, 0)
        for number in _STOP:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        die_with(reaper, signal.SIGKILL)
        from aotcuda.builder.worker import start  # noqa: PLC0415 (the reaper needs none of what it imports)

        return start.main(Connection(descriptor, readable=False), requirement)
    os.close(descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # only the worker reads the job; if it dies, the sender notices
    status = None
    while status is None and signal.sigwait({*_STOP, signal.SIGCHLD}) not in _STOP:
        status = _reap(worker)
    _end_descendants()
    os._exit(1 if status is None else status if status >= 0 else 128 - status)


def die_with(parent: int, number: int) -> None:
    """Have the kernel send this process a signal when its parent, the process `parent`, ends; now, if it has ended."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def _end_descendants() -> None:
    """End every process below this one, first by SIGTERM. The orphans of each become children of this process."""
    start = time.monotonic()
    while (children := _children()) and (seconds := time.monotonic() - start) < _GRACE + _PATIENCE:
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if seconds < _GRACE else signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, 0.02)
        _reap()


def _reap(wanted: int | None = None) -> int | None:
    """Take the exit status of children that have ended; return that of `wanted` if it is one of them."""
    status = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == wanted:
                status = os.waitstatus_to_exitcode(ended[1])
    return status


def _children() -> list[int]:
    """Return this process's children; none where /proc is missing, since the kernel ends the worker's own then."""
    here = os.getpid()
    with suppress(OSError):
        return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal() and _parent(path) == here]
    return []


def _parent(folder: Path) -> int | None:
    """Return the parent of the process of a folder of /proc, by proc_pid_stat(5); None if the process is gone."""
    try:
        text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[1])  # the program's name before it may hold any character


def _prctl(option: int, value: int) -> None:
    # A system that refuses these options leaves stray processes behind when a build is killed, no more.
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
