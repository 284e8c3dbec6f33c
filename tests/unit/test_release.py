"""Test that a release is refused if its files differ between machines, or its version or change list is wrong."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

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


README = "# One\n\n![chart](docs/a.svg) [why](docs/why.md#when-not) [below](#one) [other](https://example.org/x)\n\n```\nk[grid](x)\n```\n\n`k[grid](x)`\n"


@pytest.fixture
def wheel(tmp_path):
    """Return a function that builds the wheel of a project with a repository's address, by the metadata of aotcuda."""

    def build(repository, readme=README):
        root = TOOLS.parent
        (tmp_path / "aotcuda").mkdir()
        (tmp_path / "aotcuda" / "__init__.py").write_text("")
        (tmp_path / "aotcuda" / "version.py").write_text('__version__ = "1.2"\n')
        (tmp_path / "README.md").write_text(readme)
        (tmp_path / "hatch_metadata.py").write_text((root / "hatch_metadata.py").read_text())
        project = tomllib.loads((root / "pyproject.toml").read_text())
        hook = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]
        (tmp_path / "pyproject.toml").write_text(
            f'[project]\nname = "aotcuda"\ndynamic = {project["project"]["dynamic"]}\n'
            '[tool.hatch.version]\npath = "aotcuda/version.py"\n'
            f'[tool.hatch.metadata.hooks.custom]\npath = "{hook["path"]}"\nrepository = "{repository}"\n'
        )
        return next(WheelBuilder(str(tmp_path)).build(directory=str(tmp_path / "dist")))

    return build


def test_wheel_has_the_links_of_the_repository(release, wheel):
    built = Path(wheel("https://example.org/owner/aotcuda/"))
    release.check_address(built)
    with zipfile.ZipFile(built) as archive:
        metadata = archive.read("aotcuda-1.2.dist-info/METADATA").decode()
    base = "https://example.org/owner/aotcuda"
    assert re.findall(r"^Project-URL: (.*)$", metadata, re.MULTILINE) == [
        f"Source, {base}",
        f"Documentation, {base}/tree/HEAD/docs",
        f"Changes, {base}/blob/HEAD/CHANGELOG.md",
        f"Issues, {base}/issues",
    ]
    assert re.findall(r"\]\(([^)]*)\)", metadata) == [
        f"{base}/raw/v1.2/docs/a.svg",
        f"{base}/blob/v1.2/docs/why.md#when-not",
        "#one",
        "https://example.org/x",
        "x",  # twice in code
        "x",
    ]


@pytest.mark.parametrize(
    ("repository", "readme", "problem"),
    [
        ("", README, "has no address of the repository; write it into `repository` in pyproject.toml"),
        ("https://example.org/a", "[a `b[c]`](docs/a.md)", "the link docs/a.md in README.md is relative"),
    ],
)
def test_release_needs_the_address_of_the_repository(release, wheel, repository, readme, problem):
    built = Path(wheel(repository, readme))
    with pytest.raises(SystemExit, match=problem):
        release.check_address(built)


def test_links_of_the_readme_become_absolute(release, wheel):
    release.check_address(Path(wheel("https://example.org/a", (TOOLS.parent / "README.md").read_text())))
