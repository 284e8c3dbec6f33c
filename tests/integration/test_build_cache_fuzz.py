"""A short run of `bench/build_cache_fuzz.py`: projects and edits that are made up, built with the cache and without."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from support import cache_fuzz

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def no_other_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AOTCUDA_BUILD_CACHE_ACCESS", raising=False)
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", "0")  # and back again when the test has ended


@pytest.mark.usefixtures("no_other_caches")
@pytest.mark.parametrize(
    ("seed", "front_ends"),
    [(1, [cache_fuzz.NUMBA]), (5, [cache_fuzz.NUMBA, "cuda-cpp"]), (2, ["triton"])],
    ids=["numba-cuda", "cuda-cpp", "triton"],
)
def test_builds_with_the_cache_give_what_builds_without_it_give(
    seed: int, front_ends: list[str], tmp_path: Path
) -> None:
    if "triton" in front_ends:
        pytest.importorskip("triton", reason="Triton is not installed (extra triton)")
    rng = random.Random(seed)
    project = cache_fuzz.drawn(rng, 5, front_ends=front_ends)
    outcome = cache_fuzz.hold(project, tmp_path, (project.edits(rng, 2) for _ in range(2)))
    assert (outcome.refused, outcome.differences, outcome.edits) == ("", [], 2)
    assert outcome.told


def test_every_way_is_about_something() -> None:
    """Each way has a number to edit, and no two of them the same."""
    for name, project in cache_fuzz.each(cache_fuzz.HEADS):
        numbers = [number for _, number in project.numbers]
        assert len(numbers) == len({*numbers}) > 0, name
        texts = {**project.files, **{f"{key}=": value for key, value in project.variables.items()}}
        assert all(str(number) in texts[file] for file, number in project.numbers), name
