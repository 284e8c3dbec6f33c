"""Test hostile cache entries: they count as missing, or have the result of an unchanged entry."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from slow.hostile_entries import NAMES, OUTPUTS, PLACES, REDIRECTED, Project, named, redirect, spoilt

if TYPE_CHECKING:
    from slow.conftest import Extent
    from slow.hostile_entries import Raw

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


FAULTS = {"written": "files written outside", "code ran": "code run", "traceback": "tracebacks"}


def test_hostile_entries_write_and_run_nothing(project: Project, extent: Extent) -> None:
    counts = {f"{kind}, {place}": Counter[str]() for kind, place in ENTRIES}
    faults = Counter(dict.fromkeys(FAULTS.values(), 0))
    problems = []
    for seed in range(extent.part(30, 1000)):
        kind, place = ENTRIES[seed % len(ENTRIES)]
        outcome = getattr(project, f"read_{kind}")(place, spoilt(seed, project.outside, kind, place))
        counts[f"{kind}, {place}"].update(["entries", outcome.result])
        for text in outcome.faults:
            faults[FAULTS.get(text.partition(":")[0], text)] += 1
            problems.append(f"entry {seed} ({kind}, {place}): {text}")
    total = sum(counts.values(), Counter[str]())
    extent.write("hostile_entries", entries=total, ways=counts, faults=faults, problems=problems)
    assert problems == []
