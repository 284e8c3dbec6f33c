"""Test that a release is refused if its files differ between machines, or its version or change list is wrong."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def release(monkeypatch):
    """Load tools/release.py."""
    monkeypatch.syspath_prepend(str(TOOLS))
    spec = importlib.util.spec_from_file_location("release", TOOLS / "release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("environments", None)


@pytest.fixture
def built(tmp_path):
    """Return a folder with the files of two machines."""
    for machine, platform in (("one", "x86_64"), ("other", "aarch64")):
        (tmp_path / machine).mkdir()
        names = ("1.2.tar.gz", "1.2-py3-none-any.whl", f"1.2-cp311-abi3-manylinux_2_17_{platform}.whl")
        for name in names:
            (tmp_path / machine / f"aotcuda-{name}").write_text(name)
    return tmp_path


def test_files_of_all_machines_are_gathered_once(release, built):
    files = release.gather(built)
    assert sorted(files) == [
        "aotcuda-1.2-cp311-abi3-manylinux_2_17_aarch64.whl",
        "aotcuda-1.2-cp311-abi3-manylinux_2_17_x86_64.whl",
        "aotcuda-1.2-py3-none-any.whl",
        "aotcuda-1.2.tar.gz",
    ]
    release.check_version("v1.2", files, "# Changes\n\n## 1.2 (2026-12-01)\n")


def test_files_that_differ_between_machines_are_no_release(release, built):
    (built / "other" / "aotcuda-1.2.tar.gz").write_text("another one")
    with pytest.raises(SystemExit, match=r"aotcuda-1.2.tar.gz differs between one and other: it is not reproducible"):
        release.gather(built)


@pytest.mark.parametrize(
    ("tag", "changelog", "fragments", "problem"),
    [
        ("v1.3", "## 1.3", [], "is not of version 1.3, which the tag v1.3 names"),
        ("v1.2", "## 1.20", [], "CHANGELOG.md has no heading '## 1.2'"),
        ("v1.2", "## 1.2", [Path("changes/12.change.md")], r"12\.change\.md is not in CHANGELOG\.md; run towncrier"),
    ],
)
def test_tag_files_and_changes_have_one_version(release, built, tag, changelog, fragments, problem):
    with pytest.raises(SystemExit, match=problem):
        release.check_version(tag, release.gather(built), changelog, fragments)


def test_notes_of_a_release_are_its_section_of_the_changelog(release):
    changelog = "# Changes\n\n## 1.20 (2027-01-01)\n\n- new\n\n## 1.2 (2026-12-01)\n\n- one\n- two\n\n## 1.1\n\n- old\n"
    assert release.notes(changelog, "v1.2") == "- one\n- two"
    assert release.notes(changelog, "v1.1") == "- old"
    with pytest.raises(SystemExit, match=r"CHANGELOG.md has no heading '## 1.3'"):
        release.notes(changelog, "v1.3")


ADDRESS = '[project]\nname = "aotcuda"\n[project.urls]\nSource = "https://example.org/aotcuda"\n'


@pytest.mark.parametrize(
    ("project", "readme", "problem"),
    [
        ("[project]\n", "", "project.urls has no Source"),
        (ADDRESS.replace("https://example.org/aotcuda", ""), "", "project.urls has no Source"),
        (ADDRESS, "[one](https://example.org) [two](docs/why.md)", "the link docs/why.md is relative"),
        (ADDRESS, "![chart](docs/pictures/a.svg)", "the link docs/pictures/a.svg is relative"),
    ],
)
def test_release_needs_the_address_of_the_repository(release, project, readme, problem):
    release.check_address(ADDRESS, "[one](https://example.org)")
    with pytest.raises(SystemExit, match=problem):
        release.check_address(project, readme)
