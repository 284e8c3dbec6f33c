"""The lock of the JIT cache: one process compiles, the others wait, and no lock remains long after its holder."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import time
from unittest.mock import Mock

import pytest

from aotcuda.common import system
from aotcuda.runtime.jit import cache_lock

FOREIGN = b"another-host pid:[1]\n1\n7\n"


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "some.lock")


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that only sleeping moves: `seconds` is the time, and each sleep calls `then`."""

    class Clock:
        seconds = 0.0
        sleeps = 0
        monotonic_ns = staticmethod(time.monotonic_ns)

        def monotonic(self):
            return self.seconds

        def sleep(self, seconds):
            self.seconds += max(seconds, 0.001)
            self.sleeps += 1
            self.then()

        def then(self):
            pass

    clock = Clock()
    monkeypatch.setattr(cache_lock, "time", clock)
    return clock


def never():
    return False


def write_lock(path, content):
    with open(path, "wb") as file:
        file.write(content)


def test_a_waiter_gets_the_lock_after_its_release(path, clock):
    first = cache_lock.acquire(path, never, 0)
    clock.then = lambda: first.release() if clock.sleeps == 3 else None
    second = cache_lock.acquire(path, never, 100)
    assert second is not None
    assert clock.sleeps == 3
    second.release()


def test_a_waiter_stops_once_the_result_exists(path, clock):
    first = cache_lock.acquire(path, never, 0)
    assert cache_lock.acquire(path, lambda: clock.sleeps == 2, 100) is None
    assert clock.sleeps == 2
    first.release()


def test_a_killed_process_loses_its_lock_at_once(path, clock):
    script = "from aotcuda.runtime.jit import cache_lock; import os; "
    script += f"cache_lock.acquire({path!r}, bool, 0); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    assert os.path.exists(path)
    lock = cache_lock.acquire(path, never, 100)
    assert lock is not None
    assert clock.sleeps == 0
    lock.release()


def test_a_new_process_with_the_number_of_the_holder_is_not_the_holder(path, clock):
    write_lock(path, f"{system.machine()}\n{os.getpid()}\n12345\n".encode())
    lock = cache_lock.acquire(path, never, 100)
    assert lock is not None
    assert clock.sleeps == 0
    lock.release()


@pytest.mark.parametrize("content", [FOREIGN, b"", b"garbage"])
def test_only_a_lock_that_is_not_renewed_is_taken_over(path, clock, content):
    write_lock(path, content)
    clock.then = lambda: os.utime(path, (clock.sleeps, clock.sleeps))
    assert cache_lock.acquire(path, never, 200) is None
    clock.then = lambda: None
    begin = clock.seconds
    lock = cache_lock.acquire(path, never, 1000)
    assert lock is not None
    assert cache_lock.STALE_AFTER < clock.seconds - begin < cache_lock.STALE_AFTER + 1
    write_lock(path, FOREIGN)
    lock.release()
    assert os.path.exists(path), "the lock of a new holder stays"


@pytest.mark.parametrize(("place", "name"), [(cache_lock, "open"), (cache_lock.Lock, "renew"), (os, "unlink")])
def test_an_interrupt_leaves_no_file(path, monkeypatch, place, name):
    """The interrupt is raised after a call has done its work."""
    function, calls = getattr(place, name, open), []

    def interrupted(*args):
        calls.append(args)
        result = function(*args)
        if len(calls) > 1:
            return result
        if name == "open":
            result.close()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place, name, interrupted, raising=name != "open")
        with contextlib.suppress(KeyboardInterrupt):
            cache_lock.acquire(path, never, 0).release()
    assert calls
    assert os.listdir(os.path.dirname(path)) == []


def test_without_a_file_there_is_no_lock(tmp_path):
    assert cache_lock.acquire(str(tmp_path / "missing" / "some.lock"), never, 0) is None


@pytest.mark.parametrize("content", [FOREIGN, f"{system.machine()}\n1\n12345\n0".encode()], ids=["stale", "dead"])
def test_a_lock_that_cannot_be_removed_is_not_waited_for(path, clock, monkeypatch, content):
    """A read-only disk may have the lock of a process that has ended."""
    write_lock(path, content)
    monkeypatch.setattr(os, "unlink", Mock(side_effect=OSError(errno.EROFS, "Read-only file system")))
    checks = Mock(side_effect=[False] * 1000)  # afterwards it raises
    assert cache_lock.acquire(path, checks, 100) is None
    assert clock.seconds < cache_lock.STALE_AFTER + 1
