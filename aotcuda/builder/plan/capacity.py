"""Count the processes that a build may use, by cores, memory and the limits of a container.

Formats: proc_meminfo(5); cgroup-v2.rst in the kernel's Documentation/admin-guide, cgroup-v1/memory.rst for older ones.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MEMORY = 256 << 20
"""Bytes reserved for a process: a kernel takes 20 MiB, a link of fifty kernels 70 MiB."""


def processes(system: Path = Path("/")) -> int:
    """Return the number of processes, at least one; `system` is the root of the file system."""
    cores: float = _affinity_cores()
    memory = _available_memory(system)
    for folder in _groups(system, "cpu"):
        cores = min(cores, _cores_of_group(folder))
    for folder in _groups(system, "memory"):
        memory = min(memory, _free_in_group(folder))
    return max(1, int(min(cores, memory // _MEMORY)))


def _affinity_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except OSError:  # a sandbox may refuse the question
        return os.cpu_count() or 1


def _available_memory(system: Path) -> float:
    for line in _read(system / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable" and (number := value.split()[:1]):
            return int(number[0]) * 1024
    return float("inf")


def _groups(system: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control groups for `controller`, with their parents."""
    for line in _read(system / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        top = system / "sys/fs/cgroup" / (controllers and controller)
        group = top / path.lstrip("/")
        # In a container, the path may be the host's. The container's group is then the top folder.
        yield from (folder for folder in dict.fromkeys([group, *group.parents, top]) if folder.is_relative_to(top))


def _cores_of_group(folder: Path) -> float:
    quota, _, period = _read(folder / "cpu.max").partition(" ")
    if not quota:
        quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    if not quota.strip().isdigit():  # "max", or -1
        return float("inf")
    return max(1.0, int(quota) / int(period))


def _free_in_group(folder: Path) -> float:
    """Return the bytes that a group may still use; its file cache can be reclaimed."""
    limit = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes")
    if not limit.strip().isdigit():
        return float("inf")
    used = _read(folder / "memory.current") or _read(folder / "memory.usage_in_bytes") or "0"
    names = ("inactive_file", "total_inactive_file")
    statistics = dict(line.split(" ", 1) for line in _read(folder / "memory.stat").splitlines() if " " in line)
    files = max((int(statistics[name]) for name in names if name in statistics), default=0)
    return max(0, int(limit) - int(used) + files)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):  # ValueError: the content is not text
        return ""
