"""The lock of the JIT cache: one process compiles, the others wait, and an ended process holds no lock."""

from __future__ import annotations

import errno
import os
import runpy
import subprocess
import sys
import types
from contextlib import contextmanager

import pytest

from aotcuda.runtime.jit import cache_lock
from support import threads

HOLDER = """
import os, sys
from aotcuda.runtime.jit import cache_lock
path, way = sys.argv[1:]
file = cache_lock.acquire(path)
reader, writer = os.pipe()
if way == "forked child" and os.fork() == 0:
    os.close(writer)
    os.read(reader, 1)  # until the holder ends
    os._exit(0)
print("held", flush=True)
sys.stdin.readline()
open(path + ".done", "w").close()
if way == "killed":
    os.kill(os.getpid(), 9)
elif way != "ended":
    cache_lock.release(file)
    sys.stdin.read()
os._exit(0)
"""


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "some.lock")


@contextmanager
def holder(path, way):
    """Start a process that holds the lock; it ends its use of the lock in the given way after a line on its input."""
    command = [sys.executable, "-c", HOLDER, path, way]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.stdin.close()


@pytest.mark.parametrize("way", ["released", "ended", "killed", "forked child"])
def test_a_waiter_gets_the_lock_when_the_holder_gives_it_up(path, way):
    with holder(path, way) as process:
        found = []

        def wait():
            file = cache_lock.acquire(path)
            found.append((file is not None, os.path.exists(path + ".done")))
            cache_lock.release(file)

        with threads.started(wait):
            process.stdin.write("\n")
            process.stdin.flush()
        assert found == [(True, True)]


def test_threads_of_one_process_wait_for_each_other(path):
    first, given_up, found = cache_lock.acquire(path), [], []

    def wait():
        second = cache_lock.acquire(path)
        found.append(second is not None and bool(given_up))
        cache_lock.release(second)

    with threads.started(wait):
        given_up.append(True)
        cache_lock.release(first)
    assert found == [True]


def no_folder(path, _):
    return os.path.join(path, "missing")


def folder(path, _):
    os.mkdir(path)
    return path


def refused(path, monkeypatch):
    monkeypatch.setattr(cache_lock, "open", fail(errno.EACCES), raising=False)
    return path


def no_locks(path, monkeypatch):
    monkeypatch.setattr(cache_lock, "_lock", fail(errno.ENOLCK))
    return path


def fail(number):
    def raises(*_, **__):
        raise OSError(number, os.strerror(number))

    return raises


@pytest.mark.parametrize("prepare", [no_folder, folder, refused, no_locks])
def test_a_file_that_cannot_be_locked_is_not_waited_for(path, monkeypatch, prepare):
    assert cache_lock.acquire(prepare(path, monkeypatch)) is None


@pytest.mark.parametrize("content", [b"", b"text of another version\n1\n7\n"])
def test_a_file_without_a_holder_is_free(path, content):
    with open(path, "wb") as file:
        file.write(content)
    cache_lock.release(cache_lock.acquire(path))


def test_an_interrupted_wait_leaves_the_lock_free(path, monkeypatch):
    with monkeypatch.context() as patch:
        lock = cache_lock._lock

        def interrupted(file):
            lock(file)
            raise KeyboardInterrupt

        patch.setattr(cache_lock, "_lock", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cache_lock.acquire(path)
    with holder(path, "ended"):
        pass


def test_windows_locks_are_tried_until_one_succeeds(path, monkeypatch):
    """The function of Windows gives up after ten seconds; every other error means that files cannot be locked."""
    calls, errors = [], [errno.EDEADLK, errno.EDEADLK, None, None, errno.EINVAL]

    def locking(_descriptor, mode, size):
        calls.append((mode, size))
        if (number := errors.pop(0)) is not None:
            raise OSError(number, "no lock")

    fake = types.SimpleNamespace(locking=locking, LK_LOCK=1, LK_UNLCK=0)
    monkeypatch.setitem(sys.modules, "msvcrt", fake)
    monkeypatch.setattr(sys, "platform", "win32")
    module = runpy.run_path(cache_lock.__file__)
    file = module["acquire"](path)
    module["release"](file)
    assert file.closed
    assert calls == [(1, 1), (1, 1), (1, 1), (0, 1)]
    assert module["acquire"](path) is None
