"""`aotcuda cache dir`, `list` and `clear`, and errors of `warm`."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from aotcuda import cli
from aotcuda.builder.plan import toolkits
from aotcuda.common.jit_build import Result
from aotcuda.runtime.jit.cache import Cache
from support import jit_builds
from support.manifests import kernel

KEY = "ab" + "0" * 62


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "cache"))
    return Cache(str(tmp_path / "cache"), pytest.fail)


def put(cache, key, age, **record):
    result = Result(*jit_builds.manifest([kernel("axpy", "void(int32)")]))
    base = {"module": "mypkg.kernels", "kernel": "axpy", "signature": "void(int32)", "target": "sm_90"}
    cache.put(key, result, {**base, **record})
    path = os.path.join(cache.path(key), "entry.json")
    used = os.stat(path).st_mtime - age
    os.utime(path, (used, used))


def test_dir_prints_the_folder_alone(cache, capsys):
    assert cli.main(["cache", "dir"]) == 0
    assert capsys.readouterr().out == f"{cache.root}\n"
    assert not os.path.exists(cache.root)


def test_list_shows_kernels_targets_sizes_and_ages(cache, capsys):
    put(cache, KEY, 3 * 86400)
    put(cache, "cd" + "0" * 62, 130, kernel=None, signature=None, target="sm_120")
    assert cli.main(["cache", "list"]) == 0
    header, first, second, total = capsys.readouterr().out.splitlines()
    assert header.split() == ["SIZE", "USED", "TARGET", "KERNEL", "ENTRY"]
    assert "2 min ago  sm_120  mypkg.kernels, all kernels" in first
    assert "3 d ago  sm_90   mypkg.kernels.axpy void(int32)" in second
    assert second.endswith(KEY)
    assert total.startswith("2 entries, ")
    assert total.endswith(f" of at most 1.0 GiB, in {cache.root}")


def test_list_shows_damaged_entries_and_clear_removes_them(cache, capsys):
    put(cache, KEY, 0)
    os.truncate(os.path.join(cache.path(KEY), "entry.json"), 3)
    assert cli.main(["cache", "list"]) == 0
    assert "damaged, to be replaced when it is next needed" in capsys.readouterr().out
    assert cli.main(["cache", "clear"]) == 0
    assert capsys.readouterr().out.startswith("1 entry, ")
    assert cli.main(["cache", "list"]) == 0
    assert capsys.readouterr().out == f"0 entries, 0 B of at most 1.0 GiB, in {cache.root}\n"


def test_a_folder_that_others_can_write_is_refused(cache, capsys):
    os.mkdir(cache.root)
    os.chmod(cache.root, 0o777)
    assert cli.main(["cache", "clear"]) == 1
    assert "can be written by others (chmod go-w" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["list", "clear"])
def test_a_folder_that_cannot_be_read_is_an_error(cache, capsys, action):
    put(cache, KEY, 0)
    base = cache.root
    os.rename(os.path.join(base, "v1"), os.path.join(base, "aside"))
    os.symlink("v1", os.path.join(base, "v1"))
    assert cli.main(["cache", action]) == 1
    assert f"aotcuda: {base}/v1 cannot be read (Too many levels" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cuda", "message"),
    [
        ("11", "--cuda 11: write 12 or 13\n"),
        (
            "12",
            "--cuda 12: drivers for CUDA 12 load no code of the installed compilers of CUDA 13; install the compilers",
        ),
    ],
)
def test_warm_refuses_code_that_the_drivers_cannot_load(cuda, message, cache, capsys, monkeypatch):
    monkeypatch.setattr(toolkits, "installed", lambda: (SimpleNamespace(linker=(13, 0)),))
    assert cli.main(["cache", "warm", "anything", "--cuda", cuda]) == 1
    assert capsys.readouterr().err.startswith(f"aotcuda: {message}")
