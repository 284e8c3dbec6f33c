"""Divide a build into stages: the modules of a stage are built together, by one worker.

A worker imports one front end. Two compilers in one process would share global state (numba-cuda replaces a part of
Numba; each has type registries, caches and settings for the whole process), so a module's code would depend on the
project's other modules. Workers share only the files that a build makes.

A module that links another module of its wheel is built in a later stage, also if both have the same front end. The
later stage receives the files that a user of the wheel would link.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from aotcuda.builder import failures
from aotcuda.builder.compile import process
from aotcuda.common.stamp import Stamp
from aotcuda.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aotcuda.builder.compile.job import Job, Result
    from aotcuda.builder.emit.progress import Progress
    from aotcuda.builder.plan.plan import ModulePlan


def split(plans: Sequence[ModulePlan]) -> list[tuple[ModulePlan, ...]]:
    """Return the stages in order; all modules of a stage have one front end and link modules of earlier stages.

    A project whose modules do not link each other has one stage for each front end.
    """
    stages: list[tuple[ModulePlan, ...]] = []
    built: set[str] = set()
    queue = list(plans)
    while queue:
        ready = [plan for plan in queue if linked_names(plan, plans) <= built]
        waiting_kinds = {_kind(plan) for plan in queue if plan not in ready}
        # Prefer a front end without waiting modules: a front end with waiting modules needs another worker anyway.
        first = next((plan for plan in ready if _kind(plan) not in waiting_kinds), ready[0])
        stages.append(tuple(plan for plan in ready if _kind(plan) == _kind(first)))
        built |= {plan.config.name for plan in stages[-1]}
        queue = [plan for plan in queue if plan.config.name not in built]
    return stages


def _kind(plan: ModulePlan) -> tuple[str, str | None]:
    """Return the properties that all modules of a stage share: a front end, and the folder of a pack's packages."""
    return plan.frontend, plan.config.pack_from


def linked_names(plan: ModulePlan, plans: Iterable[ModulePlan]) -> set[str]:
    """Return the modules in `plans` that a module links."""
    return {item.module for item in plan.config.link if item.module} & {other.config.name for other in plans}


def run(job: Job, watcher: Progress | None = None) -> list[Result]:
    """Do `job`, whose modules may have several front ends; return a result for each stage. See `process.run`.

    The sources and the stamp of a result include the sources and stamps of linked stages.

    Raises:
        AotcudaError: A module has an error; errors of several stages are raised together.
    """
    for folder in (job.root, *job.sources.import_roots):
        _check_encoding(folder)
    results: dict[str, Result] = {}
    stage_results: list[Result] = []
    linked = {name for plan in job.plans for name in linked_names(plan, job.plans)}
    wanted = tuple(sorted({*job.others.wanted} | linked))
    with failures.gather() as attempt:
        for stage in split(job.plans):
            # Modules that link a failed module cannot be built, and would report nothing new.
            plans = tuple(plan for plan in stage if linked_names(plan, job.plans) <= results.keys())
            if not plans:
                continue
            linked_results = {name: results[name] for plan in plans for name in sorted(linked_names(plan, job.plans))}
            linkable = dict(job.others.linkable)
            for earlier in linked_results.values():
                linkable |= earlier.linkable
            others = replace(job.others, linkable=linkable, wanted=wanted)
            with attempt():
                result = process.run(replace(job, plans=plans, others=others), watcher)
                stage_results.append(_join(result, list(linked_results.values())))
                results |= dict.fromkeys((plan.config.name for plan in plans), stage_results[-1])
    return stage_results


def _check_encoding(folder: str) -> None:
    """Refuse a folder whose name is not UTF-8: every compiler writes the paths of sources in UTF-8 somewhere."""
    text = os.fsencode(folder).decode(errors="backslashreplace")
    if text != folder:
        message = f"{text} has a name that is not UTF-8, which compilers refuse; rename the folder"
        raise BuildError(message)


def _join(result: Result, earlier: Sequence[Result]) -> Result:
    """Return `result`, which also depends on everything that the `earlier` ones depend on."""
    if not earlier:
        return result
    sources = {source["path"]: source for item in (*earlier, result) for source in item.sources}
    seen = Stamp().add(item.seen for item in (*earlier, result))
    return replace(result, sources=tuple(sources.values()), seen=seen)
