"""A process that is killed at any system call of a cache write."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
import traceback
import warnings

import pytest

from aotcuda.builder.cache import store
from aotcuda.builder.cache.settings import Settings
from aotcuda.cache import entries
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


def temporary_files(root: str) -> list[str]:
    folder = os.path.join(root, entries.VERSION, "tmp")
    return os.listdir(folder) if os.path.isdir(folder) else []


def test_files_of_living_processes_stay(tmp_path):
    cache = Cache(str(tmp_path), warnings.warn)
    os.mkdir(entries.temporary_path(cache))
    elsewhere = f"{'0' * 12}-1-1-00000000"
    for age, name in ((0, elsewhere), (7200, elsewhere[:-1] + "1")):
        path = os.path.join(cache.make("tmp"), name)
        os.mkdir(path)
        os.utime(path, (time.time() - age,) * 2)
    entries.clear(cache)
    assert len(temporary_files(cache.root)) == 2
    assert elsewhere in temporary_files(cache.root)


@pytest.mark.parametrize("step", ["mkdir", "open", "fsync", "rename"])
@pytest.mark.parametrize("then", ["goes on", "dies"])
def test_full_disk_leaves_no_files_after_the_next_build(tmp_path, monkeypatch, step, then):
    """Covers a process that reports the error, and one that cannot even delete its files."""

    def full(*_args, **_options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    settings = Settings(folder=str(tmp_path), writes=True, facts="")
    if (pid := os.fork()) == 0:
        try:
            entries.Files(settings.folder).make("tmp")
            monkeypatch.setattr(os, step, full)
            if then == "dies":
                monkeypatch.setattr(entries, "_delete", full)
            with contextlib.suppress(OSError):
                entries.write(entries.Files(settings.folder, ["a"]), KEY, {}, {"a": b"1"})
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    if then == "goes on" and step != "open":  # deletions open folders, too
        assert temporary_files(settings.folder) == []
    store.trim(settings)
    assert temporary_files(settings.folder) == []
    os.mkdir(os.path.join(settings.folder, entries.VERSION, "tmp", f"{'ab' * 8}.{dead_name()}"))
    store.trim(settings)  # this time without a measurement of the cache
    assert temporary_files(settings.folder) == []


def dead_name() -> str:
    code = "from aotcuda.common import process_names; print(process_names.make())"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


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
        entries.sweep(Cache(root, warnings.warn))
        assert temporary_files(root) == []
    assert result is not None
    assert number >= 15
