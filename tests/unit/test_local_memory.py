"""Kernels whose threads need more local memory than GPUs have: the build warns."""

from __future__ import annotations

from typing import Any

from aotcuda.builder import local_memory

MOST = 523_776


def kernel(name: str, *overloads: dict[str, int | None]) -> Any:
    resources = [{target: {"local": local} for target, local in overload.items()} for overload in overloads]
    return {"name": name, "overloads": [{"resources": found} for found in resources]}


def test_a_kernel_that_fits_or_whose_stack_nobody_knows_is_not_warned_of() -> None:
    assert local_memory.warnings("m", [kernel("k", {"sm_75": MOST, "sm_90a": 0}, {"sm_80": None}), kernel("n")]) == []


def test_one_that_does_not_has_a_line_for_all_of_its_signatures_and_targets() -> None:
    problem = "more local memory for a thread than the 523776 bytes that GPUs have, and cannot be launched"
    advice = "have smaller local arrays, or arrays in global memory"
    kernels = [
        kernel("one", {"sm_90": MOST + 8, "sm_80": MOST}),
        kernel("two", {"sm_90": MOST + 16, "sm_80": 600_000}, {"sm_90": 700_000, "sm_80": 0}, {"sm_90": 8}),
    ]
    assert local_memory.warnings("pkg.m", kernels) == [
        f"pkg.m.one: it needs {problem}: 523784 bytes for sm_90; {advice}",
        f"pkg.m.two: 2 of its 3 signatures need {problem}: 600000 bytes for sm_80, 700000 bytes for sm_90; {advice}",
    ]
