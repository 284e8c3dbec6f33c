"""Test that sources which differ between GPUs in a property that a module has once are refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aotcuda.arch import parse
from aotcuda.builder.frontends.protocol import Unit
from aotcuda.builder.plan import consistency
from aotcuda.builder.plan.consistency import Import
from aotcuda.errors import CompileError

FIRST, SECOND = parse("sm_75"), parse("sm_90")


def unit(name: str, kind: Any = "kernel") -> Unit:
    return Unit(
        key=f"{kind}s.{name}", kind=kind, module="pkg.k", name=name, symbol=name, options=Any, origin="pkg._k:f"
    )  # type: ignore[arg-type]


K, F = unit("k"), unit("f", "function")


def compiled(values: dict[str, object]) -> SimpleNamespace:
    """Return the result of a unit with some attributes: `{"launch.block": 1}` is the attribute `block` of `launch`."""
    result = SimpleNamespace()
    for path, value in values.items():
        group, _, name = path.rpartition(".")
        owner = result.__dict__.setdefault(group, SimpleNamespace()) if group else result
        setattr(owner, name, value)
    return result


def imported(target: Any, *units: Unit, **values: object) -> Import:
    return Import(target, frozenset(units), {(each, target): compiled(values) for each in units})


@pytest.mark.parametrize(
    ("attribute", "noun"),
    [
        ("signature", "signature"),
        ("parameters", "parameters"),
        ("parameter_block.layout", "parameters"),
        ("launch.cooperative", "cooperative launch"),
        ("launch.launch_bounds", "launch bounds"),
        ("launch.block", "required block"),
        ("launch.carveout", "shared-memory carveout"),
        ("result", "result"),
    ],
)
def test_property_of_a_module_must_be_equal_for_all_gpus(attribute: str, noun: str) -> None:
    message = (
        f"^kernels.k: pkg._k:f has another {noun} when it is imported for sm_90 \\(2\\) than for sm_75 \\(1\\), and a "
        "module has one for all GPUs; make them the same$"
    )
    with pytest.raises(CompileError, match=message):
        consistency.check([imported(FIRST, K, **{attribute: 1}), imported(SECOND, K, **{attribute: 2})])
    with pytest.raises(CompileError, match=r"\(2\) than for sm_75 \(None\)"):
        consistency.check([imported(FIRST, K), imported(SECOND, K, **{attribute: 2})])
    consistency.check([imported(FIRST, K, **{attribute: 1}), imported(SECOND, K, **{attribute: 1})])
    consistency.check([imported(FIRST, K, registers=1), imported(SECOND, K, registers=2)])


def test_units_are_compared_by_kind_and_with_the_first_import() -> None:
    consistency.check([imported(FIRST, F), imported(FIRST, K, F), imported(SECOND, K)])
    message = (
        "^kernels.a: pkg._k:f has other signatures when it is imported for sm_90 than for sm_75; write them in the"
    )
    for units in ((K, unit("a")), (unit("b"), K, unit("a")), (unit("a"),)):
        with pytest.raises(CompileError, match=message):
            consistency.check([imported(FIRST, F, K), imported(SECOND, *units)])


def test_unit_of_several_targets_counts_as_compiled_for_the_first() -> None:
    results = {(K, FIRST): compiled({"launch.block": 1}), (K, SECOND): compiled({"launch.block": 2})}
    both = Import(FIRST, frozenset([K]), results)
    consistency.check([both, both, imported(SECOND, K, **{"launch.block": 1})])
    with pytest.raises(CompileError, match=r"sm_90 \(2\) than for sm_75 \(1\)"):
        consistency.check([both, imported(SECOND, K, **{"launch.block": 2})])
