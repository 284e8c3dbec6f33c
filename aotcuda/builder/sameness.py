"""What a module has once for all GPUs, held against every import of its sources that something was compiled from.

Sources that ask which GPU it is are imported for each, and every toolkit that takes part in a build imports them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aotcuda.arch import Target
    from aotcuda.builder.frontends.protocol import Unit

_ALIKE = {
    "signature": "signature",
    "parameters": "parameters",
    "layout": "parameters",
    "cooperative": "cooperative launch",
    "launch_bounds": "launch bounds",
    "carveout": "shared-memory carveout",
    "prototype": "prototype",
    "result": "result",
}
"""What a manifest says once, whatever the target."""


class Import(NamedTuple):
    """One import of the sources.

    Attributes:
        target: What they were imported for.
        units: The units that they made.
        compiled: What became of those that were compiled, for each target.
    """

    target: Target
    units: frozenset[Unit]
    compiled: Mapping[tuple[Unit, Target], Any]


def check(imports: Iterable[Import]) -> None:
    """Refuse sources that make something else for another target which a module has but one of.

    A toolkit may build the functions alone, and those for more targets than the kernels. So kernels are held against
    kernels and functions against functions, each as it is for the first target that it was compiled for.

    Raises:
        CompileError: They do.
    """
    listed: dict[str, tuple[Target, set[Unit]]] = {}  # by kind
    known: dict[Unit, tuple[Target, Any]] = {}
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
            _check(unit, known.setdefault(unit, (target, built)), (target, built))


def _check(unit: Unit, first: tuple[Target, Any], other: tuple[Target, Any]) -> None:
    for name, what in _ALIKE.items():
        one, two = (getattr(built, name, None) for _, built in (first, other))
        if one != two:
            message = (
                f"{unit.key}: {unit.origin} has another {what} when it is imported for {other[0]} ({two}) than for "
                f"{first[0]} ({one}), and a module has one for all GPUs; make them the same"
            )
            raise CompileError(message)
