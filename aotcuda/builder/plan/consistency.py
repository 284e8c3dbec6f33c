"""Refuse sources that differ between GPUs in a property that a module has only once.

Sources that query the GPU are imported once for each target, and every toolkit of a build imports them again.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aotcuda.arch import Target
    from aotcuda.builder.frontends.protocol import Unit

_SHARED = {
    "signature": "signature",
    "parameters": "parameters",
    "parameter_block.layout": "parameters",
    "launch.cooperative": "cooperative launch",
    "launch.launch_bounds": "launch bounds",
    "launch.block": "required block",
    "launch.carveout": "shared-memory carveout",
    "result": "result",
}
"""Attributes of a compiled unit that a manifest has once for all targets, with their names in messages."""


class Import(NamedTuple):
    """One import of the sources."""

    target: Target
    units: frozenset[Unit]
    compiled: Mapping[tuple[Unit, Target], Any]


def check(imports: Iterable[Import]) -> None:
    """Refuse sources whose imports for different targets give different signatures or properties.

    A toolkit may build functions only, and for more targets than kernels. So kernels are compared with kernels and
    functions with functions, each as compiled for its first target.
    """
    first_units: dict[str, tuple[Target, set[Unit]]] = {}  # by kind
    first_results: dict[Unit, tuple[Target, Any]] = {}
    for item in imports:
        for kind in sorted({unit.kind for unit in item.units}):
            units = {unit for unit in item.units if unit.kind == kind}
            target, expected = first_units.setdefault(kind, (item.target, units))
            if units != expected:
                unit = min(units ^ expected, key=lambda unit: unit.key)
                message = (
                    f"{unit.key}: {unit.origin} has other signatures when it is imported for {item.target} than for "
                    f"{target}; write them in the table"
                )
                raise CompileError(message)
        results: dict[Unit, tuple[Target, Any]] = {}
        for (unit, target), result in item.compiled.items():
            results.setdefault(unit, (target, result))
        for unit, result in results.items():
            _check(unit, first_results.setdefault(unit, result), result)


def _check(unit: Unit, expected: tuple[Target, Any], result: tuple[Target, Any]) -> None:
    for name, noun in _SHARED.items():
        value, other = (
            reduce(lambda part, one: getattr(part, one, None), name.split("."), compiled)
            for _, compiled in (expected, result)
        )
        if value != other:
            message = (
                f"{unit.key}: {unit.origin} has another {noun} when it is imported for {result[0]} ({other}) than for "
                f"{expected[0]} ({value}), and a module has one for all GPUs; make them the same"
            )
            raise CompileError(message)
