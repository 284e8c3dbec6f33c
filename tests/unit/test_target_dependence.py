"""Test how a compilation reads its target's compute capability, and which targets share its result."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda.builder.frontends import gpu_queries
from aotcuda.builder.frontends.numba import gpu, target_dependence
from aotcuda.builder.frontends.numba.target_dependence import Capability

if TYPE_CHECKING:
    from collections.abc import Callable

TARGETS = [(7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0)]


def served(ask: Callable[[Any], object], first: tuple[int, int] = (8, 0)) -> list[tuple[int, int]]:
    """Return the targets that the code for `first` serves if its compilation calls `ask` with the capability."""
    with target_dependence.watching(first) as watch:
        ask(Capability(first))
    return [target for target in TARGETS if watch.serves(target)]


def test_compilation_without_reads_serves_all_targets() -> None:
    assert served(lambda _: None) == TARGETS
    assert served(lambda capability: (capability, [capability], len(capability), bool(capability))) == TARGETS


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (lambda it: it >= (8, 0), TARGETS[1:]),
        (lambda it: it < (9, 0), TARGETS[:3]),
        (lambda it: it <= (8, 6), TARGETS[:3]),
        (lambda it: sorted([(9, 0), it]), TARGETS[:3]),
        (lambda it: it == (8, 0), TARGETS[1:2]),
        (lambda it: it != (8, 0), TARGETS[1:2]),
        (lambda it: it is None or it == None, TARGETS),  # noqa: E711 (as libraries compare)
        (lambda it: max(it, (8, 6)), TARGETS[:2]),
    ],
)
def test_comparisons_distinguish_targets_by_their_result(
    ask: Callable[[Any], object], expected: list[tuple[int, int]]
) -> None:
    assert served(ask) == expected


@pytest.mark.parametrize(
    "read",
    [
        lambda it: it[0],
        list,
        lambda it: 8 in it,
        hash,
        lambda it: f"{it}",
        lambda it: it + (1,),  # noqa: RUF005 (another method)
        lambda it: 2 * it,
        lambda it: it.index(8),
        pickle.dumps,
    ],
)
def test_other_reads_of_the_capability_distinguish_all_targets(read: Callable[[Any], object]) -> None:
    assert served(read) == [(8, 0)]


def test_read_target_names_distinguish_targets_of_one_capability() -> None:
    with target_dependence.watching((9, 0), "sm_90") as watch:
        assert watch.serves((9, 0), "sm_90a")
        assert watch.serves((8, 0), "sm_80")
        watch.name_is_read = True
    assert watch.serves((9, 0), "sm_90")
    assert not watch.serves((9, 0), "sm_90a")
    assert not watch.serves((8, 0), "sm_80")


def test_reads_outside_of_compilations_are_not_recorded() -> None:
    assert target_dependence.current_watch() is None
    assert Capability((8, 0)) >= (7, 5)


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("compute_capability", [(8, 0)]),
        ("name", [(8, 0)]),
        ("COMPUTE_CAPABILITY_MAJOR", [(8, 0), (8, 6)]),
        ("supports_bfloat16", TARGETS[1:]),
        ("supports_fp8", [(7, 5), (8, 0), (8, 6)]),
        ("MAX_THREADS_PER_MULTIPROCESSOR", [(8, 0), (9, 0), (10, 0)]),
        ("WARP_SIZE", TARGETS),
    ],
)
def test_properties_of_the_gpu_distinguish_targets(attribute: str, expected: list[tuple[int, int]]) -> None:
    device = gpu._Device(gpu_queries.gpu)
    assert served(lambda _: getattr(device, attribute)) == expected
