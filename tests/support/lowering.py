"""Compile the units of the project in the current folder, as a build's worker does, and print JSON.

`lowering.py both FRONT_END`: the units whose code for all targets differs from their code for each target alone, and
how many were compiled.
`lowering.py rows FRONT_END`: the units whose code differs if one process compiles several in a row, and how many each
process compiled, in the units' order and in the reverse order.
`lowering.py served FRONT_END 7.5 9.0 ...`: for each kernel the targets that the code for the first of them serves.
`lowering.py texts FRONT_END`: for each kernel its LLVM IR for the first target, its symbol, and its parameters.
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
    loading.prepare(front, str(root), name, "the test")
    imports.prepare_imports((str(root / "src"), str(root)), plan.exported_names(plans), {})
    units = {}
    with front.importing(plans[0].targets[0]):
        for item in plans:
            for unit in item.units:
                loaded = front.load(unit, str(root))
                for settled in front.complete(unit, loaded):
                    front.resolve(settled, loaded)
                    units[settled] = (loaded, item.compiled_for(unit))
    if what == "texts":
        tasks = [pool.Task(unit.name, lambda one=unit: text(front, one, *units[one])) for unit in units]
        found = dict(zip([unit.name for unit in units], flows.run(tasks, 2, lambda _: None), strict=True))
    elif what == "served":
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


def text(front: Any, unit: Any, loaded: Any, targets: list[Target]) -> dict[str, Any]:
    kernel = front.compile_kernel(unit, loaded, targets[0])
    *_, code = json.loads(kernel.code[0].data)
    parameters = {"parameters": kernel.parameters, "bytes": kernel.parameter_bytes, "fields": kernel.layout}
    return {"text": code, "symbol": unit.symbol, **parameters}


def in_rows(front: Any, units: dict[Any, Any]) -> dict[str, list[Any]]:
    """Return the units whose code differs from that of a process for each, and how many each process compiled."""
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
    """Return the targets that the code for the first one serves; the error if the compiler refuses the unit."""
    try:
        return [f"{target.major}.{target.minor}" for target in front.compile_alike(unit, loaded, targets)]
    except CompileError as error:
        return [str(error)]


def differing(front: Any, units: dict[Any, Any]) -> Iterator[str]:
    """Yield the units whose code differs for a target other than their first."""
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
