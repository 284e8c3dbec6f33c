"""One process compiles, the others wait; no lock outlives its holder for long."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest

from aotcuda.common import system
from aotcuda.runtime.jit import cache_lock


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "some.lock")


@pytest.fixture
def clock(monkeypatch):
    """Time that passes by sleeping alone; `clock.at` is what time it is, `clock.then` is called at each sleep."""

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


def test_patience_has_an_end(path, clock):
    held = cache_lock.acquire(path, never, 0)
    clock.then = lambda: os.utime(path, (clock.slept, clock.slept))  # the holder is alive
    assert cache_lock.acquire(path, never, 60) is None
    assert 60 <= clock.at < 61
    held.release()


def test_the_lock_of_a_process_that_was_killed_is_taken_over_at_once(path, clock):
    script = "from aotcuda.runtime.jit import cache_lock; import os; "
    script += f"cache_lock.acquire({path!r}, bool, 0); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    assert os.path.exists(path)
    held = cache_lock.acquire(path, never, 100)
    assert held is not None
    assert clock.slept == 0
    held.release()


def test_a_process_number_that_was_given_to_another_process_does_not_count(path, clock):
    held_by(path, f"{system.machine()}\n{os.getpid()}\n12345\n".encode())
    held = cache_lock.acquire(path, never, 100)
    assert held is not None
    assert clock.slept == 0
    held.release()


@pytest.mark.parametrize("content", [b"another-host pid:[1]\n1\n7\n", b"", b"garbage"])
def test_a_lock_that_nobody_renews_is_taken_over_after_a_while(path, clock, content):
    held_by(path, content)
    held = cache_lock.acquire(path, never, 1000)
    assert held is not None
    assert cache_lock.STALE_AFTER < clock.at < cache_lock.STALE_AFTER + 1
    held.release()


def test_a_lock_that_is_renewed_is_not_taken_over(path, clock):
    held_by(path, b"another-host pid:[1]\n1\n7\n")
    clock.then = lambda: os.utime(path, (clock.slept, clock.slept))
    assert cache_lock.acquire(path, never, 200) is None


def test_lost_lock_of_a_new_holder_is_not_released(path):
    held = cache_lock.acquire(path, never, 0)
    held_by(path, b"another-host pid:[1]\n1\n7\n")
    held.release()
    assert os.path.exists(path)


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


def test_an_interrupt_of_a_thread_that_waits_leaves_the_lock_to_the_one_that_has_it(path, monkeypatch):
    held = cache_lock.acquire(path, never, 0)

    def interrupted(path, mode):
        if mode == "xb":
            raise KeyboardInterrupt
        return open(path, mode)

    with monkeypatch.context() as patch:
        patch.setattr(cache_lock, "open", interrupted, raising=False)
        with pytest.raises(KeyboardInterrupt):
            cache_lock.acquire(path, never, 0)
    assert os.path.exists(path)
    held.release()
    assert os.listdir(os.path.dirname(path)) == []


def test_where_no_file_can_be_made_there_is_no_lock(tmp_path):
    assert cache_lock.acquire(str(tmp_path / "missing" / "some.lock"), never, 0) is None
