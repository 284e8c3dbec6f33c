"""Entries of caches that were made to break out: they count as missing, or give what an honest entry gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aotcuda.builder.build_cache import serialization
from support.hostile_entries import NAMES, OUTPUTS, PLACES, Project, named, spoilt

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.hostile_entries import Raw


WAYS = [*((kind, place) for kind in ("build", "value") for place in PLACES), ("fallback", "folder")]
"""The kinds of entries, and where each may lie."""


def short(name: str) -> str:
    return ascii(name)[:40]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("hostile"))


def added(name: str) -> Callable[[Raw], None]:
    return lambda raw: raw.contents.update({name: b"planted"})


@pytest.mark.parametrize(("kind", "place"), WAYS)
def test_honest_entries_are_taken(project: Project, kind: str, place: str) -> None:
    assert getattr(project, f"read_{kind}")(place, lambda _: None) == ("taken", ())


@pytest.mark.parametrize(
    ("name", "kind", "place"),
    [(name, *way) for way in WAYS for name in (NAMES if way[1] == "folder" else NAMES[::8])],
    ids=short,
)
def test_an_entry_with_another_name_counts_as_missing(project: Project, kind: str, name: str, place: str) -> None:
    outcome = getattr(project, f"read_{kind}")(place, added(named(name, project.outside)))
    assert outcome == ("missing", ())


@pytest.mark.parametrize("content", ["code", "manifest"])
@pytest.mark.parametrize(
    ("name", "place"),
    [(name, place) for place in PLACES for name in (OUTPUTS if place == "folder" else OUTPUTS[::8])],
    ids=short,
)
def test_a_cached_build_writes_only_what_the_plan_makes(project: Project, name: str, content: str, place: str) -> None:
    def redirected(raw: Raw) -> None:
        reads, variables, built = serialization.decode(raw.contents["value"])
        files = built.files
        whole = files["pkg/k.aotcuda/manifest.json"]
        files[named(name, project.outside)] = b"import planted\n" if content == "code" else whole
        raw.contents["value"] = serialization.encode((reads, variables, built))

    assert project.read_build(place, redirected) == ("missing", ())


@pytest.mark.parametrize("name", ["pkg/k.py", "pkg/k.pyi", "pkg/k.aotcuda/manifest.json", "pkg/k.aotcuda/pkg_k.h"])
def test_a_generated_file_with_other_text_counts_as_missing(project: Project, name: str) -> None:
    def changed(raw: Raw) -> None:
        reads, variables, built = serialization.decode(raw.contents["value"])
        files = built.files
        files[name] += b"\nimport planted\n"
        raw.contents["value"] = serialization.encode((reads, variables, built))

    assert project.read_build("folder", changed) == ("missing", ())


@pytest.mark.parametrize(("kind", "place"), WAYS)
def test_hostile_entries_break_out_of_nothing(project: Project, kind: str, place: str) -> None:
    """A short part of `bench/hostile_entries.py`."""
    for seed in range(10):
        outcome = getattr(project, f"read_{kind}")(place, spoilt(seed, project.outside, kind, place))
        assert outcome.faults == (), f"seed {seed}"
