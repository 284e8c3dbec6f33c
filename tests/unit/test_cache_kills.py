"""A process that is killed at any system call of a cache write."""

from __future__ import annotations

import os
import warnings

import pytest

from aotcuda.common.jit_build import Result
from aotcuda.runtime.jit.cache import Cache
from support import late
from support.killed import killed_at
from support.manifests import kernel

KEY = "ab" + "0" * 62

STEPS = ("open", "mkdir", "write", "fsync", "close", "rename", "link", "unlink")


def write(root: str) -> None:
    cache = Cache(root, print)
    whole, data = late.manifest([kernel("k", "void(int32)")])
    lock = cache.lock(KEY)
    cache.discard(KEY)
    cache.put(KEY, Result(whole, data), {})
    lock.release()


def steps(root, damaged):
    """Kill a writer at each step and check the entry; return the number of steps."""
    whole, data = late.manifest([kernel("k", "void(int32)")])
    for number in range(1, 1000):
        if damaged:
            for name in ("entry.json", "manifest.json", "kernels.cubin"):
                file = os.path.join(Cache(root, warnings.warn).path(KEY), name)
                if os.path.exists(file):
                    os.truncate(file, 7)
        killed = killed_at(number, STEPS, lambda: write(root))
        result = Cache(root, warnings.warn).get(KEY)
        assert result is None or (result.manifest, result.image) == (whole, data)
        if not killed:
            assert result is not None
            return number
    raise AssertionError


@pytest.mark.parametrize("damaged", [False, True], ids=["new", "replaced"])
def test_a_killed_write_leaves_a_complete_entry_or_none(tmp_path, damaged):
    assert steps(str(tmp_path / "cache"), damaged) >= 18
