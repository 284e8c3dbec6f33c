"""Kernels whose blocks need more shared memory than their targets have: the build warns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from aotcuda.builder import shared_memory

KIB = 1024


def unit_and_kernel(key: str, **launches: int) -> tuple[Any, Any]:
    found = tuple((arch, {"threads": 128, "shared": shared}) for arch, shared in launches.items())
    return SimpleNamespace(key=key), SimpleNamespace(launches=found)


def test_a_kernel_that_fits_is_not_warned_of() -> None:
    given = {"sm_75": 64, "sm_80": 163, "sm_86": 99, "sm_90a": 227, "compute_80": 163, "sm_120a": 99, "sm_199": 999}
    assert shared_memory.warnings([unit_and_kernel("k", **{name: at * KIB for name, at in given.items()})]) == []
    assert shared_memory.warnings([unit_and_kernel("k")]) == []


def test_one_that_does_not_has_a_line_for_all_of_its_variants_and_targets() -> None:
    kernels = [
        unit_and_kernel("one", sm_80=163 * KIB + 1, sm_90a=200 * KIB),
        unit_and_kernel("two", sm_80=1, sm_120a=100 * KIB),
        unit_and_kernel("two", sm_80=200 * KIB, sm_120a=256 * KIB),
        unit_and_kernel("two", sm_80=1, sm_120a=1),
    ]
    problem = "more shared memory for a block than there is, and cannot be launched there"
    advice = "have smaller tiles or fewer stages"
    both = "262144 bytes for sm_120a, which has 101376, 204800 bytes for sm_80, which has 166912"
    assert shared_memory.warnings(kernels) == [
        f"one: it needs {problem}: 166913 bytes for sm_80, which has 166912; {advice}",
        f"two: 2 of its 3 variants need {problem}: {both}; {advice}",
    ]
