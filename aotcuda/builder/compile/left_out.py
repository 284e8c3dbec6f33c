"""Remove the kernels that targets cannot have from a module's plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from aotcuda.builder import failures
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aotcuda import manifest
    from aotcuda.arch import Target
    from aotcuda.builder.frontends.protocol import LeftOut, Unit
    from aotcuda.builder.plan.plan import ModulePlan

    Compiled = Mapping[tuple[Unit, Target], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """The kernels that targets cannot have.

    Attributes:
        notes: The manifest's entries for them, without optional kernels.
        warnings: A warning for each kernel and target, without optional kernels.
        optional: The number of optional variants of each kernel that some target lacks.
    """

    notes: tuple[manifest.LeftOut, ...] = ()
    warnings: tuple[str, ...] = ()
    optional: Counter[str] = field(default_factory=Counter)


def remove_kernels(
    plan: ModulePlan, kernels: Mapping[tuple[Unit, Target], LeftOut], mode: str
) -> tuple[ModulePlan, Removed]:
    """Return the plan without some kernels, and what the manifest and the user are told about them.

    Args:
        plan: The plan of a module.
        kernels: Kernels that a target cannot have, with the target that code is compiled for.
        mode: The configuration's `incomplete`.

    Raises:
        AotcudaError: No target can have a kernel of the table, or `mode` is `error`.
    """
    if not kernels:
        return plan, Removed()
    lacking = plan.lacking | {(unit.identifier, target) for unit, target in kernels}
    rest = replace(plan, lacking=lacking)
    removed = {unit for unit in plan.kernels if not rest.compiled_for(unit)}
    parts = {unit.part_of for unit in plan.kernels if unit.part_of and unit not in removed}
    optional = Counter(unit.name for unit in {unit for unit, _ in kernels if unit.optional})
    kernels = {(unit, target): item for (unit, target), item in kernels.items() if not unit.optional}
    errors = [
        left_out.error
        for (unit, _), left_out in kernels.items()
        if unit in removed and not unit.recorded and unit.part_of not in parts
    ]
    if errors:
        raise failures.join(errors)
    warnings = _warnings(plan, kernels)
    if mode == "error" and warnings:
        message = "\n".join(f'{line}; or set incomplete = "warn"' for line in warnings)
        raise CompileError(message)
    rest = replace(rest, units=tuple(unit for unit in plan.units if unit not in removed))
    targets = tuple(target for target in plan.targets if rest.functions or rest.kernels_for(target))
    notes: list[manifest.LeftOut] = [
        {"kernel": unit.name, "signature": unit.signature, "target": str(target), "reason": left_out.reason}
        for (unit, target), left_out in kernels.items()
    ]
    return replace(rest, targets=targets), Removed(notes=tuple(notes), warnings=tuple(warnings), optional=optional)


def _warnings(plan: ModulePlan, kernels: Mapping[tuple[Unit, Target], LeftOut]) -> list[str]:
    variants = Counter(unit.key for unit in plan.kernels if not unit.optional)
    reasons: dict[tuple[str, Target], list[str]] = {}
    for (unit, target), left_out in kernels.items():
        reasons.setdefault((unit.key, target), []).append(left_out.reason)
    lines = []
    for (key, target), texts in reasons.items():
        subject = f"{len(texts)} of its {variants[key]} variants" if variants[key] > 1 else "it"
        verb = "are" if len(texts) > 1 else "is"
        lines.append(f"{key}: {subject} {verb} left out for {target}: {texts[0]}")
    return lines
