"""Count the processes that a build may use, with files in place of /proc and /sys."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from aotcuda.builder.plan import capacity

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30
ENOUGH = {"proc/meminfo": f"MemTotal: 64 kB\nMemAvailable:   {64 * GIB // 1024} kB\n"}
V2 = "sys/fs/cgroup"


@pytest.fixture(autouse=True)
def _eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


def system(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def grouped(limits: dict[str, str]) -> dict[str, str]:
    """Return a system with control groups of version 2, this process in `/a/b`."""
    return ENOUGH | {"proc/self/cgroup": "0::/a/b\n"} | {f"{V2}/{name}": text for name, text in limits.items()}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (ENOUGH, 8),
        ({"proc/meminfo": f"MemAvailable: {GIB // 1024} kB\n"}, 4),
        (grouped({"a/b/cpu.max": "250000 100000\n"}), 2),
        (grouped({"a/cpu.max": "300000 100000\n"}), 3),
        (grouped({"a/b/memory.max": f"{GIB}\n", "a/b/memory.current": f"{GIB // 2}\n"}), 2),
        (
            grouped(
                {
                    "a/b/memory.max": f"{GIB}\n",
                    "a/b/memory.current": f"{GIB}\n",
                    "a/b/memory.stat": f"anon 5\ninactive_file {GIB // 4}\n",
                }
            ),
            1,
        ),
        (
            ENOUGH
            | {
                "proc/self/cgroup": "4:cpu,cpuacct:/d\n3:memory:/d\n",
                f"{V2}/cpu/d/cpu.cfs_quota_us": "200000\n",
                f"{V2}/cpu/d/cpu.cfs_period_us": "100000\n",
                f"{V2}/memory/memory.limit_in_bytes": f"{3 * GIB // 4}\n",
                f"{V2}/memory/memory.usage_in_bytes": "0\n",
            },
            2,
        ),
        ({"proc/meminfo": "MemAvailable:\n", "proc/self/cgroup": "0\n\n"}, 8),
    ],
)
def test_cores_and_memory_limit_processes(files: dict[str, str], expected: int, tmp_path: Path) -> None:
    assert capacity.processes(system(tmp_path, files)) == expected


def test_cores_are_counted_where_the_affinity_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_permission(_: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_getaffinity", without_permission)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert capacity.processes(system(tmp_path, ENOUGH)) == 3


@pytest.mark.parametrize(
    ("statistics", "expected"),
    [
        ("", 4),
        (f"inactive_file {GIB}\n", 8),
        (f"inactive_file 0\ntotal_inactive_file {GIB}\n", 8),
        (f"active_file {GIB}\n", 4),
    ],
)
def test_file_cache_of_a_group_is_free_memory(statistics: str, expected: int, tmp_path: Path) -> None:
    limits = {"a/b/memory.max": f"{3 * GIB}", "a/b/memory.current": f"{2 * GIB}", "a/b/memory.stat": statistics}
    assert capacity.processes(system(tmp_path, grouped(limits))) == expected


def test_part_of_a_core_is_one_process(tmp_path: Path) -> None:
    assert capacity.processes(system(tmp_path, grouped({"a/b/cpu.max": "50000 100000"}))) == 1
