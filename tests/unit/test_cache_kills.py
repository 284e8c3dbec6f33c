"""A process killed at any step of a cache write leaves nothing that a later one trips over.

Every step that the write asks of the system is tried in turn. `bench/cache_kills.py` kills at random moments instead.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings

from aotcuda.runtime.jit.cache import Cache
from support import late
from support.manifests import kernel

KEY = "ab" + "0" * 62

WRITE = """
import os, sys
from aotcuda.runtime.jit.cache import Cache
from aotcuda.runtime.jit.cache_files import Artifact
from support import late
from support.manifests import kernel

left, KEY = int(sys.argv[2]), sys.argv[3]

def counted(call):
    def step(*args, **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 9)
        return call(*args, **options)
    return step

cache = Cache(sys.argv[1], print)
whole, data = late.manifest([kernel("k", "void(int32)")])
for name in ("open", "mkdir", "write", "fsync", "close", "rename", "link", "unlink"):
    setattr(os, name, counted(getattr(os, name)))
lock = cache.lock(KEY)
cache.discard(KEY)
cache.put(KEY, Artifact(whole, data, {}))
lock.release()
print("done")
"""


def steps(root, damaged):
    """Kill a writer at its first step, the second, and so on; after each, look what is left. How many there were."""
    whole, data = late.manifest([kernel("k", "void(int32)")])
    path = os.pathsep.join(sys.path)
    for number in range(1, 1000):
        if damaged:
            for name in ("entry.json", "manifest.json", "kernels.cubin"):
                file = os.path.join(Cache(root, warnings.warn).path(KEY), name)
                if os.path.exists(file):
                    os.truncate(file, 7)
        command = [sys.executable, "-c", WRITE, root, str(number), KEY]
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        found = Cache(root, warnings.warn).get(KEY)
        assert found is None or (found.manifest, found.image) == (whole, data)
        if done.returncode == 0:
            assert done.stdout == "done\n", done.stderr
            assert found is not None
            return number
        assert done.returncode == -signal.SIGKILL, done.stderr
    raise AssertionError


def test_while_an_entry_is_made(tmp_path):
    assert steps(str(tmp_path / "cache"), damaged=False) > 20


def test_while_a_damaged_one_is_replaced(tmp_path):
    assert steps(str(tmp_path / "cache"), damaged=True) > 20
