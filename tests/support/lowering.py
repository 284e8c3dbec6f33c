"""Compile the units of the project in the current folder, as a build's worker does, and print JSON.

`lowering.py both FRONT_END`: the units whose code for all targets differs from their code for each target alone, and
the number of compiled units.
`lowering.py rows FRONT_END`: the units whose code differs if one process compiles several in a row, and the number of
units that each process compiled, in the order of the units and in the reverse order.
`lowering.py served FRONT_END 7.5 9.0 ...`: for each kernel the targets that the code for the first of them serves.
`lowering.py texts FRONT_END`: for each kernel its LLVM IR for the first target, its symbol, and its parameters.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda.arch import Target
from aotcuda.builder.compile import flows, imports, pool
from aotcuda.builder.config import parser
from aotcuda.builder.frontends import loading
from aotcuda.builder.frontends.protocol import Session
from aotcuda.builder.plan import plan
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def main() -> int:
    mode, name, *numbers = sys.argv[1:]
    root = Path.cwd()
    settings = parser.parse(tomllib.loads(Path("pyproject.toml").read_text())["tool"]["aotcuda"], environ=os.environ)
    plans = [item for item in plan.make(settings) if item.frontend == name]
    front: Any = loading.compiler(name, "the test")
    loading.prepare(front, Session(root=str(root), cache=None), name, "the test")
    imports.prepare_imports((str(root / "src"), str(root)), plan.exported_names(plans), {})
    units = {}
    with front.importing(plans[0].targets[0]):
        for item in plans:
            for unit in item.units:
                loaded = front.load(unit)
                for completed, _ in front.resolve(unit, loaded):
                    units[completed] = (loaded, item.compiled_for(unit))
    if mode == "texts":
        texts = in_children({unit: partial(text, front, unit, *units[unit]) for unit in units})
        result = {unit.name: content for unit, content in texts.items()}
    elif mode == "served":
        targets = [Target("sass", *map(int, number.split("."))) for number in numbers]
        lists = in_children({unit: partial(served, front, unit, units[unit][0], targets) for unit in units})
        result = {unit.name: names for unit, names in lists.items()}
    elif mode == "rows":
        result = in_rows(front, units)
    else:
        result = {"compiled": len(units), "differ": list(differing(front, units))}
    print(json.dumps(result))
    return 0


def in_children(works: Mapping[Any, Callable[[], Any]]) -> dict[Any, Any]:
    """Run each function in its own child process, and return the results by the same keys."""
    tasks = [pool.Task("a unit", work) for work in works.values()]
    return dict(zip(works, flows.run(tasks, 2, lambda _: None), strict=True))


def text(front: Any, unit: Any, loaded: Any, targets: list[Target]) -> dict[str, Any]:
    kernel = front.compile_unit(unit, loaded, targets[:1])[targets[0]]
    *_, code = json.loads(kernel.code[0].data)
    block = kernel.parameter_block
    parameters = {"parameters": kernel.parameters, "bytes": block.size, "fields": block.layout}
    return {"text": code, "symbol": unit.symbol, **parameters}


def in_rows(front: Any, units: dict[Any, Any]) -> dict[str, list[Any]]:
    """Return the units whose code differs from the code of a new process, and the number of units of each process."""
    separate = in_children({unit: partial(front.compile_unit, unit, *units[unit]) for unit in units})
    result: dict[str, list[Any]] = {"rows": [], "differ": []}
    for waiting in ([*units], [*units][::-1]):
        while waiting:
            (row,) = in_children({"row": partial(compile_row, front, waiting, units)}).values()
            result["rows"].append(len(row))
            result["differ"] += [unit.title for unit, built in row.items() if built != separate[unit]]
            del waiting[: len(row)]
    return result


def compile_row(front: Any, waiting: list[Any], units: dict[Any, Any]) -> dict[Any, Any]:
    built = {}
    for unit in waiting:
        built[unit] = front.compile_unit(unit, *units[unit])
        if not front.is_fresh():
            break
    return built


def served(front: Any, unit: Any, loaded: Any, targets: list[Target]) -> list[str]:
    """Return the targets that the code for the first one serves; the error if the compiler refuses the unit."""
    try:
        return [f"{target.major}.{target.minor}" for target in front.compile_unit(unit, loaded, targets)]
    except CompileError as error:
        return [str(error)]


def differing(front: Any, units: dict[Any, Any]) -> Iterator[str]:
    """Yield the units whose code differs for a target other than their first."""
    together = in_children({unit: partial(front.compile_unit, unit, *units[unit]) for unit in units})
    separate = {}
    for unit, (loaded, targets) in units.items():
        separate |= {(unit, target): partial(front.compile_unit, unit, loaded, [target]) for target in targets[1:]}
    for (unit, target), built in in_children(separate).items():
        if together[unit].get(target, built[target]) != built[target]:
            yield f"{unit.title} for {target}"


if __name__ == "__main__":
    sys.exit(main())
