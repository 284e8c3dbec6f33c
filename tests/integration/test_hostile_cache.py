"""Test that a hostile cache entry counts as missing, or gives the value of a valid one."""

from __future__ import annotations

import pytest

from support.hostile_entries import NAMES, OUTPUTS, WAYS, Project, insert_outside, random_change


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("hostile"))


@pytest.mark.parametrize(("kind", "place"), WAYS)
def test_valid_entry_is_used(project: Project, kind: str, place: str) -> None:
    assert project.read(kind, place, lambda _: None) == ("used", ())


@pytest.mark.parametrize(("kind", "place"), WAYS)
def test_entry_with_an_unknown_file_counts_as_missing(project: Project, kind: str, place: str) -> None:
    for name in NAMES if (kind, place) in WAYS[:2] else NAMES[::4]:
        added = {insert_outside(name, project.outside): b"planted"}
        outcome = project.read(kind, place, lambda entry, added=added: entry.contents.update(added))
        assert outcome == ("missing", ()), ascii(name)


@pytest.mark.parametrize("content", ["code", "manifest"])
def test_cached_build_with_a_file_outside_the_plan_counts_as_missing(project: Project, content: str) -> None:
    data = b"import planted\n" if content == "code" else project.files["pkg/k.aotcuda/manifest.json"]
    for name in OUTPUTS:
        added = {insert_outside(name, project.outside): data}
        outcome = project.read("build", "folder", lambda entry, added=added: entry.change_files(added))
        assert outcome == ("missing", ()), ascii(name)


@pytest.mark.parametrize("name", ["pkg/k.py", "pkg/k.pyi", "pkg/k.aotcuda/manifest.json", "pkg/k.aotcuda/pkg_k.h"])
def test_cached_build_with_other_text_counts_as_missing(project: Project, name: str) -> None:
    changed = {name: project.files[name] + b"\nimport planted\n"}
    assert project.read("build", "folder", lambda entry: entry.change_files(changed)) == ("missing", ())


@pytest.mark.parametrize(("kind", "place"), WAYS)
def test_hostile_entries_write_and_run_nothing(project: Project, kind: str, place: str) -> None:
    """Read a part of the entries of `bench/hostile_entries.py`."""
    for seed in range(15):
        outcome = project.read(kind, place, random_change(seed, project.outside, kind, place))
        assert outcome.faults == (), f"seed {seed}"
