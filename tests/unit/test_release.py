"""Test what stops a release: files of two machines that differ, another version, a change that nobody wrote down."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def tool(monkeypatch):
    """Loads a script of the folder tools."""

    def load(name):
        spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    monkeypatch.syspath_prepend(str(TOOLS))
    yield load
    sys.modules.pop("environments", None)


@pytest.fixture
def release(tool):
    return tool("release")


@pytest.fixture
def built(tmp_path):
    """Return what two machines have made."""
    for machine, platform in (("one", "x86_64"), ("other", "aarch64")):
        (tmp_path / machine).mkdir()
        names = ("1.2.tar.gz", "1.2-py3-none-any.whl", f"1.2-cp311-abi3-manylinux_2_17_{platform}.whl")
        for name in names:
            (tmp_path / machine / f"aotcuda-{name}").write_text(name)
    return tmp_path


def test_files_of_all_machines_are_gathered_once(release, built):
    found = release.gathered(built)
    assert sorted(found) == [
        "aotcuda-1.2-cp311-abi3-manylinux_2_17_aarch64.whl",
        "aotcuda-1.2-cp311-abi3-manylinux_2_17_x86_64.whl",
        "aotcuda-1.2-py3-none-any.whl",
        "aotcuda-1.2.tar.gz",
    ]
    release.check_version("v1.2", found, "# Changes\n\n## 1.2 (2026-12-01)\n")


def test_files_that_differ_between_machines_are_no_release(release, built):
    (built / "other" / "aotcuda-1.2.tar.gz").write_text("another one")
    with pytest.raises(SystemExit, match=r"aotcuda-1.2.tar.gz differs between one and other: it is not reproducible"):
        release.gathered(built)


@pytest.mark.parametrize(
    ("tag", "changelog", "problem"),
    [
        ("v1.3", "## 1.3", "is not of version 1.3, which the tag v1.3 names"),
        ("v1.2", "## Unreleased", "CHANGELOG.md has no heading '## 1.2'"),
        ("v1.2", "## 1.20", "CHANGELOG.md has no heading '## 1.2'"),
    ],
)
def test_tag_files_and_changes_are_of_one_version(release, built, tag, changelog, problem):
    with pytest.raises(SystemExit, match=problem):
        release.check_version(tag, release.gathered(built), changelog)


def test_a_change_that_is_not_in_the_list_yet_is_named(release, built):
    left = [built / "changes" / "12.change.md"]
    with pytest.raises(SystemExit, match=r"changes/12\.change\.md is not in CHANGELOG\.md; run towncrier build"):
        release.check_version("v1.2", release.gathered(built), "## 1.2", left)
