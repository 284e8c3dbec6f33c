"""The key of a JIT cache entry changes with every input of the result, and needs no compiler."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from aotcuda import manifest as manifests
from aotcuda.cache import compilers
from aotcuda.common.jit_build import Request, Result
from aotcuda.runtime.jit import cache_key

CASE = ("k", "void(int32)", (9, 0))


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / "mypkg" / name for name in ("_kernels.py", "helpers.py", "sources/x.cu", "sources/x.cuh")]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1\n")
    return paths


def request_for(tmp_path, files, **table):
    listed = tuple(map(str, files))
    return Request("mypkg.kernels", {"arch": ["sm_80"], **table}, str(tmp_path), str(tmp_path), files=listed)


@pytest.fixture
def make(tmp_path, files):
    """Return a function that returns the key of a case, by default `CASE`, with other keys of the table."""
    return lambda *case, **table: cache_key.key(request_for(tmp_path, files, **table).case(*(case or CASE), (13, 0)))


def test_key_is_the_same_in_every_process(tmp_path, files, make):
    script = (
        "from aotcuda.runtime.jit import cache_key as key; from aotcuda.common.jit_build import Request; import sys;"
        f"r = Request('mypkg.kernels', {{'arch': ['sm_80']}}, {str(tmp_path)!r}, {str(tmp_path)!r},"
        f" files={tuple(map(str, files))!r}); print(key.key(r.case(*{CASE!r}, (13, 0))))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == make()


def test_an_edit_of_any_source_changes_the_key(files, make):
    for file in files:
        original = make()
        file.write_text("2\n")
        edited = make()
        file.unlink()
        assert len({original, edited, make()}) == 3


def test_requests_tables_and_versions_have_different_keys(make, monkeypatch):
    cases = [("other", *CASE[1:]), ("k", "void(int64)", (9, 0)), ("k", "void(int32)", (10, 0)), (None, None, (9, 0))]
    keys = [make(), *[make(options={"fastmath": value}) for value in (True, False)], *[make(*case) for case in cases]]
    monkeypatch.setattr(cache_key, "__version__", "99")
    assert len({*keys, make()}) == 8


@pytest.mark.parametrize(
    ("package", "matters"),
    [("numba_cuda", True), ("llvmlite", True), ("nvidia_nvjitlink", True), ("cuda_core", True), ("requests", False)],
)
def test_only_versions_of_compilers_change_the_key(tmp_path, make, monkeypatch, package, matters):
    original = make()
    (tmp_path / "site" / f"{package}-99.dist-info").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert (compilers.installed().get(package) == "99") is matters
    assert (make() != original) is matters


def test_variables_and_another_toolkit_change_the_key(tmp_path, make, monkeypatch):
    keys = [make()]
    for name in ("AOTCUDA_CACHE_KEY", "NUMBA_CUDA_INCLUDE_PATH"):
        for value in ("", "a"):
            monkeypatch.setenv(name, value)
            keys.append(make())
    (tmp_path / "cuda").mkdir()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    keys.append(make())
    (tmp_path / "cuda" / "version.json").write_text("{}")
    keys.append(make())
    assert len(set(keys)) == len(keys) == 7


def test_a_change_of_an_input_that_the_build_found_makes_an_entry_stale(tmp_path, files, monkeypatch):
    foreign = tmp_path / "elsewhere" / "data.json"
    foreign.parent.mkdir()
    foreign.write_text("{}")
    monkeypatch.setenv("SOME_TILE", "16")
    monkeypatch.delenv("SOME_OTHER", raising=False)
    manifest = {
        "toolchain": {"cuda": "13.0"},
        "fatbins": [{"images": [{}]}],
        "sources": [{"path": "mypkg/helpers.py", "sha256": manifests.digest(files[1].read_bytes())}],
        "reads": [{"ask": "file", "path": str(foreign), "answer": manifests.digest(b"{}")}],
        "variables": {"SOME_TILE": manifests.digest(b"16"), "SOME_OTHER": None},
    }
    request = request_for(tmp_path, files).case(*CASE, (13, 0))

    def is_current():
        return cache_key.is_current(Result(manifest, b""), request)

    for name, value in (("SOME_TILE", "32"), ("SOME_OTHER", "")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert not is_current()
    for file in (files[1], foreign):
        assert is_current()
        text, times = file.read_text(), file.stat()
        file.write_text("2")
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # the content counts, not the time
        assert not is_current()
        file.unlink()
        assert not is_current()
        file.write_text(text)
