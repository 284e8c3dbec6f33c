"""Do a job in the worker: import the compiler and the user's modules, and build everything.

`aotcuda.builder.compile.process` starts it in a clean environment, below a reaper (`process_tree`). It reads a pickled
`Job` from standard input, and sends a message for each step, then one with the result or the error. The output of user
modules goes to standard error.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
import traceback
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda import registry
from aotcuda.builder.cache.compile_cache import CompileCache
from aotcuda.builder.compile import division, imports, packaging, source_loading, telemetry
from aotcuda.builder.compile.ipc import Failed, Finished
from aotcuda.builder.compile.job import ImportFor, Job, NeedsImports, OtherImport, Result
from aotcuda.builder.compile.pipeline import Pipeline
from aotcuda.builder.emit import packs, report
from aotcuda.builder.frontends import loading
from aotcuda.builder.frontends.protocol import Session
from aotcuda.builder.link import nvjitlink
from aotcuda.builder.plan import toolchain
from aotcuda.common.stamp import Stamp
from aotcuda.errors import AotcudaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aotcuda.builder.compile.ipc import Sender
    from aotcuda.builder.compile.packaging import Packager
    from aotcuda.builder.compile.source_loading import Loaded
    from aotcuda.builder.frontends.protocol import FrontEnd
    from aotcuda.manifest import Source

    Answer = Result | OtherImport | NeedsImports


def main(sender: Sender) -> int:
    """Do the job on standard input, send messages about it, and return the exit status."""
    try:
        job: Job = pickle.load(sys.stdin.buffer)
    except (EOFError, pickle.UnpicklingError):
        return 1  # the process that started this one was killed while it wrote
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        with telemetry.collecting_warnings(job.root):
            result = _with_telemetry(build(job, _timed(sender)), job)
    except AotcudaError as error:
        _print_warnings()
        if os.environ.get("AOTCUDA_DEBUG") == "1":
            traceback.print_exception(error)
        sender.send(Failed(error))
        return 1
    sender(step="handing the result over", done=0, total=0)
    sender.send(Finished(result))
    return 0


def _timed(tell: Callable[..., None]) -> Callable[..., None]:
    """Return a function that collects the times of the worker's own steps and calls `tell`."""
    phases = telemetry.Phases()

    def tell_and_time(*, step: str, done: int, total: int, slowest: str = "") -> None:
        phases.begin(None if total else step)
        tell(step=step, done=done, total=total, slowest=slowest)

    return tell_and_time


def _with_telemetry(result: Answer, job: Job) -> Answer:
    """Return `result` with the collected warnings and times; a JIT build prints its warnings instead."""
    if isinstance(result, NeedsImports):
        return result
    if job.product.kind == "jit":
        _print_warnings()
    collected = telemetry.take()
    if isinstance(result, OtherImport):
        return replace(result, warnings=tuple(collected.warnings), steps=tuple(collected.steps))
    texts = [*collected.warnings, *(text for other in job.others.imports for text in other.warnings)]
    steps = [*collected.steps, *(step for other in job.others.imports for step in other.steps)]
    warnings = dict.fromkeys([*result.warnings, *report.count_repeated(texts)])
    return replace(result, warnings=tuple(warnings), steps=tuple(steps))


def _print_warnings() -> None:
    for text in report.count_repeated(telemetry.take().warnings):
        print(f"aotcuda: warning: {text}", file=sys.stderr)


def build(job: Job, tell: Callable[..., None]) -> Answer:
    """Import, compile, link and pack everything in `job`.

    Returns:
        The result; or what was compiled for `Job.import_for`; or the other compute capabilities, for which the sources
        have to be imported first.

    Raises:
        AotcudaError: Something in the project or the toolchain is wrong.
    """
    cache = CompileCache(job.cache, job.root, job.frontend)
    front, versions = _start_compiler(job, cache, tell)
    folder = job.plans[0].config.pack_from  # the same for all modules of a stage
    installed = str(Path(job.root, folder)) if folder else ""
    imports.prepare_imports(job.sources.import_roots, job.names, job.sources.extensions, installed)
    packager = packaging.make(job)
    if job.import_for is not None:
        return source_loading.load_for_target(front, cache, job, job.import_for, tell)
    pipeline, loaded, part = _load_sources(job, front, packager, cache, tell)
    others = source_loading.targets_by_capability(job)[1:]
    if others and not job.others.imports and any(query.depends_on_target for query in loaded.queries):
        return NeedsImports(imports=tuple(ImportFor(targets=tuple(targets), part=part) for targets in others))
    if job.shard is not None:
        counts = pipeline.run_shard()
        return _with_cache(Result(warnings=(*loaded.warnings, *pipeline.warnings), part=counts), cache)
    sources = imports.project_files(job.sources.import_roots, {*job.sources.extensions.values()})
    modules = pipeline.run()
    modules = [replace(module, pack=packs.origin(module.plan.config)) for module in modules]
    toolchain.check_loaded()
    if job.product.carry:
        prelude = source_loading.prelude_files(loaded.job, loaded.prelude_modules)
        carried = tuple((name, str(path)) for name, path in prelude)
        modules = [replace(module, carried=(*module.carried, *carried)) for module in modules]
        sources = tuple(source for source in sources if source["path"] not in {str(path) for _, path in prelude})
    warnings = []
    if job.product.kind != "jit":
        warnings += source_loading.unused_packaging(loaded.job, sources)
        warnings += source_loading.direct_imports(loaded.job, sources)
    queries = [*loaded.queries, *(query for other in pipeline.other_imports for query in other.queries)]
    result = Result(
        toolchain={
            "cuda": ".".join(map(str, toolchain.toolkit_version())),
            "nvjitlink": nvjitlink.version(),
            **packager.tools(),
            "python": ".".join(map(str, sys.version_info[:2])),
            **versions,
        },
        modules=tuple(modules),
        sources=_all_sources(pipeline, sources, job),
        warnings=tuple(dict.fromkeys([*warnings, *loaded.warnings, *pipeline.warnings])),
        seen=_input_stamp(loaded, pipeline),
        linkable=pipeline.linkable,
        queries=tuple(dict.fromkeys(queries)),
        unseen=pipeline.inputs.undetermined(),
    )
    return _with_cache(result, cache)


def _with_cache(result: Result, cache: CompileCache) -> Result:
    """Return `result` with the counts and problems of the build cache."""
    return replace(result, reused=cache.reused, made=cache.made, problems=cache.problems)


def _start_compiler(job: Job, cache: CompileCache, tell: Callable[..., None]) -> tuple[FrontEnd, dict[str, str]]:
    """Load the toolkit and start the compiler; return the front end and the versions of its components."""
    toolchain.load(job.toolkit)
    key, jit = _front_end_key(job), job.product.kind == "jit"
    try:
        toolchain.check_libraries(packs=not jit)
    except ImportError as error:
        raise loading.not_installed(job.frontend, key, error, jit=jit) from error
    registered = registry.find(job.frontend)
    targets = list(dict.fromkeys(target for item in job.plans for target in item.targets))
    for target in () if registered is not None and registered.assembles else targets:
        toolchain.check_target(target, job.arch_key, job.frontend)
    session = Session(root=job.root, cache=cache, targets=targets, arch_key=job.arch_key, warm=not job.from_cache_only)
    with _one_thread(), _without_collection():
        front = loading.compiler(job.frontend, key, jit=jit)
        tell(step="starting the compiler", done=0, total=0)
        versions = loading.prepare(front, session, job.frontend, key, jit=jit)
    toolkit = job.toolkit and (job.toolkit.cuda, job.toolkit.linker)
    cache.add_tools((toolkit, toolchain.toolkit_version(), versions))
    return front, versions


def _load_sources(
    job: Job, front: FrontEnd, packager: Packager, cache: CompileCache, tell: Callable[..., None]
) -> tuple[Pipeline, Loaded, frozenset[tuple[str, str]] | None]:
    """Import the sources for the lowest compute capability, and read linked files; also return the shard's part."""
    (first, *_), *_ = source_loading.targets_by_capability(job)
    with source_loading.load_sources(job, front, first, tell) as loaded:
        tell(step="reading what is linked", done=0, total=0)
        with loaded.attempt():
            division.divide(loaded, front)
            pipeline = Pipeline(loaded.job, front, packager, loaded.functions, tell, cache=cache)
    return pipeline, loaded, pipeline.share(loaded.seen)


def _all_sources(pipeline: Pipeline, imported: Sequence[Source], job: Job) -> tuple[Source, ...]:
    """Return the project's files that were imported or linked, each once; `imported` are those of this process."""
    by_others = (source for other in pipeline.other_imports for source in other.sources)
    by_functions = _imported_by_functions(pipeline.seen, job.sources.import_roots)
    every = (*by_others, *by_functions, *imported, *pipeline.inputs.linked_files())
    return tuple({source["path"]: source for source in every}.values())


def _input_stamp(loaded: Loaded, pipeline: Pipeline) -> Stamp:
    """Return the stamp of all inputs of the sources, the linker and the tools."""
    tools = pipeline.inputs.tools(target for item in loaded.job.plans for target in item.targets)
    of_tools = Stamp({("file", path): digest for path, digest in tools})
    of_others = (other.seen for other in pipeline.other_imports)
    return Stamp().add([loaded.seen, *of_others, pipeline.seen, pipeline.inputs.stamp(), of_tools])


def _imported_by_functions(seen: Stamp, roots: Sequence[str]) -> Iterator[Source]:
    """Yield the project's files that functions of its sources imported when the compiler ran them."""
    read = {
        path: digest
        for (question, path), digest in seen.reads.items()
        if question == "file" and digest is not None and path.endswith(".py") and imports.is_of_project(path, roots)
    }
    imported = imports.files_of(list(sys.modules), roots) if read else ()
    for path, digest in read.items():
        if path not in imported:
            yield {"path": path, "sha256": digest}


@contextmanager
def _one_thread() -> Iterator[None]:
    """Load NumPy in the block with a BLAS that starts no threads, unless the user has set their number.

    OpenBLAS stops its threads before each fork and starts them again, which takes a twelfth of a build's processor
    time. With one thread, the results of sources do not depend on the number of cores.
    """
    name = "OPENBLAS_NUM_THREADS"
    if name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]  # the library read the variable when it was loaded


@contextmanager
def _without_collection() -> Iterator[None]:
    """Exempt the objects that the block makes from garbage collection, in the block and after it.

    A compiler makes hundreds of thousands of objects that stay. Searching them takes an eighth of the time of imports.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _front_end_key(job: Job) -> str:
    """Return the key that names the job's front end, and the modules that use it, as the beginning of errors."""
    names = [item.config.name for item in job.plans]
    more = f" and {len(names) - 2} more modules" if len(names) > 3 else ""
    return f"{job.plans[0].frontend_key}: the front end of {', '.join(names[:2] if more else names)}{more}"
