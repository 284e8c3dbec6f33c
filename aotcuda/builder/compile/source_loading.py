"""Load the sources of units: once for all targets, or once for each if the sources query the target.

The order of imports is documented in docs/configuration.md: the prelude, then the sources in the order of the table.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda import registry
from aotcuda.arch import Target
from aotcuda.builder import failures
from aotcuda.builder.cache.unit_cache import UnitCache
from aotcuda.builder.compile import flows, imports, observer, pool, unit_compiling
from aotcuda.builder.compile.job import OtherImport
from aotcuda.builder.frontends import error_table, loading, python_source
from aotcuda.builder.plan import plan
from aotcuda.errors import CompileError, ConfigError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from aotcuda.builder.cache.compile_cache import CompileCache
    from aotcuda.builder.compile.job import ImportFor, Job
    from aotcuda.builder.compile.unit_compiling import Compiled
    from aotcuda.builder.frontends.protocol import FrontEnd, GpuQuery, Unit
    from aotcuda.common.stamp import Stamp
    from aotcuda.errors import AotcudaError
    from aotcuda.manifest import Source


@dataclass(slots=True)
class Loaded:
    """The loaded sources.

    Attributes:
        job: The job with the units that the front end has resolved.
        functions: The loaded object of each unit.
        attempt: A function that returns a context, whose errors are raised together with the errors of loading.
        queries: The GPU queries of the imported code.
        seen: The stamp of everything that was read.
        prelude_modules: The names of the modules that the prelude imported.
        warnings: A text for each kernel with recorded units that are left out.
    """

    job: Job
    functions: dict[Unit, object]
    attempt: Callable[[], AbstractContextManager[None]]
    queries: Iterable[GpuQuery]
    seen: Stamp
    prelude_modules: frozenset[str]
    warnings: tuple[str, ...] = ()


@contextmanager
def load_sources(job: Job, front: FrontEnd, target: Target, tell: Callable[..., None]) -> Iterator[Loaded]:
    """Import the source modules of the job for `target`; files that the block reads are observed, too.

    Raises:
        AotcudaError: Something cannot be loaded or compiled; raised at the end of the block.
    """
    importing: Callable[[Target], AbstractContextManager[Iterable[GpuQuery]]] = getattr(
        front, "importing", lambda _: nullcontext(())
    )
    sources = job.sources
    observing = observer.observing(sources.own, sources.watched, sources.watched_variables)
    functions: dict[Unit, object] = {}
    before, prelude_modules = frozenset(sys.modules), frozenset[str]()
    warnings: list[str] = []
    with failures.gather() as attempt, observing as seen, importing(target) as queries:
        with attempt():
            if sources.prelude:
                tell(step=f"importing {sources.prelude}", done=0, total=0)
                _import_prelude(job, sources.prelude)
                prelude_modules = frozenset(sys.modules) - before
            warnings = _load(job, front, tell, attempt, functions)
        yield Loaded(_with_units(job, functions), functions, attempt, queries, seen, prelude_modules, tuple(warnings))


def _load(
    job: Job,
    front: FrontEnd,
    tell: Callable[..., None],
    attempt: Callable[[], AbstractContextManager[None]],
    functions: dict[Unit, object],
) -> list[str]:
    """Load and resolve all units, and add them to `functions`.

    Returns:
        A warning for each kernel with recorded units that do not fit its source.
    """
    by_signature: dict[tuple[str, str, str], Unit] = {}
    left_out: dict[str, list[AotcudaError]] = {}
    for item in job.plans:
        for unit in item.units:
            tell(step=unit.loading, done=0, total=0)
            collecting = (
                _collecting_errors(unit, left_out, in_pack=item.config.pack) if item.in_place else nullcontext()
            )
            with attempt(), collecting:
                loaded = front.load(unit)
                for completed, signature in front.resolve(unit, loaded):
                    first = by_signature.setdefault((unit.module, unit.name, signature), completed)
                    if unit.recorded and first is not completed:
                        continue  # both have the same signature
                    functions[completed] = loaded
                    _check_new(completed, first)
        with attempt():
            plan.check_symbols([unit for unit in functions if unit.module == item.config.name])
    return [f"{errors[0]}; {_variant_count(len(errors))} left out" for errors in left_out.values()]


@contextmanager
def _collecting_errors(unit: Unit, left_out: dict[str, list[AotcudaError]], *, in_pack: bool) -> Iterator[None]:
    """Collect the error of a recorded unit that does not fit its source; at run time the compiler's JIT compiles it.

    Errors of units from the tables are raised. An error of a source module that cannot be imported is collected for a
    pack, whose sources belong to others, and raised for the project's own sources.
    """
    try:
        yield
    except (CompileError, SourceError) as error:
        cannot_import = isinstance(error.__cause__, Exception)
        if not unit.recorded or (cannot_import and not in_pack):
            raise
        left_out.setdefault(unit.module if cannot_import else unit.key, []).append(error)


def _variant_count(count: int) -> str:
    return "its one variant is" if count == 1 else f"its {count} variants are"


def _import_prelude(job: Job, name: str) -> None:
    key = "tool.aotcuda.prelude"
    file = getattr(python_source.import_for(key, name, job.root), "__file__", None) or ""
    if job.product.carry and not imports.is_of_project(file, job.sources.import_roots):
        message = (
            f"{key}: {name} ({file}) is not a file of the project, and the JIT fallback needs it where the wheel is "
            'installed; copy it into the project, or set fallback = "error"'
        )
        raise ConfigError(message)


def unused_packaging(job: Job, sources: Iterable[Source]) -> list[str]:
    """Return a warning for each module in place that imports the compiler itself: launches use no packaged kernels."""
    registered = registry.find(job.frontend)
    module = registered.in_place if registered is not None else ""
    names = "triton, tl" if module == "aotcuda.triton" else "cuda"
    if any(module.encode() in Path(source["path"]).read_bytes() for source in sources):
        return []
    return [
        f"{item.config.key}: it is packaged in place, and neither {item.config.name} nor a module that it imports has "
        f"{module}, so the compiler itself would launch its kernels; write from {module} import {names}"
        for item in job.plans
        if item.in_place and not item.config.pack
    ]


_SUBMODULE_IMPORT = re.compile(r"^(?:from|import) +(numba(?:_cuda_mlir)?\.cuda[\w.]*)", re.MULTILINE)


def direct_imports(job: Job, sources: Iterable[Source]) -> list[str]:
    """Return a warning for each source in place that imports a submodule of Numba, which users may lack."""
    if not any(item.in_place for item in job.plans):
        return []
    warnings = []
    for source in sources:
        text = Path(source["path"]).read_text(encoding="utf-8", errors="replace")
        for line in _SUBMODULE_IMPORT.finditer(text) if "aotcuda.numba" in text else ():
            where = f"{error_table.relative(source['path'], job.root)}:{text.count(chr(10), 0, line.start()) + 1}"
            package, _, rest = line[1].partition(".")
            warnings.append(
                f"{where}: it imports {line[1]}, so users of the wheel need {package}; write from aotcuda.{package} "
                f"import cuda, and {rest}.NAME in place of NAME"
            )
    return warnings


def prelude_files(job: Job, prelude_modules: Iterable[str]) -> list[tuple[str, Path]]:
    """Return the project's files that the prelude imports and that are in no package of the wheel.

    Returns:
        For each file its path relative to the folder from which it is imported, and its absolute path.
    """
    if job.sources.prelude is None:
        return []
    modules = [
        *job.names,
        *(name for item in job.plans for name in loading.tables(item.frontend).modules(item.config)),
    ]
    packages = {name.partition(".")[0] for name in modules}
    names = [name for name in prelude_modules if name.partition(".")[0] not in packages]
    files = imports.files_of(names, job.sources.import_roots)
    folders = sorted(map(Path, imports.with_resolved(job.sources.import_roots)), key=lambda path: -len(path.parts))
    return [
        (next(path.relative_to(folder) for folder in folders if path.is_relative_to(folder)).as_posix(), path)
        for path in map(Path, sorted(files))
        if imports.is_of_project(str(path), job.sources.import_roots)
    ]


def _with_units(job: Job, units: Iterable[Unit]) -> Job:
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


def targets_by_capability(job: Job) -> list[list[Target]]:
    """Return the targets that units are compiled for, those of one compute capability together, the lowest first."""
    targets: dict[tuple[int, int], set[Target]] = {}
    for item in job.plans:
        for target in (target for unit in item.units for target in item.compiled_for(unit)):
            targets.setdefault(target.capability, set()).add(target)
    return [sorted(targets[capability], key=Target.sort_key) for capability in sorted(targets)]


def load_for_target(
    front: FrontEnd, cache: CompileCache, job: Job, wanted: ImportFor, tell: Callable[..., None]
) -> OtherImport:
    """Import the sources for the `wanted` targets of one compute capability, and compile them.

    Raises:
        AotcudaError: Something cannot be loaded or compiled.
    """
    targets = wanted.targets
    tell(step=f"importing the sources for {targets[0]}", done=0, total=0)
    with load_sources(job, front, targets[0], lambda **_: None) as loaded:
        pass
    plans = [item.only_with(wanted.part) if wanted.part is not None else item for item in loaded.job.plans]
    units = UnitCache(job, cache, [loaded.seen]) if job.shared is not None else None
    cached = units.find(unit_compiling.targets_by_unit(plans, targets)) if units is not None else {}
    done, total = len(cached), unit_compiling.step_count(plans, targets)

    def step(task: pool.Task) -> None:
        nonlocal done
        done += task.steps
        tell(step=task.title, done=done, total=total)

    compiled_flows = [
        unit_compiling.compile_units(loaded.job, front, item, loaded.functions, targets, cached) for item in plans
    ]
    compiled: Compiled = {}
    for of_module in flows.run_flows(compiled_flows, job.jobs, step):
        compiled |= of_module
    if units is not None:
        units.store({key: built for key, built in compiled.items() if key not in cached})
    return OtherImport(
        units=tuple(unit for item in plans for unit in item.units),
        compiled=compiled,
        queries=tuple(loaded.queries),
        seen=loaded.seen,
        sources=imports.project_files(job.sources.import_roots, {*job.sources.extensions.values()}),
    )
