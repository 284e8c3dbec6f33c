"""The JIT cache: complete entries, checks of every byte, a size limit, and storage in memory without a disk."""

from __future__ import annotations

import errno
import os
import time
from unittest.mock import Mock

import pytest

from aotcuda.cache import entries, folder
from aotcuda.common.jit_build import Result
from aotcuda.errors import ConfigError, ManifestError
from aotcuda.runtime.jit.cache import Cache
from support import jit_builds
from support.manifests import kernel

KEY = "ab" + "0" * 62
OTHER = "cd" + "1" * 62
RECORD = {"module": "mypkg.kernels", "kernel": "k", "signature": "void(int32)", "target": "sm_90"}


def result(name="k"):
    return Result(*jit_builds.manifest([kernel(name, "void(int32)")]))


@pytest.fixture
def messages():
    return []


@pytest.fixture
def cache(tmp_path, messages):
    return Cache(str(tmp_path / "cache"), messages.append)


def reopened(cache, messages):
    """Return the cache as another process sees it."""
    return Cache(cache.root, messages.append)


def files(cache, key=KEY):
    folder = cache.path(key)
    return {name: os.path.join(folder, name) for name in os.listdir(folder)}


def temporary_files(cache):
    return os.listdir(os.path.join(cache.root, "v1", "tmp"))


def test_stored_entry_is_found_by_another_process(cache, messages):
    assert cache.get(KEY) is None
    assert not os.path.exists(cache.root), "a search makes no folder"
    cache.put(KEY, result("old"), RECORD)
    cache.put(KEY, result(), RECORD)
    entry = reopened(cache, messages).get(KEY)
    assert (entry.manifest, entry.image) == (result().manifest, result().image)
    assert entry.folder == cache.path(KEY)
    cache.discard(KEY)
    cache.discard(KEY)
    assert cache.get(KEY) is None
    assert (temporary_files(cache), messages) == ([], [])


def test_an_entry_under_another_key_counts_as_missing(cache):
    cache.put(KEY, result(), RECORD)
    os.makedirs(os.path.dirname(cache.path(OTHER)), mode=0o700)
    os.rename(cache.path(KEY), cache.path(OTHER))
    assert cache.get(OTHER) is None


def test_every_flipped_bit_and_cut_of_every_file_is_detected(cache):
    cache.put(KEY, result(), RECORD)
    for path in files(cache).values():
        with open(path, "rb") as file:
            data = file.read()
        for bit in range(0, len(data) * 8, 7):  # one bit of each byte, in turn the first to the eighth
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            with open(path, "wb") as file:
                file.write(changed)
            assert cache.get(KEY) is None, f"bit {bit} of {path}"
        for size in (len(data) - 1, 1, 0):
            os.truncate(path, size)
            assert cache.get(KEY) is None
        os.unlink(path)
        assert cache.get(KEY) is None
        with open(path, "wb") as file:
            file.write(data)
        assert cache.get(KEY) is not None


class TestStorageInMemory:
    """Without a usable folder, the cache stores entries in memory, with one warning."""

    def check(self, cache, messages, reason):
        cache.put(KEY, result(), RECORD)
        cache.put(OTHER, result(), RECORD)
        assert cache.get(KEY).image == result().image
        assert reopened(cache, []).get(KEY) is None
        assert len(messages) == 1
        assert reason in messages[0]
        assert messages[0].startswith("the JIT fallback's code is not stored beyond this process, because ")

    def test_without_a_home_folder(self, messages, monkeypatch):
        monkeypatch.setattr(folder.os.path, "expanduser", lambda path: path)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.delenv("AOTCUDA_CACHE_DIR", raising=False)
        assert folder.folder() is None
        self.check(Cache(folder.folder(), messages.append), messages, "no home folder")

    @pytest.mark.parametrize("inner", ["", "v1"])
    def test_in_a_folder_that_others_can_write(self, cache, messages, inner):
        os.makedirs(os.path.join(cache.root, inner))
        os.chmod(cache.root, 0o755)
        os.chmod(os.path.join(cache.root, inner), 0o722)
        self.check(cache, messages, "can be written by others (chmod go-w")

    def test_in_a_folder_of_another_user(self, cache, messages, monkeypatch):
        cache.put(KEY, result(), RECORD)
        other = reopened(cache, messages)
        monkeypatch.setattr(folder.os, "geteuid", lambda: os.stat(cache.root).st_uid + 1)
        if os.stat(cache.root).st_uid == 0:  # the system's own folders may be read by all
            os.chown(cache.root, 12345, -1)
        assert other.get(KEY) is None
        assert "belongs to another user" in messages[0]

    @pytest.mark.parametrize("call", ["mkdir", "fsync", "rename"])
    def test_on_a_full_disk_without_a_partial_entry(self, cache, messages, monkeypatch, call):
        refusal = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        monkeypatch.setattr(entries.os, call, Mock(side_effect=refusal))
        self.check(cache, messages, "No space left on device")
        assert not os.path.exists(cache.path(KEY))
        assert call == "mkdir" or temporary_files(cache) == []

    def test_folders_are_private_with_any_umask(self, cache, messages):
        umask = os.umask(0)
        try:
            cache.put(KEY, result(), RECORD)
        finally:
            os.umask(umask)
        assert reopened(cache, messages).get(KEY) is not None
        folders = [cache.root, *(path for path, _, _ in os.walk(cache.root))]
        assert {os.stat(folder).st_mode & 0o777 for folder in folders} == {0o700}


@pytest.mark.parametrize("xdg", [None, "", "/var/tmp/xdg"])
def test_default_folder_equals_that_of_platformdirs(monkeypatch, xdg):
    platformdirs = pytest.importorskip("platformdirs")
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", "/somewhere/else")
    assert folder.folder() == "/somewhere/else"
    monkeypatch.delenv("AOTCUDA_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if xdg is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    assert folder.folder() == platformdirs.user_cache_dir("aotcuda")


def test_a_relative_xdg_folder_is_ignored(monkeypatch):
    monkeypatch.delenv("AOTCUDA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    assert folder.folder() == os.path.join(os.path.expanduser("~"), ".cache", "aotcuda")


class TestSize:
    def test_the_limit_is_a_number_with_a_unit(self, monkeypatch):
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
            cache.put(key, result(), RECORD)
            os.utime(os.path.join(cache.path(key), "entry.json"), (1000 + age, 1000 + age))
        size = entries.entries(cache)[0].bytes
        assert cache.get(keys[0]) is not None  # a use
        monkeypatch.setenv("AOTCUDA_CACHE_SIZE", str(3 * size))
        new = "ff" + "0" * 62
        cache.put(new, result(), RECORD)
        assert {entry.key for entry in entries.entries(cache)} == {keys[0], keys[3], new}
        monkeypatch.setenv("AOTCUDA_CACHE_SIZE", "1")
        cache.put(OTHER, result(), RECORD)
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
        cache.put(KEY, result(), RECORD)
        assert temporary_files(cache) == ["new"]
        assert not os.path.exists(lock)


@pytest.mark.parametrize("part", ["entry", "shard"])
def test_link_in_place_of_an_entry_is_not_followed(cache, part, tmp_path):
    """An entry that is intact, but somewhere else, is not trusted."""
    cache.put(KEY, result(), RECORD)
    place = cache.path(KEY) if part == "entry" else os.path.dirname(cache.path(KEY))
    os.rename(place, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", place)
    with pytest.raises(ManifestError, match="is not a folder"):
        entries.read(cache, KEY)


def test_link_in_place_of_a_file_of_an_entry_is_not_followed(cache, tmp_path):
    cache.put(KEY, result(), RECORD)
    for name in ("entry.json", *cache.file_names):
        path = os.path.join(cache.path(KEY), name)
        os.rename(path, tmp_path / name)
        os.symlink(tmp_path / name, path)
        with pytest.raises((ManifestError, OSError)):
            entries.read(cache, KEY)
        os.replace(tmp_path / name, path)
    assert entries.read(cache, KEY)


@pytest.mark.parametrize(("age", "stays"), [(3500, True), (3700, False)])
def test_temporary_folders_stay_for_an_hour(cache, age, stays):
    folder = os.path.join(cache.make("tmp"), "other")
    os.mkdir(folder)
    moment = time.time() - age
    os.utime(folder, (moment, moment))
    entries.trim(cache, 1 << 30)
    assert os.path.exists(folder) == stays


def test_link_in_place_of_the_version_folder_is_not_followed(cache, tmp_path):
    os.mkdir(cache.root)
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", os.path.join(cache.root, entries.VERSION))
    with pytest.raises(OSError, match="File exists"):
        cache.make("tmp")
    assert [*cache.stored()] == []
    assert os.listdir(tmp_path / "elsewhere") == []
