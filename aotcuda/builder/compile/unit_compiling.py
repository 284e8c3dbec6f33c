"""Compile the units of a module in children.

There is one way: a child compiles a row of items. An item is what a front end compiles at once: a unit for all of its
targets, or the units of a batch for one target. Children of front ends that cannot tell that they are fresh have rows
of one item.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from aotcuda.builder.compile import flows, observer, pool, telemetry
from aotcuda.builder.frontends.protocol import LeftOut

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.compile.job import Job
    from aotcuda.builder.frontends.protocol import FrontEnd, Unit
    from aotcuda.builder.plan.plan import ModulePlan
    from aotcuda.errors import AotcudaError

    Compiled = dict[tuple[Unit, Target], Any]


def targets_by_unit(plans: Iterable[ModulePlan], own: Sequence[Target]) -> dict[Unit, list[Target]]:
    """Return the units of modules, each with its targets that are in `own`."""
    return {
        unit: [target for target in item.compiled_for(unit) if target in own] for item in plans for unit in item.units
    }


def step_count(plans: Iterable[ModulePlan], own: Sequence[Target]) -> int:
    """Return the number of steps that compile the units of modules for their targets in `own`: one for each pair."""
    return sum(map(len, targets_by_unit(plans, own).values()))


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

    in_rows = hasattr(front, "is_fresh")
    while any(missing().values()):
        items = _items(missing())
        tasks = _tasks(front, _rows(items, job.jobs) if in_rows else [[item] for item in items], functions)
        if in_rows:  # what fails, or is not reached, is compiled one by one, so that all errors are found
            tasks = [replace(task, fallback=lambda _: ({},), count_steps=len) for task in tasks]
        in_rows = False
        results: Compiled = {}
        for result in (yield flows.Round(flows.COMPILE, tasks)):
            results |= result
        compiled |= results
    return {(unit, target): compiled[unit, target] for unit, targets in units.items() for target in targets}


class _Item(NamedTuple):
    """The units that a front end compiles at once, and their targets."""

    units: list[Unit]
    targets: Sequence[Target]


def _items(missing: Mapping[Unit, Sequence[Target]]) -> list[_Item]:
    """Return the items of units: a unit that is `alike` for all of its targets, others or a batch for one target."""
    items: dict[tuple[object, Target], _Item] = {}
    for unit, targets in missing.items():
        for of_item in [targets] if unit.alike and targets else [[target] for target in targets]:
            items.setdefault((unit.batch or unit, of_item[0]), _Item([], of_item)).units.append(unit)
    return list(items.values())


_ROW = 16
"""The most units that one process compiles. Their results are in memory until the last one, and a crash loses them."""

_LONGEST = 10.0
"""Seconds of processor time after which a row ends, so that few slow units do not share a process to the end."""


def _rows(items: Sequence[_Item], jobs: int) -> list[list[_Item]]:
    """Divide items into rows.

    Starting a process and copying its memory takes a third as long as compiling a unit. The first rows are long and the
    last ones have one item, so all processes end at about the same time.
    """
    rows: list[list[_Item]] = []
    start = 0
    while start < len(items):
        size = min(-(-(len(items) - start) // (2 * jobs)), _ROW)
        rows.append([*items[start : start + size]])
        start += size
    return rows


def _tasks(front: FrontEnd, rows: Sequence[Sequence[_Item]], functions: Mapping[Unit, object]) -> list[pool.Task]:
    """Return a task for each row. A task may end before its last item; the caller compiles the rest."""
    variants = Counter((unit.module, unit.name) for row in rows for item in row for unit in item.units)
    started: Counter[tuple[str, str]] = Counter()
    tasks = []
    for row in rows:
        if len(row) == 1:
            tasks.append(_task(front, *row[0], functions))
        else:
            tasks.append(_row_task(front, row, functions, _title(row, started, variants)))
        started.update((unit.module, unit.name) for item in row for unit in item.units)
    return tasks


def _title(
    row: Sequence[_Item],
    started: Mapping[tuple[str, str], int],
    variants: Mapping[tuple[str, str], int],
) -> str:
    """Return a row as progress shows it: `mypkg.ops.norm.fwd for sm_90a: 12 of 340 variants`."""
    (first, *_), targets_of_first = row[0]
    targets = ", ".join(map(str, targets_of_first))
    kernel = (first.module, first.name)
    if variants[kernel] > 1:
        return f"{first.module}.{first.name} for {targets}: {started[kernel] + 1} of {variants[kernel]} variants"
    more = f" and {len(row) - 1} more"
    return f"{first.title}{more} for {targets}"


def _row_task(front: FrontEnd, row: Sequence[_Item], functions: Mapping[Unit, object], title: str) -> pool.Task:
    def compile_row() -> Compiled:
        compiled: Compiled = {}
        begin = time.process_time()
        for item in row:
            task = _task(front, *item, functions)
            before = telemetry.take()
            try:
                with telemetry.step(task.title, task.work):
                    compiled |= task.run()
            except Exception:  # noqa: BLE001 (the item is compiled again alone, which reports its error)
                telemetry.take()
                telemetry.add(before)
                break
            collected = telemetry.take()
            telemetry.add(before)
            telemetry.add(collected)
            is_long = time.process_time() - begin > _LONGEST
            if collected.warnings or is_long or not front.is_fresh():  # a process shows a warning once
                break
        return compiled

    key = row[0].units[0].key
    return pool.Task(title, compile_row, key=key, times_steps=True)


def _task(
    front: FrontEnd, units: Sequence[Unit], targets: Sequence[Target], functions: Mapping[Unit, object]
) -> pool.Task:
    def compile_all() -> Compiled:
        return {
            (unit, target): built
            for unit in units
            for target, built in front.compile_unit(unit, functions[unit], targets).items()
        }

    def compile_and_observe() -> Compiled:
        with observer.compiling() as seen:
            compiled = compile_all()
        return {key: replace(built, seen=seen) for key, built in compiled.items()} if seen else compiled

    def leave_out(error: AotcudaError) -> tuple[Compiled] | AotcudaError:
        """Let targets lack variants that crash the compiler, as those that it refuses."""
        if not isinstance(error, pool.CrashError) or not all(unit.recorded or unit.optional for unit in units):
            return error
        left_out = LeftOut(error=error, reason=str(error).removeprefix(f"{task.where}: "))
        return ({(unit, target): left_out for unit in units for target in targets},)

    first = units[0]
    title = first.title if len(units) == 1 else f"{first.batch}, {len(units)} kernels,"
    work = tuple((unit.module, unit.identifier, str(target)) for unit in units for target in targets)
    task = pool.Task(
        f"{title} for {', '.join(map(str, targets))}",
        compile_and_observe,
        key=first.key,
        steps=len(work),
        fallback=leave_out,
        work=work,
    )
    return task
