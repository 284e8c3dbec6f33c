"""Refuse sources that differ between GPUs in a property that a module has only once.

Sources that query the GPU are imported once for each target, and every toolkit of a build imports them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aotcuda.arch import Target
    from aotcuda.builder.frontends.protocol import Unit

_SHARED = {
    "signature": "signature",
    "parameters": "parameters",
    "layout": "parameters",
    "cooperative": "cooperative launch",
    "launch_bounds": "launch bounds",
    "carveout": "shared-memory carveout",
    "prototype": "prototype",
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
    listed: dict[str, tuple[Target, set[Unit]]] = {}  # by kind
    first_built: dict[Unit, tuple[Target, Any]] = {}
    for one in imports:
        for kind in sorted({unit.kind for unit in one.units}):
            units = {unit for unit in one.units if unit.kind == kind}
            first, others = listed.setdefault(kind, (one.target, units))
            if differing := units ^ others:
                unit = min(differing, key=lambda unit: unit.key)
                message = (
                    f"{unit.key}: {unit.origin} has other signatures when it is imported for {one.target} than for "
                    f"{first}; write them in the table"
                )
                raise CompileError(message)
        own: dict[Unit, tuple[Target, Any]] = {}
        for (unit, target), built in one.compiled.items():
            own.setdefault(unit, (target, built))
        for unit, (target, built) in own.items():
            _check(unit, first_built.setdefault(unit, (target, built)), (target, built))


def _check(unit: Unit, first: tuple[Target, Any], other: tuple[Target, Any]) -> None:
    for name, noun in _SHARED.items():
        one, two = (getattr(built, name, None) for _, built in (first, other))
        if one != two:
            message = (
                f"{unit.key}: {unit.origin} has another {noun} when it is imported for {other[0]} ({two}) than for "
                f"{first[0]} ({one}), and a module has one for all GPUs; make them the same"
            )
            raise CompileError(message)
