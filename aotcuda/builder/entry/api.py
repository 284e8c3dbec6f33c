"""Build the modules of a project: the entry point for build back ends and for `aotcuda build`."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from aotcuda.arch import Target
from aotcuda.builder.cache import cached_build, stamps
from aotcuda.builder.cache import settings as build_settings
from aotcuda.builder.compile.job import Job, Others, Product, Shared, Sources
from aotcuda.builder.config import parser
from aotcuda.builder.emit import assembly, bundle, progress
from aotcuda.builder.plan import capacity, consistency, plan, toolkits
from aotcuda.builder.project import layout
from aotcuda.builder.write import output, temporary
from aotcuda.cache import compilers
from aotcuda.common import system, variables
from aotcuda.common.stamp import Stamp, table_digest
from aotcuda.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from aotcuda.builder.cache.settings import Settings
    from aotcuda.builder.compile.job import BuiltModule, Result
    from aotcuda.builder.config.model import Config
    from aotcuda.builder.emit.built import Output
    from aotcuda.builder.emit.progress import Progress
    from aotcuda.builder.plan.plan import ModulePlan


def build(
    table: Mapping[str, object],
    root: Path,
    import_roots: Sequence[Path] = (),
    *,
    editable: bool = False,
    extensions: Mapping[str, Path] = MappingProxyType({}),
    with_dependencies: bool = False,
    watcher: Progress | None = None,
    shard: tuple[int, int] | None = None,
    from_cache_only: bool = False,
    costs: Mapping[str, float] = MappingProxyType({}),
    processes: int = 0,
) -> Output:
    """Build every module in `table`, the content of `[tool.aotcuda]`. Nothing is written outside of the build cache.

    Args:
        table: The configuration.
        root: The project's folder, with its pyproject.toml.
        import_roots: Folders from which its packages are imported, in addition to `src` and `root`.
        editable: The files are written into the source tree, and sources may be edited after the build.
        extensions: Compiled extension modules outside of those folders, with their files.
        with_dependencies: Return `Output.depends`; it is empty otherwise.
        watcher: The display of progress; by default `progress.make` for standard error.
        shard: Compile one shard into the build cache and make no files: the number of the shard, and of all shards.
        from_cache_only: Compile nothing: shards have filled the cache. `AOTCUDA_FROM_CACHE_ONLY=1` has the same effect.
        costs: Recorded seconds of kernels and functions, by module and symbol, to divide them among shards.
        processes: The number of processes that compile at a time; 0 for as many as the machine allows.

    Raises:
        AotcudaError: The configuration, a source or the toolchain is at fault.
    """
    start = time.monotonic()
    watcher = watcher or progress.make(sys.stderr)
    if (problem := system.why_not("builds")) is not None:
        raise BuildError(problem)
    variables.check()
    inputs = _read(table, root.resolve(), import_roots, extensions, editable=editable)
    cache = build_settings.find(inputs.front_ends, inputs.installed, inputs.project.root)
    entry = _open_entry(inputs, cache)
    built = entry.find(inputs.plans, inputs.roots, inputs.assemble) if entry is not None and shard is None else None
    if built is None:
        python = inputs.project.files(inputs.roots, inputs.plans)
        from_cache_only |= os.environ.get("AOTCUDA_FROM_CACHE_ONLY", "").strip() == "1"
        shared = Shared(shard=shard, costs=dict(costs)) if shard is not None or from_cache_only else None
        results, shard_warnings = _compile(_job(inputs, cache, processes), shared, inputs, python, watcher)
        if shard is not None:
            return assembly.shard_output(shard, results, seconds=time.monotonic() - start)
        built = _assemble(results, inputs, python, entry)
        built = replace(built, warnings=tuple(dict.fromkeys([*built.warnings, *shard_warnings])))
    if inputs.settings.runtime == "bundled" and not editable:
        built = bundle.add_run_time(built, inputs.settings, inputs.project.package_root)
    summary = replace(built.summary, seconds=time.monotonic() - start)
    return replace(built, summary=summary, depends=built.depends if with_dependencies else ())


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The modules of a build, with its folders and toolkits."""

    table: Mapping[str, object]
    settings: Config
    plans: tuple[ModulePlan, ...]
    project: stamps.Project
    roots: Sequence[Path]
    extensions: Mapping[str, Path]
    installed: Sequence[toolkits.Toolkit]
    editable: bool

    @property
    def front_ends(self) -> list[str]:
        """Return the front end of each module."""
        return [item.frontend for item in self.plans]

    def assemble(self, results: Sequence[Result], stamp: Stamp) -> Output:
        """Return the files of the modules."""
        parts = (self.settings, self.table, self.plans, self.project, results)
        return assembly.assemble(*parts, installed=self.installed, stamp=stamp, editable=self.editable)


def _read(
    table: Mapping[str, object],
    root: Path,
    import_roots: Sequence[Path],
    extensions: Mapping[str, Path],
    *,
    editable: bool,
) -> _Inputs:
    """Read and check the configuration and the layout of the project."""
    settings = parser.parse(table, environ=os.environ)
    plans = plan.make(settings, root)
    roots = layout.import_roots(root, import_roots)
    output.sweep([module.name for module in settings.modules], roots)
    layout.check(plans, roots, root, extensions)
    package_root = layout.package_root(settings.modules[0].name, roots)
    names = tuple(plan.exported_names(plans))
    project = stamps.Project(root=root, package_root=package_root, names=names, tops=stamps.top_packages(settings))
    return _Inputs(table, settings, plans, project, roots, extensions, toolkits.installed(), editable)


def _open_entry(inputs: _Inputs, cache: Settings | None) -> cached_build.CachedBuild | None:
    """Return the entry of whole builds of the project in the build cache; None if there is no cache."""
    roots = [str(inputs.project.package_root), *map(str, inputs.roots), *build_settings.search_folders()]
    named = [
        inputs.table,
        inputs.settings,
        roots,
        compilers.distributions(),
        inputs.editable,
        sorted(inputs.extensions),
    ]
    return cached_build.open_entry(cache, inputs.project, named)


def _job(inputs: _Inputs, cache: Settings | None, processes: int) -> Job:
    """Return the job of all plans, for workers of any front end and toolkit."""
    settings, project = inputs.settings, inputs.project
    return Job(
        root=str(project.root),
        arch_key=settings.arch_key,
        plans=tuple(item for item in inputs.plans if item.units),
        names=plan.exported_names(inputs.plans),
        jobs=processes or capacity.processes(),
        sources=Sources(
            import_roots=tuple(map(str, inputs.roots)),
            extensions={name: str(path.resolve()) for name, path in inputs.extensions.items()},
            prelude=settings.prelude,
            own=project.prefixes,
            watched=stamps.patterns(settings.watch, project.root),
            watched_variables=settings.watch_env,
        ),
        product=Product(
            carry=not inputs.editable and settings.fallback == "jit",
            known_faults=settings.known_faults,
            incomplete=settings.incomplete,
        ),
        cache=cache,
    )


def _compile(
    job: Job, shared: Shared | None, inputs: _Inputs, python: Stamp, watcher: Progress
) -> tuple[list[Result], list[str]]:
    """Do a job here, or let an executor compile it; return the results, and the warnings of the executor's shards."""
    warnings: list[str] = []
    name = os.environ.get("AOTCUDA_EXECUTOR", "").strip()
    with ExitStack() as stack:
        if shared is None and name:
            from aotcuda.builder.shards import executor  # noqa: PLC0415 (few builds have one)

            if job.cache is None or not job.cache.writes:
                folder = stack.enter_context(temporary.folder()) / "cache"
                cache = build_settings.in_folder(folder, inputs.front_ends, inputs.installed, inputs.project.root)
                job = replace(job, cache=cache)
            warnings = executor.fill(name, job, inputs.table, inputs.roots, inputs.installed, watcher)
            shared = Shared()
        if shared is not None:
            job = replace(job, shared=_with_inputs(shared, job, inputs.table, python))
        return _run(job, inputs.installed, watcher), warnings


def _with_inputs(shared: Shared, job: Job, table: Mapping[str, object], python: Stamp) -> Shared:
    """Return the part of a machine in a shared build, with its inputs.

    Raises:
        BuildError: There is no cache.
    """
    if job.cache is None:
        option = "--shard" if shared.shard is not None else "--from-cache-only"
        message = (
            f"{option} needs the build cache, and there is none; set {build_settings.WHERE} to a folder that all "
            "shards share"
        )
        raise BuildError(message)
    files = {path: digest for (question, path), digest in python.reads.items() if question == "file"}
    inputs = {os.path.relpath(path, job.root): digest for path, digest in sorted(files.items())}
    inputs["[tool.aotcuda]"] = table_digest(table)
    return replace(shared, inputs=inputs)


def _assemble(
    results: Sequence[Result], inputs: _Inputs, python: Stamp, entry: cached_build.CachedBuild | None
) -> Output:
    """Return the files of the modules, and store them in the build cache.

    Raises:
        BuildError: A file has changed during the build.
    """
    stamp = _make_stamp(results, inputs, python)
    built = inputs.assemble(results, stamp)
    _check_unchanged(results)
    return entry.store(built, stamp, results) if entry is not None else built


def _run(job: Job, installed: Sequence[toolkits.Toolkit], watcher: Progress) -> list[Result]:
    """Run a job for each toolkit; the last result of a module has all its images."""
    from aotcuda.builder.plan import stages  # noqa: PLC0415 (a build from the cache starts no process)

    results: list[Result] = []
    for toolkit, plans in plan.share(job.plans, installed):
        images = {built.plan.config.name: built.images for result in results for built in result.modules}
        results += stages.run(replace(job, plans=plans, toolkit=toolkit, others=Others(images=images)), watcher=watcher)
    for parts in assembly.parts_by_module(results).values():
        consistency.check(_describe_import(built) for _, built in parts if built.kernels or built.functions)
    return results


def _check_unchanged(results: Sequence[Result]) -> None:
    """Refuse a build during which a file was saved that the build had read before.

    The files of the wheel would be newer than its machine code, and the manifest would have their digests.

    Raises:
        BuildError: A file has another content now.
    """
    reads = Stamp().add(result.seen for result in results).reads
    files = {key: answer for key, answer in reads.items() if key[0] == "file" and answer is not None}
    if (change := Stamp(files).changed()) is not None:
        message = f"{change} during the build, which may have read its old content; build again"
        raise BuildError(message)


def _describe_import(built: BuiltModule) -> consistency.Import:
    """Return a module's import by one toolkit, to compare it with others."""
    item = built.plan
    pairs = [*zip(item.kernels, built.kernels, strict=True), *zip(item.functions, built.functions, strict=True)]
    compiled = {(unit, item.compiled_for(unit)[0]): result for unit, result in pairs}
    first = min((target for _, target in compiled), key=Target.sort_key)
    return consistency.Import(first, frozenset(item.units), compiled)


def _make_stamp(results: Sequence[Result], inputs: _Inputs, python: Stamp) -> Stamp:
    """Return the stamp of a build, without variables whose values in workers follow from other inputs."""
    from aotcuda.builder.compile import process  # noqa: PLC0415 (a build from the cache starts no process)

    toolkit = next(iter(inputs.installed), None)
    variables = process.environment(os.environ, *sorted({*inputs.front_ends}), toolkit=toolkit)
    differences = {name for name in {*variables, *os.environ} if variables.get(name) != os.environ.get(name)}
    return stamps.with_versions(stamps.make_stamp(results, inputs.project, python, differences))
