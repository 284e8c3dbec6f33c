"""The key of an entry changes with everything that changes the result, and is found without a compiler."""

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
    found = [tmp_path / "mypkg" / name for name in ("_kernels.py", "helpers.py", "sources/x.cu", "sources/x.cuh")]
    for path in found:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1\n")
    return found


def inputs(tmp_path, files, **table):
    listed = tuple(map(str, files))
    return Request("mypkg.kernels", {"arch": ["sm_80"], **table}, str(tmp_path), str(tmp_path), files=listed)


@pytest.fixture
def make(tmp_path, files):
    """Return the key of the case, with keys of the table replaced."""
    return lambda *case, **table: cache_key.key(inputs(tmp_path, files, **table).case(*(case or CASE), (13, 0)))


def test_key_is_the_same_in_every_process(tmp_path, files, make):
    script = (
        "from aotcuda.runtime.jit import cache_key as key; from aotcuda.common.jit_build import Request; import sys;"
        f"r = Request('mypkg.kernels', {{'arch': ['sm_80']}}, {str(tmp_path)!r}, {str(tmp_path)!r},"
        f" files={tuple(map(str, files))!r}); print(key.key(r.case(*{CASE!r}, (13, 0))))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == make()


@pytest.mark.parametrize("number", range(4))
def test_an_edit_of_any_source_changes_it(files, make, number):
    before = make()
    files[number].write_text("2\n")
    edited = make()
    files[number].unlink()
    assert len({before, edited, make()}) == 3


@pytest.mark.parametrize(
    "case", [("other", *CASE[1:]), ("k", "void(int64)", (9, 0)), ("k", "void(int32)", (10, 0)), (None, None, (9, 0))]
)
def test_each_case_has_its_own(make, case):
    assert make(*case) != make()


def test_an_option_changes_it(make):
    assert len({make(), make(options={"fastmath": True}), make(options={"fastmath": False})}) == 3


def test_the_version_of_aotcuda_changes_it(make, monkeypatch):
    before = make()
    monkeypatch.setattr(cache_key, "__version__", "99")
    assert make() != before


@pytest.mark.parametrize(
    "package", ["numba_cuda", "numba_cuda_mlir", "llvmlite", "numpy", "nvidia_nvjitlink", "cuda_core"]
)
def test_the_version_of_a_compiler_changes_it(tmp_path, make, monkeypatch, package):
    before = make()
    (tmp_path / "site" / f"{package}-99.dist-info").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert compilers.installed()[package] == "99"
    assert make() != before


@pytest.mark.parametrize("name", ["AOTCUDA_CACHE_KEY", "NUMBA_CUDA_INCLUDE_PATH"])
def test_a_variable_that_says_so_changes_it(make, monkeypatch, name):
    found = {make()}
    for value in ("", "a", "b"):
        monkeypatch.setenv(name, value)
        found.add(make())
    assert len(found) == 4


def test_other_packages_do_not_matter(tmp_path, make, monkeypatch):
    before = make()
    (tmp_path / "site" / "requests-99.dist-info").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert make() == before


def test_a_toolkit_elsewhere_changes_it(tmp_path, make, monkeypatch):
    found = {make()}
    (tmp_path / "cuda").mkdir()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    found.add(make())
    (tmp_path / "cuda" / "version.json").write_text("{}")
    found.add(make())
    assert len(found) == 3


class TestWhetherAnEntryIsGood:
    """An entry lists the inputs that its key cannot name."""

    @pytest.fixture
    def good(self, tmp_path, files):
        foreign = tmp_path / "elsewhere" / "data.json"
        foreign.parent.mkdir()
        foreign.write_text("{}")
        own = {"path": "mypkg/helpers.py", "sha256": manifests.digest(files[1].read_bytes())}
        read = {"ask": "file", "path": str(foreign), "answer": manifests.digest(b"{}")}
        variables = {"SOME_TILE": manifests.digest(b"16"), "SOME_OTHER": None}
        made = {
            "toolchain": {"cuda": "13.0"},
            "images": [{}],
            "sources": [own],
            "reads": [read],
            "variables": variables,
        }
        request = inputs(tmp_path, files).case(*CASE, (13, 0))
        return lambda: cache_key.is_current(Result(made, b""), request), files[1], foreign

    @pytest.fixture(autouse=True)
    def _environment(self, monkeypatch):
        monkeypatch.setenv("SOME_TILE", "16")
        monkeypatch.delenv("SOME_OTHER", raising=False)

    def test_entry_is_stale_after_an_edit_of_the_project(self, good):
        is_good, own, _ = good
        times = own.stat()
        own.write_text("2\n")
        os.utime(own, ns=(times.st_atime_ns, times.st_mtime_ns))  # its content counts, whatever its time
        assert not is_good()

    def test_entry_is_stale_after_a_change_of_another_package(self, good):
        is_good, _, foreign = good
        foreign.write_text("{1}")
        assert not is_good()
        foreign.unlink()
        assert not is_good()

    @pytest.mark.parametrize(("name", "value"), [("SOME_TILE", "32"), ("SOME_TILE", None), ("SOME_OTHER", "")])
    def test_entry_is_stale_after_a_change_of_a_read_variable(self, good, monkeypatch, name, value):
        is_good, _, _ = good
        if value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)
        assert not is_good()
