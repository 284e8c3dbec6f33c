"""Test the folder that `aotcuda export triton-cache` fills: its entries, their description and the README."""

from __future__ import annotations

import hashlib
import json

import pytest

from aotcuda.errors import ConfigError
from aotcuda.tools.export import folder

EXPORT = {
    "project": "pkg",
    "triton": "3.9.0",
    "python": "3.11",
    "platform": "Linux x86_64",
    "variables": {},
    "packages": {},
    "has_launchers": False,
    "libcuda": [],
    "kernels": [{"name": "axpy", "capability": "9.0"}],
    "entries": {"AAA": {"axpy.cubin": "1"}},
    "ptxas": {"9.0": "ptxas 13.0"},
    "timings": [],
    "left_out": [],
}
OTHER = {
    **EXPORT,
    "kernels": [{"name": "axpy", "capability": "10.0"}],
    "entries": {"BBB": {"axpy.cubin": "2"}},
    "ptxas": {"10.0": "ptxas 13.0"},
    "timings": [{"gpu": "H200", "kernel": "pkg.axpy"}],
    "left_out": ["pkg.other"],
}


def cache(path, entries):
    """Make a cache of Triton with these files in each entry, and the group that makes it complete."""
    for entry, files in entries.items():
        (path / entry).mkdir(parents=True)
        for name, text in files.items():
            (path / entry / name).write_text(text)
        paths = {name: str(path / entry / name) for name in files}
        (path / entry / "__grp__axpy.json").write_text(json.dumps({"child_paths": paths}))
    return path


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_entries_have_digests_and_the_paths_of_the_final_folder(tmp_path):
    source, out = (
        cache(tmp_path / "cache", {"AAA": {"axpy.cubin": "code"}, "BBB": {"axpy.cubin": "more"}}),
        tmp_path / "out",
    )
    (source / "a file").touch()
    entries = folder.add_entries(source, out, "/srv/cache")
    group = out / "AAA" / "__grp__axpy.json"
    assert json.loads(group.read_text()) == {"child_paths": {"axpy.cubin": "/srv/cache/AAA/axpy.cubin"}}
    assert (out / "AAA" / "axpy.cubin").read_text() == "code"
    assert sorted(path.name for path in out.iterdir()) == sorted(entries) == ["AAA", "BBB"]
    assert entries["AAA"] == {name: digest(out / "AAA" / name) for name in ("axpy.cubin", "__grp__axpy.json")}
    assert folder.places(group) == {"/srv/cache"}
    assert folder.places(out / "AAA" / "axpy.cubin") == set()


@pytest.mark.parametrize(
    ("damage", "is_kept"),
    [
        (lambda entry: None, True),
        (lambda entry: (entry / "__grp__axpy.json").write_text("[]"), False),
        (lambda entry: (entry / "__grp__axpy.json").write_text('{"child_paths": {"axpy.cubin": "/elsewhere"}}'), False),
        (lambda entry: (entry / "axpy.cubin").unlink(), False),
    ],
    ids=["complete", "damaged group", "group of another folder", "missing file"],
)
def test_a_complete_entry_stays_as_it_is(tmp_path, damage, is_kept):
    out = tmp_path / "out"
    folder.add_entries(cache(tmp_path / "one", {"AAA": {"axpy.cubin": "old"}}), out, "/srv/cache")
    before = (out / "AAA" / "__grp__axpy.json").read_text()
    damage(out / "AAA")
    folder.add_entries(cache(tmp_path / "two", {"AAA": {"axpy.cubin": "new", "axpy.ptx": "new"}}), out, "/srv/cache")
    assert (out / "AAA" / "axpy.ptx").exists() is not is_kept
    assert ((out / "AAA" / "__grp__axpy.json").read_text() == before) is is_kept
    assert folder.places(out / "AAA" / "__grp__axpy.json") == {"/srv/cache"}


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    with pytest.raises(OSError, match="folder"):
        folder.write(tmp_path / "folder", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    folder.write(tmp_path / "folder" / "file", b"new")
    assert [path.read_bytes() for path in (tmp_path / "folder").iterdir()] == [b"new"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no description of an export"),
        ("[]", "is no description of an export"),
        ('{"format": "other", "exports": [], "version": 1}', "is no description of an export"),
        ('{"format": "aotcuda triton cache", "exports": [{"entries": []}], "version": 1}', "is no description"),
        ('{"format": "aotcuda triton cache", "exports": [], "version": 2}', "has version 2, and this aotcuda reads"),
    ],
)
def test_files_that_are_no_description_are_refused(tmp_path, text, message):
    (tmp_path / "aotcuda-export.json").write_text(text)
    with pytest.raises(ConfigError, match=message):
        folder.read(tmp_path)


def described(path, *exports):
    """Describe exports in turn; return the content of the description, and the README."""
    assert all(folder.describe(path, "/srv/cache", export) for export in exports)
    return json.loads((path / "aotcuda-export.json").read_text())["exports"], (path / "README.md").read_text()


def test_a_second_export_of_the_same_environment_extends_the_first(tmp_path):
    assert folder.read(tmp_path) is None
    (merged,), text = described(tmp_path, EXPORT, OTHER, EXPORT)
    assert merged["entries"] == EXPORT["entries"] | OTHER["entries"]
    assert merged["ptxas"] == EXPORT["ptxas"] | OTHER["ptxas"]
    assert merged["timings"] == OTHER["timings"]
    assert merged["left_out"] == EXPORT["left_out"]
    assert "2 variants for compute capability 9.0, 10.0" in text
    assert "export TRITON_CACHE_DIR=/srv/cache\nexport TRITON_CACHE_AUTOTUNING=1" in text
    assert "- timings of H200: pkg.axpy\n" in text
    assert folder.read(tmp_path)["exports"] == [merged]


@pytest.mark.parametrize(
    "change", [{"project": "other"}, {"triton": "3.8.0"}, {"variables": {"TRITON_F32_DEFAULT": "x"}}]
)
def test_exports_of_other_environments_are_kept_apart(tmp_path, change):
    exports, text = described(tmp_path, EXPORT, {**EXPORT, **change})
    assert len(exports) == text.count("\n## ") == 2
    assert "AUTOTUNING" not in text
    assert all(f"{value}" in text for value in change.values() if isinstance(value, str))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({}, "- packages: none that is installed"),
        ({}, "- variables of Triton: none"),
        ({}, "- modules of C: Triton compiles them at the first launch"),
        ({"has_launchers": True}, "- modules of C: compiled"),
        ({"packages": {"torch": "2.9", "pkg": "1"}}, "- packages: torch 2.9, pkg 1"),
        ({"variables": {"A": "1", "B": "2"}}, "- variables of Triton: A=1, B=2"),
        ({"kernels": []}, "- 0 variants for compute capability none"),
        ({"libcuda": [["/usr/lib", "/opt"], ["/lib"]]}, "- folders of the driver: /usr/lib /opt, /lib; for others"),
    ],
)
def test_the_readme_tells_what_an_export_depends_on(tmp_path, change, line):
    _, text = described(tmp_path, {**EXPORT, **change})
    assert line in text
    assert ("folders of the driver" in text) is ("libcuda" in change)


def test_a_readme_of_the_user_stays(tmp_path):
    (tmp_path / "README.md").write_text("mine")
    assert not folder.describe(tmp_path, "/srv/cache", EXPORT)
    assert (tmp_path / "README.md").read_text() == "mine"
    assert len(folder.read(tmp_path)["exports"]) == 1
