"""One process compiles, the others wait; no lock outlives its holder for long."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest

from aotcuda.common import system
from aotcuda.runtime.jit import cache_lock

FOREIGN = b"another-host pid:[1]\n1\n7\n"


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "some.lock")


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that only sleeping moves: `at` is the time, and each sleep calls `then`."""

    class Clock:
        at = 0.0
        slept = 0

        def monotonic(self):
            return self.at

        def sleep(self, seconds):
            self.at += max(seconds, 0.001)
            self.slept += 1
            self.then()

        def then(self):
            pass

    found = Clock()
    monkeypatch.setattr(cache_lock.time, "monotonic", found.monotonic)
    monkeypatch.setattr(cache_lock.time, "sleep", found.sleep)
    return found


def never():
    return False


def held_by(path, content):
    with open(path, "wb") as file:
        file.write(content)


def test_a_waiter_gets_it_when_the_holder_gives_it_back(path, clock):
    held = cache_lock.acquire(path, never, 0)
    clock.then = lambda: held.release() if clock.slept == 3 else None
    second = cache_lock.acquire(path, never, 100)
    assert second is not None
    assert clock.slept == 3
    second.release()


def test_a_waiter_stops_when_the_result_is_there(path, clock):
    held = cache_lock.acquire(path, never, 0)
    assert cache_lock.acquire(path, lambda: clock.slept == 2, 100) is None
    assert clock.slept == 2
    held.release()


def test_a_killed_process_loses_its_lock_at_once(path, clock):
    script = "from aotcuda.runtime.jit import cache_lock; import os; "
    script += f"cache_lock.acquire({path!r}, bool, 0); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    assert os.path.exists(path)
    held = cache_lock.acquire(path, never, 100)
    assert held is not None
    assert clock.slept == 0
    held.release()


def test_a_later_process_with_the_holders_number_does_not_count(path, clock):
    held_by(path, f"{system.machine()}\n{os.getpid()}\n12345\n".encode())
    held = cache_lock.acquire(path, never, 100)
    assert held is not None
    assert clock.slept == 0
    held.release()


@pytest.mark.parametrize("content", [FOREIGN, b"", b"garbage"])
def test_only_a_lock_that_nobody_renews_is_taken_over(path, clock, content):
    held_by(path, content)
    clock.then = lambda: os.utime(path, (clock.slept, clock.slept))
    assert cache_lock.acquire(path, never, 200) is None
    clock.then = lambda: None
    begin = clock.at
    held = cache_lock.acquire(path, never, 1000)
    assert held is not None
    assert cache_lock.STALE_AFTER < clock.at - begin < cache_lock.STALE_AFTER + 1
    held_by(path, FOREIGN)
    held.release()
    assert os.path.exists(path), "the lock of a new holder stays"


@pytest.mark.parametrize(("place", "name"), [(cache_lock, "open"), (cache_lock.Lock, "renew"), (os, "unlink")])
def test_an_interrupt_of_who_takes_it_leaves_no_file(path, monkeypatch, place, name):
    """It is raised when a call returns, which has done its work."""
    function, came = getattr(place, name, open), []

    def interrupted(*args):
        came.append(args)
        result = function(*args)
        if len(came) > 1:
            return result
        if name == "open":
            result.close()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place, name, interrupted, raising=name != "open")
        with contextlib.suppress(KeyboardInterrupt):
            cache_lock.acquire(path, never, 0).release()
    assert came
    assert os.listdir(os.path.dirname(path)) == []


def test_where_no_file_can_be_made_there_is_no_lock(tmp_path):
    assert cache_lock.acquire(str(tmp_path / "missing" / "some.lock"), never, 0) is None
