"""Name temporary files after the process that writes them, so that other processes can remove leftovers.

A name contains the machine (its boot and its process namespace, because containers and hosts may share a folder), the
process number and the start time, because process numbers are used again.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256

PATTERN = re.compile(r"(?P<place>[0-9a-f]{12})-(?P<pid>\d+)-(?P<start>\d+)-[0-9a-f]+")
"""The form of a name."""


def make() -> str:
    """Return a new name for a file of this process."""
    pid = os.getpid()
    return f"{_machine()}-{pid}-{_start_time(pid)}-{os.urandom(4).hex()}"


def has_ended(match: re.Match[str]) -> bool | None:
    """Return True if the process of a name has ended; None if it ran on another machine, or cannot be found."""
    if match["place"] != _machine() or not _start_time(os.getpid()):
        return None
    return _start_time(int(match["pid"])) != int(match["start"])


def _machine() -> str:
    """Return a name for the boot of this machine and its process namespace, in which process numbers are valid."""
    try:
        parts = [_read("/proc/sys/kernel/random/boot_id").strip(), os.readlink("/proc/self/ns/pid")]
    except OSError:  # no Linux, or a container without /proc
        parts = [os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")]
    return sha256(" ".join(parts).encode()).hexdigest()[:12]


def _start_time(pid: int) -> int:
    """Return the start time of a process in ticks after the start of the machine (proc_pid_stat(5)); 0 if it ended."""
    try:
        text = _read(f"/proc/{pid}/stat")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])  # the program's name before it may hold any character


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
