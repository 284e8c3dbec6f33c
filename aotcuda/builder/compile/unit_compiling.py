"""Compile the units of a module in children: several units in one child, or a part of one unit's targets in each."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from aotcuda.builder.compile import flows, observer, pool, telemetry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.compile.job import Job
    from aotcuda.builder.frontends.protocol import FrontEnd, Unit
    from aotcuda.builder.plan.plan import ModulePlan

    Compiled = dict[tuple[Unit, Target], Any]


def targets_by_unit(plans: Iterable[ModulePlan], own: Sequence[Target]) -> dict[Unit, list[Target]]:
    """Return the units of modules, each with its targets that are in `own`."""
    return {
        unit: [target for target in item.compiled_for(unit) if target in own] for item in plans for unit in item.units
    }


def compile_units(
    job: Job,
    front: FrontEnd,
    item: ModulePlan,
    functions: Mapping[Unit, object],
    own: Sequence[Target],
    cached: Mapping[tuple[Unit, Target], Any] = MappingProxyType({}),
) -> flows.Flow[Compiled]:
    """Compile a module's units for its targets that are in `own`, except the results in `cached`."""
    units = targets_by_unit([item], own)
    compiled: Compiled = {key: built for key, built in cached.items() if key[0] in units}

    def missing() -> dict[Unit, list[Target]]:
        return {
            unit: [target for target in targets if (unit, target) not in compiled] for unit, targets in units.items()
        }

    # With fewer units than cores, it is faster to repeat the work that targets share.
    processes = -(-job.jobs // sum(len(plan.units) for plan in job.plans)) if hasattr(front, "compile_alike") else None
    in_rows = hasattr(front, "is_fresh") and processes in (None, 1)
    while any(missing().values()):
        if in_rows:
            tasks = _rows(front, missing(), functions, job.jobs)
        else:
            shares = _batches(missing()) if processes is None else _split_targets(missing(), processes)
            tasks = [_task(front, batch, functions, share) for batch, share in shares]
        in_rows = False  # the units that a row did not reach are compiled one by one
        results: Compiled = {}
        for result in (yield flows.Round(flows.COMPILE, tasks)):
            results |= result
        compiled |= results
    return {(unit, target): compiled[unit, target] for unit, targets in units.items() for target in targets}


def _split_targets(missing: Mapping[Unit, Sequence[Target]], number: int) -> list[tuple[list[Unit], Sequence[Target]]]:
    """Divide each unit's targets into `number` parts, or into one for each target if there are fewer."""
    return [
        ([unit], share)
        for unit, targets in missing.items()
        for start in range(number)
        if (share := targets[start::number])
    ]


_ROW = 16
"""The most units that one process compiles. Their results are in memory until the last one, and a crash loses them."""


def _rows(
    front: FrontEnd, missing: Mapping[Unit, Sequence[Target]], functions: Mapping[Unit, object], jobs: int
) -> list[pool.Task]:
    """Return tasks that compile several units each. A task may end before its last unit; the caller compiles the rest.

    Starting a process and copying its memory takes a third as long as compiling a unit. The first rows are long and the
    last ones have one unit, so all processes end at about the same time.
    """
    waiting = {unit: targets for unit, targets in missing.items() if targets}
    rows = []
    while waiting:
        size = min(-(-len(waiting) // (2 * jobs)), _ROW)
        rows.append({unit: waiting.pop(unit) for unit in list(waiting)[:size]})
    variants = Counter((unit.module, unit.name) for unit in missing)
    started: Counter[tuple[str, str]] = Counter()
    tasks = []
    for row in rows:
        tasks.append(_row_task(front, row, functions, _title(row, started, variants)))
        started.update((unit.module, unit.name) for unit in row)
    return tasks


def _title(
    row: Mapping[Unit, Sequence[Target]],
    started: Mapping[tuple[str, str], int],
    variants: Mapping[tuple[str, str], int],
) -> str:
    """Return a row as progress shows it: `mypkg.ops.norm.fwd for sm_90a: 12 of 340 variants`."""
    first, *others = row
    targets = ", ".join(map(str, row[first]))
    kernel = (first.module, first.name)
    if variants[kernel] > 1:
        return f"{first.module}.{first.name} for {targets}: {started[kernel] + 1} of {variants[kernel]} variants"
    more = f" and {len(others)} more" if others else ""
    return f"{first.title}{more} for {targets}"


def _row_task(
    front: FrontEnd, row: Mapping[Unit, Sequence[Target]], functions: Mapping[Unit, object], title: str
) -> pool.Task:
    def compile_row() -> Compiled:
        compiled: Compiled = {}
        for unit, targets in row.items():
            task = _task(front, [unit], functions, targets)
            before = telemetry.take()
            try:
                with telemetry.step(task.title, task.work):
                    compiled |= task.run()
            except Exception:  # noqa: BLE001 (the unit is compiled again alone, which reports its error)
                telemetry.take()
                telemetry.add(before)
                break
            collected = telemetry.take()
            telemetry.add(before)
            telemetry.add(collected)
            if collected.warnings or not front.is_fresh():  # a process shows a warning once
                break
        return compiled

    return pool.Task(
        title, compile_row, key=next(iter(row)).key, fallback=dict, count_steps=_units_of, times_steps=True
    )


def _units_of(compiled: Compiled) -> int:
    return len({unit for unit, _ in compiled})


def _batches(missing: Mapping[Unit, Sequence[Target]]) -> list[tuple[list[Unit], Sequence[Target]]]:
    """Return a share for each target and batch of units."""
    shares: dict[tuple[object, Target], list[Unit]] = {}
    for unit, targets in missing.items():
        for target in targets:
            shares.setdefault((unit.batch or unit, target), []).append(unit)
    return [(units, [target]) for (_, target), units in shares.items()]


def _task(
    front: FrontEnd, units: Sequence[Unit], functions: Mapping[Unit, object], targets: Sequence[Target]
) -> pool.Task:
    def compile_all() -> Compiled:
        if hasattr(front, "compile_alike"):
            return {
                (unit, target): built
                for unit in units
                for target, built in front.compile_alike(unit, functions[unit], targets).items()
            }
        # A front end without device functions has no `compile_function`.
        return {
            (unit, target): (front.compile_kernel if unit.kind == "kernel" else front.compile_function)(
                unit, functions[unit], target
            )
            for target in targets
            for unit in units
        }

    def compile_and_observe() -> Compiled:
        with observer.compiling() as seen:
            compiled = compile_all()
        return {key: replace(built, seen=seen) for key, built in compiled.items()} if seen else compiled

    first = units[0]
    title = first.title if len(units) == 1 else f"{first.batch}, {len(units)} kernels,"
    work = tuple((unit.module, unit.identifier, str(target)) for unit in units for target in targets)
    return pool.Task(f"{title} for {', '.join(map(str, targets))}", compile_and_observe, key=first.key, work=work)
