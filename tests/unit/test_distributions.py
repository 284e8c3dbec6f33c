"""Test the search for the installed distribution of a module, in a folder with small distributions."""

from __future__ import annotations

import sys
import sysconfig

import pytest

from aotcuda.common import distributions

STANDARD_LIBRARY = sysconfig.get_path("stdlib")
RECORDS = {
    "single": ["single/__init__.py,,", "single/part.py,sha256=abc,5"],
    "half-a": ["space/a.py,,", "space/both/__init__.py,,"],
    "half-b": ["space/b/__init__.py,,"],
    "bundle": ["bundle/__init__.py,,", "bundle/inner/tool.py,,", "bundle/inner/kit/__init__.py,,"],
}


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install the distributions into a folder; only the standard library is beside it on the path."""
    for name, record in RECORDS.items():
        folder = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "RECORD").write_text("\n".join([*record, f"{folder.name}/RECORD,,"]))
        for line in record:
            path = tmp_path / line.partition(",")[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    caches = (distributions._of_packages, distributions.packages_to_import)
    library = [path for path in sys.path if path.startswith(STANDARD_LIBRARY) and "-packages" not in path]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *library])
    [each.cache_clear() for each in caches]
    yield tmp_path
    [each.cache_clear() for each in caches]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("single", "single"),
        ("single.part", "single"),
        ("single.no_file", "single"),
        ("space.a", "half-a"),
        ("space.both", "half-a"),
        ("space.b", "half-b"),
        ("space.missing", None),
        ("tool", "bundle"),
        ("kit", "bundle"),
        ("inner.tool", "bundle"),
        ("missing", None),
        ("ool", None),
    ],
)
@pytest.mark.usefixtures("installed")
def test_a_module_belongs_to_the_distribution_with_its_file(module, name):
    found = distributions.of_module(module)
    assert (found and found.name) == name


@pytest.mark.parametrize(("path", "name"), [("bundle/inner/tool.py", "bundle"), ("elsewhere/tool.py", None)])
def test_an_imported_module_belongs_to_the_distribution_of_its_own_file(installed, monkeypatch, path, name):
    module = type(sys)("tool")
    module.__file__ = str(installed / path)
    monkeypatch.setitem(sys.modules, "tool", module)
    found = distributions.of_module("tool")
    assert (found and found.name) == name


@pytest.mark.parametrize(
    ("module", "packages"),
    [("single.part", []), ("space.missing", []), ("tool", ["bundle"]), ("kit.more", []), ("missing", [])],
)
@pytest.mark.usefixtures("installed")
def test_a_package_is_imported_first_for_a_module_in_its_folder(module, packages):
    assert distributions.packages_to_import(module) == packages
