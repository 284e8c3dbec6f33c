"""Divide the units of a build among shards, by recorded or estimated cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aotcuda.builder.compile import kernel_groups

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.compile.job import Shared
    from aotcuda.builder.frontends.protocol import Unit
    from aotcuda.builder.plan.plan import ModulePlan


def choose_units(
    plans: Sequence[ModulePlan], functions: Mapping[Unit, object], shared: Shared, *, in_groups: bool
) -> frozenset[Unit]:
    """Return the units that a shard compiles.

    Small modules are not divided, so a shard can link them. Kernels that become machine code together and the units of
    a batch stay together. The most expensive part comes first; each part goes to the shard with the least work. Every
    shard computes the same division.
    """
    index, count = shared.shard or (1, 1)
    costs = {
        unit: _cost(shared, unit, functions[unit], plan.compiled_for(unit)) for plan in plans for unit in plan.units
    }
    largest = sum(costs.values()) / count / 4
    parts: list[tuple[float, list[Unit]]] = []
    for plan in plans:
        is_small = sum(costs[unit] for unit in plan.units) <= largest
        of_plan = [list(plan.units)] if is_small else _parts(plan, in_groups=in_groups)
        parts += [(sum(costs[unit] for unit in part), part) for part in of_plan]
    loads = [0.0] * count
    chosen: list[Unit] = []
    for cost, part in sorted(parts, key=lambda item: -item[0]):
        least = loads.index(min(loads))
        loads[least] += cost
        chosen += part if least == index - 1 else ()
    return frozenset(chosen)


def _parts(plan: ModulePlan, *, in_groups: bool) -> list[list[Unit]]:
    """Divide a module's units into parts, each of which one shard compiles."""
    group_of: dict[str, object] = {}
    if in_groups:
        for image in map(plan.of_image, plan.images):
            identifiers = {unit.symbol: unit.identifier for unit in image.kernels}
            for group in kernel_groups.divide([*identifiers]):
                group_of |= dict.fromkeys((identifiers[symbol] for symbol in group), (image.image, group))
    parts: dict[object, list[Unit]] = {}
    for unit in plan.units:
        parts.setdefault(unit.batch or group_of.get(unit.identifier, unit.identifier), []).append(unit)
    return list(parts.values())


def _cost(shared: Shared, unit: Unit, loaded: Any, targets: Sequence[Target]) -> float:
    """Return the recorded seconds of a unit, or an estimate by the length of its code."""
    recorded = shared.costs.get(f"{unit.module}.{unit.identifier}")
    if recorded is not None:
        return recorded
    for name in ("python", "function", "fn"):  # attributes of loaded objects and of Triton's functions
        loaded = getattr(loaded, name, loaded)
    length = len(getattr(getattr(loaded, "__code__", None), "co_code", b""))
    return _SECONDS * (1 + length / _TYPICAL) * (_SHARED + len(targets))


_SECONDS, _TYPICAL, _SHARED = 0.005, 300, 4
"""Seconds of a unit for each target, bytes of code that double them, and targets that cost as much as typing."""
