"""Run in a project's folder, in a process of its own: its units compiled once for all targets, and for each by itself.

`lowering.py both FRONT_END`: prints the units whose code differs, and how many were compiled.
`lowering.py rows FRONT_END`: prints the units whose code differs when they are compiled one after the other in one
process, as long as that may be, and how many were in each such process, in the units' order and from behind.
`lowering.py served FRONT_END 7.5 9.0 ...`: prints for each kernel the targets that are served together; no code is
made, so they may be any.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda.arch import Target
from aotcuda.builder import plan
from aotcuda.builder.config import parser
from aotcuda.builder.frontends import loading
from aotcuda.builder.worker import flows, imports, pool
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterator


def main() -> int:
    what, name, *numbers = sys.argv[1:]
    root = Path.cwd()
    settings = parser.parse(tomllib.loads(Path("pyproject.toml").read_text())["tool"]["aotcuda"], environ=os.environ)
    plans = [item for item in plan.make(settings) if item.frontend == name]
    front: Any = loading.compiler(name, "the test")
    loading.prepared(front, str(root), name, "the test")
    imports.prepare_imports((str(root / "src"), str(root)), plan.names(plans), {})
    units = {}
    with front.importing(plans[0].targets[0]):
        for item in plans:
            for unit in item.units:
                loaded = front.load(unit, str(root))
                for settled in front.complete(unit, loaded):
                    front.resolve(settled, loaded)
                    units[settled] = (loaded, item.compiled_for(unit))
    if what == "served":
        front.generate = lambda *_: ()
        targets = [Target("sass", *map(int, number.split("."))) for number in numbers]
        tasks = [pool.Task(unit.name, lambda one=unit: served(front, one, units[one][0], targets)) for unit in units]
        found = dict(zip([unit.name for unit in units], flows.run(tasks, 2, lambda _: None), strict=True))
    elif what == "rows":
        found = in_rows(front, units)
    else:
        found = {"compiled": len(units), "differ": list(differing(front, units))}
    print(json.dumps(found))
    return 0


def in_rows(front: Any, units: dict[Any, Any]) -> dict[str, list[Any]]:
    """Units that differ from what a process of their own makes of them, and how many each process had."""
    tasks = [pool.Task(unit.name, lambda unit=unit: front.compile_alike(unit, *units[unit])) for unit in units]
    alone = dict(zip(units, flows.run(tasks, 2, lambda _: None), strict=True))
    found: dict[str, list[Any]] = {"rows": [], "differ": []}
    for waiting in ([*units], [*units][::-1]):
        while waiting:
            task = pool.Task("a row", lambda waiting=waiting: row_of(front, waiting, units))
            (row,) = flows.run([task], 1, lambda _: None)
            found["rows"].append(len(row))
            found["differ"] += [unit.title for unit, built in row.items() if built != alone[unit]]
            del waiting[: len(row)]
    return found


def row_of(front: Any, waiting: list[Any], units: dict[Any, Any]) -> dict[Any, Any]:
    made = {}
    for unit in waiting:
        made[unit] = front.compile_alike(unit, *units[unit])
        if not front.is_fresh():
            break
    return made


def served(front: Any, unit: Any, loaded: Any, targets: list[Target]) -> list[str]:
    """Return the targets that are served by what is compiled for the first; what is said if that is refused."""
    try:
        return [f"{target.major}.{target.minor}" for target in front.compile_alike(unit, loaded, targets)]
    except CompileError as error:
        return [str(error)]


def differing(front: Any, units: dict[Any, Any]) -> Iterator[str]:
    """Units of which something differs for a target that is not the first of theirs."""
    together = [
        pool.Task(
            unit.name, lambda unit=unit, loaded=loaded, targets=targets: front.compile_alike(unit, loaded, targets)
        )
        for unit, (loaded, targets) in units.items()
    ]
    results = dict(zip(units, flows.run(together, 2, lambda _: None), strict=True))
    alone = {}
    for unit, (loaded, targets) in units.items():
        one = front.compile_kernel if unit.kind == "kernel" else front.compile_function
        for target in targets[1:]:
            alone[unit, target] = pool.Task(unit.name, lambda one=one, args=(unit, loaded, target): one(*args))
    expected = dict(zip(alone, flows.run(list(alone.values()), 2, lambda _: None), strict=True))
    for (unit, target), built in expected.items():
        if results[unit].get(target, built) != built:
            yield f"{unit.title} for {target}"


if __name__ == "__main__":
    sys.exit(main())
