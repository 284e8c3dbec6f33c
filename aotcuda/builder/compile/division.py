"""Divide the units of modules among images, and select the image that the JIT fallback needs."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda.builder.compile import flows, pool
from aotcuda.builder.link import inputs, nvjitlink, preconditions
from aotcuda.builder.link.symbols import Symbols
from aotcuda.builder.plan import plan
from aotcuda.errors import ConfigError, LinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.builder.compile.job import Job
    from aotcuda.builder.compile.source_loading import Loaded
    from aotcuda.builder.frontends.protocol import Division, FrontEnd, LinkInput
    from aotcuda.builder.plan.plan import ModulePlan

_HIDDEN = Symbols(functions=(), complete=False)
"""The symbols of a module that a shard does not link."""


def divide(loaded: Loaded, front: FrontEnd) -> None:
    """Give each unit of `loaded` its image; keep only the image that the job asks for.

    Raises:
        AotcudaError: The files of a module do not fit each other, or no file needs the items of `link`.
    """
    if hasattr(front, "divide"):
        _divide_by_source(loaded, front)
    if loaded.job.image is not None:
        name, number = loaded.job.image
        plans = tuple(
            item.of_image(_image_name(item, number)) if item.config.name == name else item for item in loaded.job.plans
        )
        loaded.job = replace(loaded.job, plans=plans)


def _image_name(item: ModulePlan, number: int) -> str:
    if number < len(item.images):
        return item.images[number]
    message = f"{item.config.name}: its files make {len(item.images)} images for this GPU, and the wheel has more"
    raise LinkError(message)


def _divide_by_source(loaded: Loaded, front: Any) -> None:
    plans = []
    for item in loaded.job.plans:
        if not item.units:
            plans.append(item)
            continue
        items, linked = _read_linked(loaded.job, item)
        division = front.divide(item.units, linked, item.ltoir_targets, item.config)
        while new := _hidden_needs(loaded.job, item, items, linked, division):
            linked = [*linked, Symbols(functions=(), needed_functions=new)]
            division = front.divide(item.units, linked, item.ltoir_targets, item.config)
        by_unit = dict(zip(item.units, division.units, strict=True))
        loaded.functions = {by_unit.get(unit, unit): value for unit, value in loaded.functions.items()}
        plan.check_symbols(division.units)
        divided = replace(item, units=division.units, linked=division.linked, variables=division.variables)
        warnings = [*division.warnings, *_unused_links(divided)]
        loaded.warnings = (*loaded.warnings, *warnings)
        plans.append(divided)
    loaded.job = replace(loaded.job, plans=tuple(plans))


def _hidden_needs(
    job: Job, item: ModulePlan, items: Sequence[LinkInput], linked: Sequence[Symbols], division: Division
) -> tuple[str, ...]:
    """Return functions that items of `link` need, if the items hide their names and a file may define the functions."""
    if not division.needed or not items or all(symbols.complete for symbols in linked):
        return ()
    known = {name for symbols in linked for name in symbols.needed}
    target = item.ltoir_targets[-1]
    arguments = (items, division.needed, target, item.config.options, _include_dirs(job, item))
    task = pool.Task(f"{item.config.name}: names that link needs", partial(nvjitlink.unresolved, *arguments))
    (names,) = flows.run([task], 1, lambda _: None)
    return tuple(name for name in names if name not in known and name not in division.needed)


def _include_dirs(job: Job, item: ModulePlan) -> list[str]:
    return [str(Path(job.root, path)) for path in item.config.options.include_dirs]


def _read_linked(job: Job, item: ModulePlan) -> tuple[tuple[LinkInput, ...], list[Symbols]]:
    """Return a module's items of `link`, and their symbols."""
    files = [listed for listed in item.config.link if listed.module is None or job.shard is None]
    items = inputs.read(files, Path(job.root), job.others.linkable).inputs
    tasks = [
        pool.Task(f"{item.config.name}: names of {linked.name}", partial(_read_symbols, linked, item, job))
        for linked in items
    ]
    hidden = [_HIDDEN] if len(files) < len(item.config.link) else []
    return items, [*flows.run(tasks, job.jobs, lambda _: None), *hidden]


def _read_symbols(linked: LinkInput, item: ModulePlan, job: Job) -> Symbols:
    if linked.header:
        names = re.findall(r"^AOTCUDA_DEVICE .*?\b(\w+)\(", linked.header.decode(), re.MULTILINE)
        return Symbols(functions=tuple(names))
    target = item.ltoir_targets[0]
    return preconditions.survey(linked, (), target, item.config.options, _include_dirs(job, item), item.config.key)


def _unused_links(item: ModulePlan) -> list[str]:
    """Return a warning if no file needs the items of `link`.

    Raises:
        ConfigError: An item has callbacks, which would not be called.
    """
    if not item.config.link or item.linked or not item.kernels:
        return []
    first = item.config.link[0]
    fact = f"no file of {item.config.name} needs a name of what it links"
    for listed in item.config.link:
        if listed.setup is not None or listed.teardown is not None:
            message = f"{listed.key}: {fact}, so nothing would call its callbacks; remove the item"
            raise ConfigError(message)
    return [f"{first.key}: {fact}; remove it"]
