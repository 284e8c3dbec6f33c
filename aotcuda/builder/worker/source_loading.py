"""Loading what units are compiled from: once for all targets, or once for each where the sources ask which it is.

The order of imports is documented in docs/configuration.md: the prelude, then the sources in the order of the table.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda import registry
from aotcuda.arch import Target
from aotcuda.builder import failures, plan
from aotcuda.builder.config import rules
from aotcuda.builder.frontends import loading, python_source
from aotcuda.builder.worker import dependency_trace, imports, pool, telemetry
from aotcuda.builder.worker.calls import Calls
from aotcuda.builder.worker.import_graph import ImportGraph
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from aotcuda.builder.frontends.protocol import FrontEnd, Question, Unit
    from aotcuda.builder.plan import ModulePlan
    from aotcuda.builder.worker.dependency_trace import DependencyTrace
    from aotcuda.builder.worker.job import Job
    from aotcuda.manifest import Source

    Compiled = dict[tuple[Unit, Target], Any]

_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(slots=True)
class Loaded:
    """What was loaded.

    Attributes:
        job: The job, with the units that the sources have made of those in its plans.
        functions: By unit, what it is compiled from.
        attempt: The block for more attempts, whose errors are told together with those of loading.
        questions: What the sources asked of a GPU.
        trace: What they asked of the machine, if that is wanted.
        graph: Which modules imported which.
        calls: Which functions ran; None if nothing of it is kept.
    """

    job: Job
    functions: dict[Unit, object]
    attempt: Callable[[], AbstractContextManager[None]]
    questions: Iterable[Question]
    trace: DependencyTrace | None
    graph: ImportGraph
    calls: Calls | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """What another process has loaded and compiled, for one compute capability.

    Attributes:
        units: The units, as the sources have made them.
        compiled: What became of them, for each target of that capability.
        questions: What the sources asked of a GPU.
        trace: What they asked of the machine, if that is wanted.
        sources: The project's files that were imported.
        needed: Those that each module needs, by its name; absolute paths.
    """

    units: tuple[Unit, ...]
    compiled: Compiled
    questions: tuple[Question, ...] = ()
    trace: DependencyTrace | None = None
    sources: tuple[Source, ...] = ()
    needed: Mapping[str, frozenset[str]] = field(default_factory=dict)


@contextmanager
def loaded(job: Job, front: FrontEnd, target: Target, tell: Callable[..., None]) -> Iterator[Loaded]:
    """Import what the job is compiled from, for `target`; the block is still watched for what it reads.

    Raises:
        AotcudaError: What is wrong with any of it, at the end of the block.
    """
    settle: Callable[[Any, Any], Sequence[Any]] = getattr(front, "settled", lambda unit, _: [unit])
    ask: Callable[[Target], AbstractContextManager[Iterable[Question]]] = getattr(
        front, "importing", lambda _: nullcontext(())
    )
    watch = (
        dependency_trace.watch(job.watched, job.names, registry.internals(job.frontend)) if job.trace else nullcontext()
    )
    functions: dict[Unit, object] = {}
    understood: dict[tuple[str, str, str], Unit] = {}
    graph = ImportGraph()
    calls = Calls() if job.cache is not None else None
    with failures.gathered() as attempt, watch as seen, ask(target) as questions, graph.watching():
        with attempt(), calls.watching() if calls is not None else nullcontext():
            if job.prelude:
                tell(step=f"importing {job.prelude}", done=0, total=0)
                _import_prelude(job, job.prelude)
            _load(job, front, settle, tell, attempt, functions, understood)
        yield Loaded(_settled(job, functions), functions, attempt, questions, seen, graph, calls)


def _load(
    job: Job,
    front: FrontEnd,
    settle: Callable[[Any, Any], Sequence[Any]],
    tell: Callable[..., None],
    attempt: Callable[[], AbstractContextManager[None]],
    functions: dict[Unit, object],
    understood: dict[tuple[str, str, str], Unit],
) -> None:
    for item in job.plans:
        for unit in item.units:
            tell(step=unit.loading, done=0, total=0)
            with attempt():
                found = front.load(unit, job.root)
                for settled in settle(unit, found):
                    functions[settled] = found
                    signature = front.resolve(settled, found)
                    _check_new(settled, understood.setdefault((unit.module, unit.name, signature), settled))
        with attempt():
            plan.check_symbols([unit for unit in functions if unit.module == item.config.name])


def _import_prelude(job: Job, name: str) -> None:
    key = "tool.aotcuda.prelude"
    file = getattr(python_source.import_for(key, name, job.root), "__file__", None) or ""
    if job.carry and not imports.is_of_project(file, job.import_roots):
        message = (
            f"{key}: {name} ({file}) is none of the project's files, and the JIT fallback needs it wherever the wheel "
            'is installed; copy it into the project, or set fallback = "error"'
        )
        raise ConfigError(message)


def needed(job: Job, graph: ImportGraph) -> dict[str, frozenset[str]]:
    """By module of the job, the files of all that its own sources import, and of what comes before them."""
    found = {}
    for item in job.plans:
        names = [*loading.tables(item.frontend).modules(item.config), *([job.prelude] if job.prelude else [])]
        names += _modules_of_types(item)
        found[item.config.name] = frozenset(imports.files_of(graph.needed(names)))
    return found


def in_vain(job: Job, graph: ImportGraph) -> list[str]:
    """Warnings of modules in place whose sources have the compiler itself: no launch asks for what is packaged."""
    registered = registry.find(job.frontend)
    instead = registered.in_place if registered is not None else ""
    return [
        f"{item.config.key}: it is packaged in place, and neither {item.config.name} nor what it imports has "
        f"{instead}, so that its launches go by the compiler itself; write from {instead} import cuda"
        for item in job.plans
        if item.in_place and instead not in graph.needed([item.config.name])
    ]


def _modules_of_types(item: ModulePlan) -> list[str]:
    """The modules that have types which signatures name by way of `tool.aotcuda.types`."""
    types = dict(item.config.types)
    waiting = [unit.signature for unit in item.units]
    found = []
    while waiting:
        words = set(_WORD.findall(waiting.pop()))
        used = [types.pop(name) for name in words & types.keys()]
        found += [text.partition(":")[0] for text in used if rules.ELSEWHERE.fullmatch(text)]
        waiting += used
    return found


def prelude_files(job: Job, graph: ImportGraph) -> list[tuple[str, Path]]:
    """The project's files that the prelude imports and that lie in no package of the wheel.

    Each with its path from the folder that it is imported from.
    """
    if job.prelude is None:
        return []
    modules = [
        *job.names,
        *(name for item in job.plans for name in loading.tables(item.frontend).modules(item.config)),
    ]
    packages = {name.partition(".")[0] for name in modules}
    files = imports.files_of(name for name in graph.needed([job.prelude]) if name.partition(".")[0] not in packages)
    folders = sorted((Path(root).resolve() for root in job.import_roots), key=lambda path: -len(path.parts))
    return [
        (next(path.relative_to(folder) for folder in folders if path.is_relative_to(folder)).as_posix(), path)
        for path in map(Path, sorted(files))
        if imports.is_of_project(str(path), job.import_roots)
    ]


def _settled(job: Job, units: Iterable[Unit]) -> Job:
    units = list(units)
    plans = [
        replace(item, units=tuple(unit for unit in units if unit.module == item.config.name)) for item in job.plans
    ]
    return replace(job, plans=tuple(plans))


def _check_new(unit: Unit, first: Unit) -> None:
    if unit is not first:
        message = (
            f"{unit.signature_key}: {unit.signature!r} is the same signature as {first.signature!r}; remove one of them"
        )
        raise ConfigError(message)


def targets(job: Job) -> list[list[Target]]:
    """The targets that units are compiled for, those of one compute capability together, the lowest first."""
    found: dict[tuple[int, int], dict[Target, None]] = {}
    for item in job.plans:
        for target in (target for unit in item.units for target in item.compiled_for(unit)):
            found.setdefault(target.capability, {})[target] = None
    return [sorted(found[capability], key=Target.sort_key) for capability in sorted(found)]


def elsewhere(job: Job, front: FrontEnd, which: Sequence[Sequence[Target]]) -> list[Elsewhere]:
    """Everything loaded and compiled once more, for each of several compute capabilities, in a process for each.

    Raises:
        AotcudaError: Something cannot be loaded or compiled.
    """
    tasks = [
        pool.Task(f"the sources, imported for {own[0]}", lambda own=own: _for(job, front, own))  # type: ignore[misc]
        for own in which
    ]
    return pool.run(tasks, 1, lambda _: None)


def _for(job: Job, front: FrontEnd, own: Sequence[Target]) -> Elsewhere:
    with loaded(job, front, own[0], lambda **_: None) as found:
        pass
    flows = [compiling(found.job, front, item, found.functions, own) for item in found.job.plans]
    compiled: Compiled = {}
    for of_module in pool.flow(flows, job.jobs, lambda _: None):
        compiled |= of_module
    return Elsewhere(
        units=tuple(found.functions),
        compiled=compiled,
        questions=tuple(found.questions),
        trace=found.trace,
        sources=imports.project_files(job.import_roots, {*job.extensions.values()}),
        needed=needed(found.job, found.graph),
    )


def compiling(
    job: Job,
    front: FrontEnd,
    item: ModulePlan,
    functions: Mapping[Unit, object],
    own: Sequence[Target],
    expected: Collection[tuple[Unit, Target]] = (),
    read: Callable[[], Compiled] = dict,
) -> pool.Flow[Compiled]:
    """Compile a module's units, for those of its targets that are among `own`.

    What is `expected` to be had already is not compiled unless it is missing in what `read` returns, which is called
    once, while all else is compiled.
    """
    wanted = {unit: [target for target in item.compiled_for(unit) if target in own] for unit in item.units}
    found: Compiled = {}

    def left_but(beside: Collection[tuple[Unit, Target]]) -> dict[Unit, list[Target]]:
        return {
            unit: [target for target in targets if (unit, target) not in beside and (unit, target) not in found]
            for unit, targets in wanted.items()
        }

    left = left_but(expected)
    meanwhile: Callable[[], None] | None = partial(_take, found, read)
    if not any(left.values()):
        _take(found, read)
        left, meanwhile = left_but(()), None
    # With fewer units than cores it is quicker to do several times what targets have in common.
    processes = -(-job.jobs // sum(len(plan.units) for plan in job.plans)) if hasattr(front, "compile_alike") else None
    if processes == 1 and hasattr(front, "is_fresh"):
        for built in (yield pool.Round(COMPILE, _rows(front, left, functions, job.jobs), meanwhile)):
            found |= built
        left, meanwhile = left_but(()), None
    while any(left.values()):
        shares = _batches(left) if processes is None else _each(left, processes)
        tasks = [_task(front, units, functions, share) for units, share in shares]
        for built in (yield pool.Round(COMPILE, tasks, meanwhile)):
            found |= built
        left, meanwhile = left_but(()), None
    return {(unit, target): found[unit, target] for unit, targets in wanted.items() for target in targets}


def _take(found: Compiled, read: Callable[[], Compiled]) -> None:
    found |= read()


COMPILE = 0
"""The rank of compiling, the first of a build's rounds."""


def _each(left: Mapping[Unit, Sequence[Target]], number: int) -> list[tuple[list[Unit], Sequence[Target]]]:
    """So many shares of each unit's targets, as far as there are."""
    return [
        ([unit], share)
        for unit, targets in left.items()
        for start in range(number)
        if (share := targets[start::number])
    ]


_ROW = 16
"""The most units that one process compiles: what a crash or a mistake throws away, and what memory has to hold."""


def _rows(
    front: FrontEnd, left: Mapping[Unit, Sequence[Target]], functions: Mapping[Unit, object], jobs: int
) -> list[pool.Task]:
    """Tasks that compile several units each, as many as are nothing to each other; the rest has to be compiled yet.

    To start a process and to copy what it writes takes a third as long as to compile a unit. Rows are long at first and
    shorter towards the end, down to one unit, and all processes have nothing more to do at about the same time.
    """
    waiting = {unit: targets for unit, targets in left.items() if targets}
    rows = []
    while waiting:
        size = min(-(-len(waiting) // (2 * jobs)), _ROW)
        rows.append({unit: waiting.pop(unit) for unit in list(waiting)[:size]})
    return [_row(front, row, functions) for row in rows]


def _row(front: FrontEnd, row: Mapping[Unit, Sequence[Target]], functions: Mapping[Unit, object]) -> pool.Task:
    def compiled() -> Compiled:
        found: Compiled = {}
        for unit, targets in row.items():
            one = _task(front, [unit], functions, targets)
            forget = telemetry.undo()
            try:
                with telemetry.step(one.title):
                    found |= one.run()
            except Exception:  # noqa: BLE001 (it is compiled by itself then, and what it raises is told)
                forget()
                break
            # A warning comes once in a process, and so may a question.
            if telemetry.warning_count() or any(map(_has_asked, found.values())) or not front.is_fresh():
                break
        return found

    first, *others = row
    more = f" and {len(others)} more" if others else ""
    title = f"{first.title}{more} for {', '.join(map(str, row[first]))}"
    return pool.Task(title, compiled, key=first.key, instead=dict, counted=_units_of, notes_steps=True)


def _has_asked(built: Any) -> bool:
    return getattr(built, "asked", None) is not None


def _units_of(compiled: Compiled) -> int:
    return len({unit for unit, _ in compiled})


def _batches(left: Mapping[Unit, Sequence[Target]]) -> list[tuple[list[Unit], Sequence[Target]]]:
    """Each target by itself, with the units that are of one batch together."""
    found: dict[tuple[object, Target], list[Unit]] = {}
    for unit, targets in left.items():
        for target in targets:
            found.setdefault((unit.batch or unit, target), []).append(unit)
    return [(units, [target]) for (_, target), units in found.items()]


def _task(
    front: FrontEnd, units: Sequence[Unit], functions: Mapping[Unit, object], targets: Sequence[Target]
) -> pool.Task:
    def made() -> Compiled:
        if hasattr(front, "compile_alike"):
            return {
                (unit, target): made
                for unit in units
                for target, made in front.compile_alike(unit, functions[unit], targets).items()
            }
        # A front end without device functions has no `compile_function`.
        return {
            (unit, target): (front.compile_kernel if unit.kind == "kernel" else front.compile_function)(
                unit, functions[unit], target
            )
            for target in targets
            for unit in units
        }

    def compiled() -> Compiled:
        with dependency_trace.again() as asked:
            found = made()
        return {key: replace(built, asked=asked) for key, built in found.items()} if asked else found

    first = units[0]
    title = first.title if len(units) == 1 else f"{first.batch}, {len(units)} kernels,"
    return pool.Task(f"{title} for {', '.join(map(str, targets))}", compiled, key=first.key)
