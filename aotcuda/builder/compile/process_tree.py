"""End the processes of a build together: the worker ends with the build, and all processes below it with the worker.

The kernel has three mechanisms for this. `PR_SET_PDEATHSIG` sends a process a signal when its parent ends for any
reason. `PR_SET_CHILD_SUBREAPER` makes the reaper, a small process between build and worker, the parent of all orphans
below it, daemons included. The worker has another process group, so `kill(0, ...)` in a source does not reach the
reaper. The reaper runs no code of the project.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from aotcuda.errors import BuildError

# From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_GRACE = 0.5
"""Seconds that a process has to end by itself after SIGTERM, before it gets SIGKILL."""
_PATIENCE = 1.0
"""Seconds within which a killed process must end; one that waits for a dead disk would block the build for ever."""


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(parent: int, number: int) -> None:
    """Have the kernel send this process a signal when its parent `parent` ends; send it now if the parent has ended."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def end_descendants() -> None:
    """End every process below this one, first by SIGTERM. The orphans of each become children of this process."""
    start = time.monotonic()
    while (children := _children()) and (seconds := time.monotonic() - start) < _GRACE + _PATIENCE:
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if seconds < _GRACE else signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, 0.02)
        reap()


def reap(pid: int | None = None) -> int | None:
    """Collect the children that have ended; return the exit status of the child `pid` if it is one of them."""
    status = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == pid:
                status = os.waitstatus_to_exitcode(ended[1])
    return status


def start_error(error: OSError) -> BuildError:
    """Return the error for a process that the system did not start."""
    return BuildError(f"the build cannot start a process ({error.strerror}); free some memory or processes")


def signal_name(number: int) -> str:
    """Return the name of a signal; `signal 40` for one without a name."""
    return next((item.name for item in signal.Signals if item == number), f"signal {number}")


def _children() -> list[int]:
    """Return this process's children; without /proc none, and the kernel ends the worker's own children."""
    here = os.getpid()
    with suppress(OSError):
        return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal() and _parent(path) == here]
    return []


def _parent(folder: Path) -> int | None:
    """Return the parent of the process of a folder of /proc, by proc_pid_stat(5); None if the process has ended."""
    try:
        text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[1])  # the program's name may contain spaces and parentheses


def _prctl(option: int, value: int) -> None:
    # On a system that refuses these options, a killed build may leave processes behind.
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
