"""Builds warn about kernels that need more memory than a GPU has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from aotcuda.builder import code_warnings

MOST = 523_776


def kernel(name: str, *overloads: dict[str, int | None]) -> Any:
    resources = [{target: {"local": local} for target, local in overload.items()} for overload in overloads]
    return {"name": name, "overloads": [{"resources": found} for found in resources]}


def test_too_much_local_memory_gives_one_warning_for_each_kernel() -> None:
    fits = [kernel("k", {"sm_75": MOST, "sm_90a": 0}, {"sm_80": None}), kernel("n")]
    assert code_warnings.local_memory("m", fits) == []
    problem = "more local memory for a thread than the 523776 bytes that GPUs have, and cannot be launched"
    advice = "have smaller local arrays, or arrays in global memory"
    kernels = [
        kernel("one", {"sm_90": MOST + 8, "sm_80": MOST}),
        kernel("two", {"sm_90": MOST + 16, "sm_80": 600_000}, {"sm_90": 700_000, "sm_80": 0}, {"sm_90": 8}),
    ]
    assert code_warnings.local_memory("pkg.m", kernels) == [
        f"pkg.m.one: it needs {problem}: 523784 bytes for sm_90; {advice}",
        f"pkg.m.two: 2 of its 3 signatures need {problem}: 600000 bytes for sm_80, 700000 bytes for sm_90; {advice}",
    ]


KIB = 1024


def unit_and_kernel(key: str, **launches: int) -> tuple[Any, Any]:
    found = tuple((arch, {"threads": 128, "shared": shared}) for arch, shared in launches.items())
    return SimpleNamespace(key=key), SimpleNamespace(launches=found)


def test_too_much_shared_memory_gives_one_warning_for_each_kernel() -> None:
    given = {"sm_75": 64, "sm_80": 163, "sm_86": 99, "sm_90a": 227, "compute_80": 163, "sm_120a": 99, "sm_199": 999}
    fits = unit_and_kernel("k", **{name: at * KIB for name, at in given.items()})
    assert code_warnings.shared_memory([fits]) == []
    assert code_warnings.shared_memory([unit_and_kernel("k")]) == []
    kernels = [
        unit_and_kernel("one", sm_80=163 * KIB + 1, sm_90a=200 * KIB),
        unit_and_kernel("two", sm_80=1, sm_120a=100 * KIB),
        unit_and_kernel("two", sm_80=200 * KIB, sm_120a=256 * KIB),
        unit_and_kernel("two", sm_80=1, sm_120a=1),
    ]
    problem = "more shared memory for a block than there is, and cannot be launched there"
    advice = "have smaller tiles or fewer stages"
    both = "262144 bytes for sm_120a, which has 101376, 204800 bytes for sm_80, which has 166912"
    assert code_warnings.shared_memory(kernels) == [
        f"one: it needs {problem}: 166913 bytes for sm_80, which has 166912; {advice}",
        f"two: 2 of its 3 variants need {problem}: {both}; {advice}",
    ]
