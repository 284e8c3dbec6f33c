"""A process that is killed at any system call of a cache write."""

from __future__ import annotations

import os
import signal
import traceback
import warnings

import pytest

from aotcuda.common.jit_build import Result
from aotcuda.runtime.jit import cache_lock
from aotcuda.runtime.jit.cache import Cache
from support import jit_builds
from support.manifests import kernel

KEY = "ab" + "0" * 62
STEPS = ("open", "mkdir", "write", "fsync", "close", "rename", "link", "unlink")


def write(root: str) -> None:
    cache = Cache(root, print)
    lock = cache.lock(KEY)
    cache.discard(KEY)
    cache.put(KEY, Result(*jit_builds.manifest([kernel("k", "void(int32)")])), {})
    cache_lock.release(lock)


def is_killed_at(number: int, root: str) -> bool:
    """Write in a forked process that is killed before a step; return False if it ended before that step."""
    if (pid := os.fork()) == 0:
        remaining, status = number, 1

        def counted(call):
            def step(*args, **options):
                nonlocal remaining
                remaining -= 1
                if remaining == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*args, **options)

            return step

        try:
            for name in STEPS:
                setattr(os, name, counted(getattr(os, name)))
            write(root)
            status = 0
        except BaseException:  # noqa: BLE001 (this process never returns to pytest)
            traceback.print_exc()
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


@pytest.mark.parametrize("damaged", [False, True], ids=["new", "replaced"])
def test_a_killed_write_leaves_a_complete_entry_or_none(tmp_path, damaged):
    root = str(tmp_path / "cache")
    expected = jit_builds.manifest([kernel("k", "void(int32)")])
    number, killed = 0, True
    while killed:
        number += 1
        for name in ("entry.json", "manifest.json", "kernels.cubin") if damaged else ():
            file = os.path.join(Cache(root, warnings.warn).path(KEY), name)
            if os.path.exists(file):
                os.truncate(file, 7)
        killed = is_killed_at(number, root)
        result = Cache(root, warnings.warn).get(KEY)
        assert result is None or (result.manifest, result.image) == expected
    assert result is not None
    assert number >= 15
