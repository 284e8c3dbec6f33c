"""A process killed at any step of a cache write leaves nothing that a later one trips over.

Every step that the write asks of the system is tried in turn.
"""

from __future__ import annotations

import os
import warnings

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
    """Kill a writer at its first step, the second, and so on; after each, look what is left. How many there were."""
    whole, data = late.manifest([kernel("k", "void(int32)")])
    for number in range(1, 1000):
        if damaged:
            for name in ("entry.json", "manifest.json", "kernels.cubin"):
                file = os.path.join(Cache(root, warnings.warn).path(KEY), name)
                if os.path.exists(file):
                    os.truncate(file, 7)
        killed = killed_at(number, STEPS, lambda: write(root))
        found = Cache(root, warnings.warn).get(KEY)
        assert found is None or (found.manifest, found.image) == (whole, data)
        if not killed:
            assert found is not None
            return number
    raise AssertionError


def test_while_an_entry_is_made(tmp_path):
    assert steps(str(tmp_path / "cache"), damaged=False) >= 18


def test_while_a_damaged_one_is_replaced(tmp_path):
    assert steps(str(tmp_path / "cache"), damaged=True) >= 18
