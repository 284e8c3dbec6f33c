"""Test the comparison of an exported cache with the Triton that is installed."""

from __future__ import annotations

import hashlib
import json

import pytest

pytest.importorskip("triton", reason="Triton is not installed (extra triton)")

from importlib import metadata

from aotcuda.errors import ConfigError
from aotcuda.tools.export import check, private_parts
from aotcuda.tools.export.worker import environment

FILES = {"axpy.cubin": "code", "axpy.json": "{}", "axpy.ptx": "text", "axpy.ttir": "more"}
PYTEST = metadata.version("pytest")


@pytest.fixture
def cache(tmp_path):
    """Make a folder with one entry that fits this environment; return it with a function that describes it."""
    entry = tmp_path / "AAA"
    entry.mkdir()
    for name, text in FILES.items():
        (entry / name).write_text(text)
    paths = {name: str(entry / name) for name in FILES}
    (entry / "__grp__axpy.json").write_text(json.dumps({"child_paths": paths}))
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in entry.iterdir()}
    facts = {"project": "pkg", "kernels": [1, 2], "entries": {"AAA": files}, "packages": {"pytest": PYTEST}}
    facts |= {"ptxas": {"9.0": private_parts.ptxas(90)}, "libcuda": [], **environment()}

    def describe(**changes):
        export = {**facts, **changes}
        content = {"format": "aotcuda triton cache", "version": 1, "exports": [export]}
        (tmp_path / "aotcuda-export.json").write_text(json.dumps(content))
        return check.compare(tmp_path)

    return entry, describe


def problems(found):
    (export,) = found["exports"]
    return export["problems"]


def test_an_export_of_this_environment_fits(cache):
    entry, describe = cache
    found = describe()
    assert found == {"cache": str(entry.parent), "exports": [{"project": "pkg", "kernels": 2, "problems": []}]}
    assert check.render(found) == "pkg, 2 variants: Triton reads them here"
    assert check.problem(found) is None


HERE = environment()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"triton": "3.1.0"}, f"it was made for Triton 3.1.0, and this is {HERE['triton']}"),
        ({"triton": "3.1.0", "triton_key": "x"}, f"it was made for Triton 3.1.0, and this is {HERE['triton']}"),
        ({"triton_key": "x"}, f"it was made for the digest of Triton's files x, and this is {HERE['triton_key']}"),
        ({"python": "3.1"}, f"it was made for Python 3.1, and this is {HERE['python']}"),
        ({"platform": "Plan 9"}, f"it was made for the platform Plan 9, and this is {HERE['platform']}"),
        ({"variables": {**HERE["variables"], "A": "1"}}, "it was made with A=1, and here is A unset"),
        ({"packages": {"pytest": "1.0"}}, f"it was made from pytest 1.0, and {PYTEST} is installed"),
        ({"packages": {"no-such-package": "1.0"}}, "it was made from no-such-package 1.0, and none is installed"),
    ],
)
def test_each_difference_has_a_line(cache, changes, expected):
    found = cache[1](**changes)
    assert problems(found) == [expected]
    assert check.render(found) == f"pkg, 2 variants: {expected}"
    assert "Triton would compile kernels of pkg here" in check.problem(found)


def test_assemblers_are_named_by_the_last_line_of_their_text(cache):
    last = private_parts.ptxas(90).splitlines()[-1]
    found = cache[1](ptxas={"9.0": "first line\nBuild 1\n"})
    assert problems(found) == [f"for 9.0 it was made by Build 1, and Triton has {last} here"]


def test_a_variable_of_this_environment_counts(cache, monkeypatch):
    monkeypatch.setattr("aotcuda.tools.export.worker.environment", lambda: {**HERE, "variables": {"A": "1", "B": "2"}})
    assert problems(cache[1](variables={"B": "2"})) == ["it was made with A unset, and here is A=1"]


@pytest.mark.parametrize(
    ("folders", "here", "release", "is_missing"),
    [
        ([["/lib"]], ["/opt"], "3.7.0", True),
        ([["/lib"]], ["/opt"], "3.10.0", True),
        ([["/lib"]], ["/opt"], "3.6.0", False),
        ([["/lib"], ["/opt"]], ["/opt"], "3.7.0", False),
        ([["/lib"]], [], "3.7.0", False),
        ([], ["/opt"], "3.7.0", False),
    ],
)
def test_releases_after_3_6_need_a_module_for_the_folders_of_the_driver(
    cache, monkeypatch, folders, here, release, is_missing
):
    from triton.backends.nvidia import driver

    monkeypatch.setattr(driver, "libcuda_dirs", lambda: here)
    facts = {**HERE, "triton": release}
    monkeypatch.setattr("aotcuda.tools.export.worker.environment", lambda: facts)
    line = "it has no module of C for the driver in /opt; set TRITON_LIBCUDA_PATH in both places"
    assert problems(cache[1](libcuda=folders, triton=release)) == [line] * is_missing


def test_damaged_entries_are_named_up_to_three(cache):
    entry, describe = cache
    describe()
    (entry / "axpy.ptx").unlink()
    (entry / "axpy.json").write_text("{ }")
    assert sorted(problems(check.compare(entry.parent))) == ["AAA/axpy.json was changed", "AAA/axpy.ptx is missing"]
    for path in entry.iterdir():
        path.unlink()
    *three, last = problems(check.compare(entry.parent))
    assert (len(three), last) == (3, "2 other files are missing or changed")


def test_a_folder_that_moved_is_named(cache):
    entry, describe = cache
    describe()
    moved = entry.parent / "moved"
    moved.mkdir()
    entry.rename(moved / "AAA")
    (entry.parent / "aotcuda-export.json").rename(moved / "aotcuda-export.json")
    assert problems(check.compare(moved)) == [
        f"Triton looks for its files in {entry.parent}; export with --at {moved}, or move the folder there"
    ]


def test_a_folder_without_an_export_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"has no aotcuda-export\.json; name a folder"):
        check.compare(tmp_path)
