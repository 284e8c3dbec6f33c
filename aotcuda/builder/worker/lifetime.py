"""Ties between the lives of processes: a child that dies with its parent, and a parent that outlives all below it."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

# From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_GRACE = 0.5
"""Seconds that a process has to end by itself when it is asked to, before it is killed."""
_PATIENCE = 1.0
"""Seconds that a killed process has to be gone; one that waits for a dead disk would hold the build up for ever."""


def die_with(parent: int, how: int) -> None:
    """Have this process sent the signal `how` when its parent, the process `parent`, ends; now, if it has ended."""
    _prctl(_PR_SET_PDEATHSIG, how)
    if os.getppid() != parent:  # it ended before the kernel was asked to tell
        os.kill(os.getpid(), how)


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends, daemons included."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_descendants() -> None:
    """End every process below this one: they are asked to, and after half a second killed."""
    for how, seconds in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _PATIENCE)):
        told: set[int] = set()
        until = time.monotonic() + seconds
        while found := descendants():
            for pid in found - told:
                with suppress(ProcessLookupError):
                    os.kill(pid, how)
            told |= found
            reap()
            left = until - time.monotonic()
            if left <= 0:
                break
            # The end of a child wakes this up; that of a grandchild does not, hence the short time.
            signal.sigtimedwait({signal.SIGCHLD}, min(left, 0.02))
        else:
            return


def reap(wanted: int | None = None) -> int | None:
    """Take note of children that have ended; the exit code of `wanted` if it is one of them."""
    code = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == wanted:
                code = os.waitstatus_to_exitcode(ended[1])
    return code


def descendants() -> set[int]:
    """The processes below this one, children of children included; those that have ended and were not reaped too."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and (fields := status(int(folder.name))):
            parents[int(folder.name)] = int(fields[1])
    found: set[int] = set()
    below = {os.getpid()}
    while below := {pid for pid, parent in parents.items() if parent in below} - found:
        found |= below
    return found


def status(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third one on (state, parent, ...); none if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # the second field is the program's name, which may have any character


def _prctl(option: int, value: int) -> None:
    # Two of prctl's options, neither of which Python has. A system that refuses them has stray processes, no more.
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
