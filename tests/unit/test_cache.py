"""The cache on disk: complete entries, checks of every byte, a size limit, and storage in memory if a disk fails."""

from __future__ import annotations

import errno
import os
from unittest.mock import Mock

import pytest

from aotcuda.cache import entries, folder
from aotcuda.common.jit_build import Result
from aotcuda.errors import ConfigError
from aotcuda.runtime.jit.cache import Cache
from support import late
from support.manifests import kernel

KEY = "ab" + "0" * 62
OTHER = "cd" + "1" * 62
RECORD = {"module": "mypkg.kernels", "kernel": "k", "signature": "void(int32)", "target": "sm_90"}


def artifact(name="k"):
    whole, data = late.manifest([kernel(name, "void(int32)")])
    return Result(whole, data)


@pytest.fixture
def messages():
    return []


@pytest.fixture
def cache(tmp_path, messages):
    return Cache(str(tmp_path / "cache"), messages.append)


def again(cache, messages):
    """Return the same cache as another process sees it."""
    return Cache(cache.root, messages.append)


def files(cache, key=KEY):
    folder = cache.path(key)
    return {name: os.path.join(folder, name) for name in os.listdir(folder)}


def left_in_tmp(cache):
    return os.listdir(os.path.join(cache.root, "v1", "tmp"))


def test_stored_entry_is_found_by_another_process(cache, messages):
    assert cache.get(KEY) is None
    assert not os.path.exists(cache.root), "a search makes no folder"
    cache.put(KEY, artifact("old"), RECORD)
    cache.put(KEY, artifact(), RECORD)
    found = again(cache, messages).get(KEY)
    assert (found.manifest, found.image) == (artifact().manifest, artifact().image)
    assert found.folder == cache.path(KEY)
    cache.discard(KEY)
    cache.discard(KEY)
    assert cache.get(KEY) is None
    assert (left_in_tmp(cache), messages) == ([], [])


def test_an_entry_under_another_key_counts_as_missing(cache):
    cache.put(KEY, artifact(), RECORD)
    os.makedirs(os.path.dirname(cache.path(OTHER)), mode=0o700)
    os.rename(cache.path(KEY), cache.path(OTHER))
    assert cache.get(OTHER) is None


def test_every_flipped_bit_and_cut_of_every_file_is_detected(cache):
    cache.put(KEY, artifact(), RECORD)
    for path in files(cache).values():
        with open(path, "rb") as file:
            data = file.read()
        for at in range(0, len(data) * 8, 7):  # a bit of each byte, and another one of the next
            changed = bytearray(data)
            changed[at // 8] ^= 1 << at % 8
            with open(path, "wb") as file:
                file.write(changed)
            assert cache.get(KEY) is None, f"bit {at} of {path}"
        for size in (len(data) - 1, 1, 0):
            os.truncate(path, size)
            assert cache.get(KEY) is None
        os.unlink(path)
        assert cache.get(KEY) is None
        with open(path, "wb") as file:
            file.write(data)
        assert cache.get(KEY) is not None


class TestWhereItCannotBeKept:
    """Memory takes over, with one warning."""

    def kept_in_memory(self, cache, messages, what):
        cache.put(KEY, artifact(), RECORD)
        cache.put(OTHER, artifact(), RECORD)
        assert cache.get(KEY).image == artifact().image
        assert again(cache, []).get(KEY) is None
        assert len(messages) == 1
        assert what in messages[0]
        assert messages[0].startswith("the JIT fallback's code is not stored beyond this process, because ")

    def test_no_home(self, messages, monkeypatch):
        monkeypatch.setattr(folder.os.path, "expanduser", lambda path: path)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.delenv("AOTCUDA_CACHE_DIR", raising=False)
        assert folder.folder() is None
        self.kept_in_memory(Cache(folder.folder(), messages.append), messages, "no home folder")

    @pytest.mark.parametrize("inner", ["", "v1"])
    def test_a_folder_that_others_can_write(self, cache, messages, inner):
        os.makedirs(os.path.join(cache.root, inner))
        os.chmod(cache.root, 0o755)
        os.chmod(os.path.join(cache.root, inner), 0o722)
        self.kept_in_memory(cache, messages, "can be written by others (chmod go-w")

    def test_a_folder_of_somebody_else(self, cache, messages, monkeypatch):
        cache.put(KEY, artifact(), RECORD)
        other = again(cache, messages)
        monkeypatch.setattr(folder.os, "geteuid", lambda: os.stat(cache.root).st_uid + 1)
        if os.stat(cache.root).st_uid == 0:  # the system's own folders may be read by all
            os.chown(cache.root, 12345, -1)
        assert other.get(KEY) is None
        assert "belongs to another user" in messages[0]

    @pytest.mark.parametrize("call", ["mkdir", "fsync", "rename"])
    def test_a_disk_that_refuses(self, cache, messages, monkeypatch, call):
        refusal = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        monkeypatch.setattr(entries.os, call, Mock(side_effect=refusal))
        self.kept_in_memory(cache, messages, "No space left on device")

    def test_a_full_disk_leaves_no_partial_entry(self, cache, monkeypatch):
        cache.put(OTHER, artifact(), RECORD)
        written = []
        fsync = os.fsync

        def fill(descriptor):
            written.append(descriptor)
            if len(written) == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            fsync(descriptor)

        monkeypatch.setattr(entries.os, "fsync", fill)
        cache.put(KEY, artifact(), RECORD)
        assert not os.path.exists(cache.path(KEY))
        assert left_in_tmp(cache) == []

    def test_the_folders_are_private_whatever_the_umask(self, cache, messages):
        before = os.umask(0)
        try:
            cache.put(KEY, artifact(), RECORD)
        finally:
            os.umask(before)
        assert again(cache, messages).get(KEY) is not None
        folders = [cache.root, *(path for path, _, _ in os.walk(cache.root))]
        assert {os.stat(folder).st_mode & 0o777 for folder in folders} == {0o700}


@pytest.mark.parametrize("xdg", [None, "", "/var/tmp/xdg"])
def test_default_folder_is_that_of_platformdirs(monkeypatch, xdg):
    platformdirs = pytest.importorskip("platformdirs")
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", "/somewhere/else")
    assert folder.folder() == "/somewhere/else"
    monkeypatch.delenv("AOTCUDA_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if xdg is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    assert folder.folder() == platformdirs.user_cache_dir("aotcuda")


class TestSize:
    def test_the_cap_is_a_number_with_a_unit(self, monkeypatch):
        sizes = {"": 1 << 30, "0": 0, "1000": 1000, "500M": 500 << 20, "1.5k": 1536, "3GiB": 3 << 30}
        for text, size in sizes.items():
            monkeypatch.setenv("AOTCUDA_CACHE_SIZE", text)
            assert entries.size_cap() == size
        for text in ("much", "-1", "1Q", "nan", "inf", "G"):
            monkeypatch.setenv("AOTCUDA_CACHE_SIZE", text)
            with pytest.raises(ConfigError, match=r"AOTCUDA_CACHE_SIZE is .*; write a number of bytes"):
                entries.size_cap()

    def test_least_recently_used_entry_is_removed_first(self, cache, monkeypatch):
        keys = [f"{number:02x}" + "0" * 62 for number in range(4)]
        for age, key in enumerate(keys):
            cache.put(key, artifact(), RECORD)
            os.utime(os.path.join(cache.path(key), "entry.json"), (1000 + age, 1000 + age))
        size = entries.entries(cache)[0].bytes
        assert cache.get(keys[0]) is not None  # used just now
        monkeypatch.setenv("AOTCUDA_CACHE_SIZE", str(3 * size))
        new = "ff" + "0" * 62
        cache.put(new, artifact(), RECORD)
        assert {entry.key for entry in entries.entries(cache)} == {keys[0], keys[3], new}
        monkeypatch.setenv("AOTCUDA_CACHE_SIZE", "1")
        cache.put(OTHER, artifact(), RECORD)
        assert [entry.key for entry in entries.entries(cache)] == [OTHER], "the newest entry stays"

    def test_files_of_killed_processes_are_removed_after_an_hour(self, cache):
        old, new = (os.path.join(cache.make("tmp"), name) for name in ("old", "new"))
        lock = os.path.join(cache.make("locks"), "some.lock")
        for path in (old, new):
            os.mkdir(path)
        with open(lock, "w"):
            pass
        for path in (old, lock):
            os.utime(path, (1000, 1000))
        cache.put(KEY, artifact(), RECORD)
        assert left_in_tmp(cache) == ["new"]
        assert not os.path.exists(lock)
