"""The division of a build's units among shards."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from aotcuda.builder import plan
from aotcuda.builder.config import parser
from aotcuda.builder.worker import kernel_groups, shards
from aotcuda.builder.worker.job import Job


def job(kernels: dict[str, int], costs: dict[str, float] | None = None) -> Job:
    """Return the job of modules with so many kernels."""
    table = {
        "arch": ["sm_80", "sm_90"],
        "modules": {
            f"pkg.{name}": {
                "source": f"pkg._{name}",
                "kernels": {f"{name}{number}": "void(float32[::1])" for number in range(count)},
            }
            for name, count in kernels.items()
        },
    }
    plans = plan.make(parser.parse(table, environ={}))
    return Job(root="/", import_roots=(), arch_key="", plans=plans, names={}, jobs=1, costs=costs or {})


def divided(whole: Job, count: int, *, in_groups: bool = True) -> list[set[str]]:
    functions = {unit: SimpleNamespace(python=divided) for item in whole.plans for unit in item.units}
    parts = [
        shards.part_of(replace(whole, shard=(index, count)), functions, in_groups=in_groups)
        for index in range(1, count + 1)
    ]
    return [{unit.symbol for unit in part} for part in parts]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("in_groups", [True, False])
def test_each_unit_is_in_one_shard_and_groups_stay_together(count: int, in_groups: bool) -> None:
    whole = job({"a": 40, "b": 3})
    found = divided(whole, count, in_groups=in_groups)
    symbols = [unit.symbol for item in whole.plans for unit in item.units]
    assert sorted(symbol for part in found for symbol in part) == sorted(symbols)
    for group in kernel_groups.grouped([f"a{number}" for number in range(40)]) if in_groups else ():
        assert sum(not part.isdisjoint(group) for part in found) == 1


def test_shards_have_equal_numbers_of_equal_kernels() -> None:
    sizes = [len(part) for part in divided(job({"a": 400}), 8)]
    assert max(sizes) - min(sizes) <= kernel_groups.MOST


def test_small_modules_stay_whole() -> None:
    found = divided(job({f"m{number}x": 5 for number in range(20)}), 2)
    for number in range(20):
        assert sum(any(symbol.startswith(f"m{number}x") for symbol in part) for part in found) == 1


def test_recorded_seconds_balance_shards() -> None:
    costs = {f"pkg.a.a{number}": 100.0 if number == 39 else 1.0 for number in range(40)}
    found = divided(job({"a": 40}, costs), 2)
    (slow,) = (part for part in found if "a39" in part)
    assert len(slow) <= kernel_groups.MOST
