"""Test hostile cache entries: they count as missing, or have the result of an unchanged entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.hostile_entries import NAMES, OUTPUTS, PLACES, REDIRECTED, Project, named, redirect, spoilt

if TYPE_CHECKING:
    from support.hostile_entries import Raw

ENTRIES = [*(("build", place) for place in PLACES), ("fallback", "folder")]
"""The kinds of entries, and the places of each kind."""


def shorten(name: str) -> str:
    return ascii(name)[:40]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("hostile"))


@pytest.mark.parametrize(("kind", "place"), ENTRIES)
def test_unchanged_entries_are_used(project: Project, kind: str, place: str) -> None:
    assert getattr(project, f"read_{kind}")(place, lambda _: None) == ("used", ())


@pytest.mark.parametrize(
    ("name", "kind", "place"),
    [(name, *entry) for entry in ENTRIES for name in (NAMES if entry[1] == "folder" else NAMES[::8])],
    ids=shorten,
)
def test_an_entry_with_another_name_counts_as_missing(project: Project, kind: str, name: str, place: str) -> None:
    add = {named(name, project.outside): b"planted"}
    assert getattr(project, f"read_{kind}")(place, lambda raw: raw.contents.update(add)) == ("missing", ())


@pytest.mark.parametrize("attribute", REDIRECTED)
@pytest.mark.parametrize(
    ("name", "place"),
    [(name, place) for place in PLACES for name in (OUTPUTS if place == "folder" else OUTPUTS[::8])],
    ids=shorten,
)
def test_a_cached_build_writes_and_reads_only_planned_files(
    project: Project, name: str, place: str, attribute: str
) -> None:
    def change(raw: Raw) -> None:
        redirect(raw, attribute, named(name, project.outside))

    assert project.read_build(place, change) == ("missing", ())


@pytest.mark.parametrize(("kind", "place"), ENTRIES)
def test_hostile_entries_write_and_run_nothing(project: Project, kind: str, place: str) -> None:
    """A short part of `bench/hostile_entries.py`."""
    for seed in range(10):
        outcome = getattr(project, f"read_{kind}")(place, spoilt(seed, project.outside, kind, place))
        assert outcome.faults == (), f"seed {seed}"
