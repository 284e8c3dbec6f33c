"""Remove kernels from a build: from the targets that cannot have them, or from all targets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aotcuda.builder import failures
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aotcuda import manifest
    from aotcuda.arch import Target
    from aotcuda.builder.frontends.protocol import LeftOut, Unit
    from aotcuda.builder.plan import ModulePlan

    Compiled = Mapping[tuple[Unit, Target], Any]


def remove_kernels(
    plan: ModulePlan, found: Mapping[tuple[Unit, Target], LeftOut], mode: str
) -> tuple[ModulePlan, list[manifest.LeftOut], list[str]]:
    """Return the plan without these kernels, the manifest's entries for them, and a warning for each kernel.

    Args:
        plan: The plan of a module.
        found: Records of its kernels that targets cannot have, by the targets that code is compiled for.
        mode: The configuration's `incomplete`.

    Raises:
        AotcudaError: No target can have a kernel of the table, or `mode` is `error`.
    """
    if not found:
        return plan, [], []
    lacking = plan.lacking | {(unit.symbol, target) for unit, target in found}
    rest = replace(plan, lacking=lacking)
    removed = {unit for unit in plan.kernels if not rest.compiled_for(unit)}
    parts = {unit.part_of for unit in plan.kernels if unit.part_of and unit not in removed}
    refused = [
        one.error
        for (unit, _), one in found.items()
        if unit in removed and not unit.recorded and unit.part_of not in parts
    ]
    if refused:
        raise failures.join(refused)
    warnings = _warnings(plan, found)
    if mode == "error":
        message = "\n".join(f'{line}; or set incomplete = "warn"' for line in warnings)
        raise CompileError(message)
    rest = replace(rest, units=tuple(unit for unit in plan.units if unit not in removed))
    targets = tuple(target for target in plan.targets if rest.functions or rest.kernels_for(target))
    notes: list[manifest.LeftOut] = [
        {"kernel": unit.name, "signature": unit.signature, "target": str(target), "reason": one.reason}
        for (unit, target), one in found.items()
    ]
    return replace(rest, targets=targets), notes, warnings


def _warnings(plan: ModulePlan, found: Mapping[tuple[Unit, Target], LeftOut]) -> list[str]:
    every: dict[str, int] = {}
    for unit in plan.kernels:
        every[unit.key] = every.get(unit.key, 0) + 1
    reasons: dict[tuple[str, Target], list[str]] = {}
    for (unit, target), one in found.items():
        reasons.setdefault((unit.key, target), []).append(one.reason)
    lines = []
    for (key, target), texts in reasons.items():
        which = f"{len(texts)} of its {every[key]} variants" if every[key] > 1 else "it"
        lines.append(f"{key}: {which} cannot be had for {target}, where it is left out: {texts[0]}")
    return lines
