"""The build's entry points: for the hatchling hook, and for `aotcuda build`."""

from __future__ import annotations

import difflib
import os
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from aotcuda.arch import Target
from aotcuda.builder import (
    cached_files,
    capacity,
    consistency,
    fallback_inputs,
    in_place,
    output,
    output_conflicts,
    plan,
    progress,
    report,
    sbom,
    stages,
    stamps,
    toolkits,
    wheel_files,
)
from aotcuda.builder.build_cache import remote
from aotcuda.builder.build_cache import settings as build_settings
from aotcuda.builder.build_cache.build_stamp import BuildStamp
from aotcuda.builder.build_cache.hashing import NamelessError
from aotcuda.builder.build_cache.store import Store, trim
from aotcuda.builder.config import parser
from aotcuda.builder.worker import process
from aotcuda.builder.worker.job import Job
from aotcuda.cache import compilers
from aotcuda.common import project_file, system, variables
from aotcuda.common.stamp import Stamp
from aotcuda.errors import BuildError, ConfigError, ManifestError
from aotcuda.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from aotcuda.builder.build_cache.remote import Fetched
    from aotcuda.builder.build_cache.settings import Settings
    from aotcuda.builder.config.model import Config
    from aotcuda.builder.plan import ModulePlan
    from aotcuda.builder.progress import Progress
    from aotcuda.builder.report import Summary
    from aotcuda.builder.stamps import Dependencies
    from aotcuda.builder.worker.job import BuiltModule, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """What a build took from the build cache.

    Attributes:
        whole: All of it, with nothing imported and nothing compiled.
        steps: How many results of its steps: compiled units, merged functions, linked images.
        made: How many it made.
    """

    whole: bool = False
    steps: int = 0
    made: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a build made.

    Attributes:
        files: Content of each file, by its path from the folder that holds the package.
        package_root: That folder in the project (`.` or `src`), relative to the project.
        warnings: What the user should know.
        notes: What the build decided that the sources asked for; a part of its report.
        sbom: Its bill of materials, CycloneDX JSON.
        needed: The sources that a wheel must have for the JIT fallback, by their paths in it, each with a module that
            is compiled from it.
        summary: What the build did.
        reuse: What came from the build cache.
        depends: The files and folders that it was made from, pyproject.toml apart; for a build that is `followed`.
    """

    files: dict[str, bytes]
    package_root: str
    warnings: tuple[str, ...]
    summary: Summary
    notes: tuple[str, ...] = ()
    sbom: bytes = b""
    needed: Mapping[str, str] = field(default_factory=dict)
    depends: tuple[Path, ...] = ()
    reuse: Reuse = Reuse()


def build(
    table: Mapping[str, object],
    root: Path,
    import_roots: Sequence[Path] = (),
    *,
    editable: bool = False,
    extensions: Mapping[str, Path] = MappingProxyType({}),
    followed: bool = False,
    watcher: Progress | None = None,
) -> Output:
    """Build every module that `table`, the content of `[tool.aotcuda]`, asks for.

    Args:
        table: The configuration.
        root: The project's folder, with its pyproject.toml.
        import_roots: Folders that its packages are imported from, beside `src` and `root` itself.
        editable: The files will lie in the source tree, and their sources may be edited after the build.
        extensions: Extension modules that are in none of those folders, where each was compiled.
        followed: What it depends on is wanted.
        watcher: Shows the progress; by default as `progress.make` has it for standard error.

    Raises:
        AotcudaError: The configuration, a source or the toolchain is at fault. Nothing has been written.
    """
    start = time.monotonic()
    watcher = watcher or progress.make(sys.stderr)
    settings = _settings(table)
    plans = plan.make(settings)
    root = root.resolve()
    roots = _import_roots(root, import_roots)
    output.sweep([module.name for module in settings.modules], roots)
    _check_modules(plans, roots, root, extensions)
    package_root = _package_root(settings.modules[0].name, roots)
    project = stamps.Project(
        root=root, package_root=package_root, names=tuple(plan.names(plans)), tops=stamps.tops(settings)
    )
    installed = toolkits.installed()
    cache = build_settings.find([item.frontend for item in plans], installed, root)
    folders = [str(package_root), *map(str, roots), *build_settings.searched()]
    known = [table, settings, folders, compilers.everything(), editable, sorted(extensions)]
    kept = _kept(cache, project, known, watcher)
    if kept is not None and (found := _cached(kept, plans, roots, project, editable=editable)) is not None:
        reused = replace(found, summary=replace(found.summary, seconds=time.monotonic() - start))
        return reused if followed else replace(reused, depends=())
    if cache is not None and kept is not None and not kept.store.answers:
        cache = replace(cache, url=None, sends=False)  # a worker need not wait for what does not answer, nor warn again
    carry = settings.fallback == "jit" and not editable
    observe = editable or followed or kept is not None
    python = project.python(roots) if observe else Stamp()
    job = Job(
        root=str(root),
        import_roots=tuple(map(str, roots)),
        arch_key=settings.arch_key,
        plans=plans,
        names=plan.names(plans),
        jobs=capacity.processes(),
        carry=carry,
        observe=observe,
        own=project.own,
        watched=stamps.patterns(settings.watch, root) if observe else (),
        watched_variables=settings.watch_env,
        prelude=settings.prelude,
        known_faults=settings.known_faults,
        extensions={name: str(path.resolve()) for name, path in extensions.items()},
        cache=cache,
    )
    results, made = _made(job, installed, watcher)
    stamp = stamps.of(results, project, python, _set_by_workers(plans, installed)) if observe else Stamp()
    stamp = stamps.with_versions(stamp)
    lasting = stamps.lasting(stamp, project) if editable else None
    depends = tuple(stamps.files(stamp, project)) if observe else ()
    unmatched = stamps.unmatched(settings.watch, root)
    warnings = [*unmatched, *(text for result in results for text in result.warnings)]
    files: dict[str, bytes] = {}
    needed: dict[str, str] = {}
    carried = {
        project.relative(str(root / path))
        for parts in made.values()
        for _, module in parts
        for path, _ in module.carried
    }
    for name, parts in made.items():
        dependent = _dependencies([result for result, _ in parts], lasting, table, project)
        if carry:
            needed |= _needed(name, dependent, carried, project)
        files |= wheel_files.files(
            settings,
            parts,
            version=__version__,
            dependencies=dependent,
            editable=editable,
            rebuild=fallback_inputs.describe(table, plans, parts[-1][1], root, package_root, editable=editable)
            if settings.fallback == "jit"
            else None,
            warn=warnings.append,
        )
    files |= in_place.files(results, files, package_root, editable=editable)
    built = Output(
        files=files,
        package_root=os.path.relpath(package_root, root),
        warnings=tuple(dict.fromkeys([*warnings, *report.size_warnings(files)])),
        notes=report.gpu_queries(question for result in results for question in result.questions),
        sbom=sbom.make(made, installed, version=__version__),
        needed=needed,
        depends=depends if followed else (),
        summary=_summary(plans, files, results, time.monotonic() - start),
        reuse=Reuse(steps=sum(result.reused for result in results), made=sum(result.made for result in results)),
    )
    if kept is None:
        return built
    if any(result.unanswered for result in results):
        kept.store.ask_no_more()
    if not any(result.unseen for result in results):
        kept.whole.keep(stamp, _packed(built, depends), ", ".join(made))
    trim(kept.cache)
    problems = [*(text for result in results for text in result.problems), *kept.store.problems]
    return replace(
        built,
        warnings=tuple(dict.fromkeys([*built.warnings, *problems])),
        summary=replace(built.summary, reused=built.reuse.steps, made=built.reuse.made),
    )


def _settings(table: Mapping[str, object]) -> Config:
    """Read the table, and check the system and the environment variables."""
    if (problem := system.why_not("builds")) is not None:
        raise BuildError(problem)
    variables.check()
    return parser.parse(table, environ=os.environ)


class _Kept(NamedTuple):
    """The build cache, and this build in it."""

    cache: Settings
    store: Store
    whole: BuildStamp


def _kept(cache: Settings | None, project: stamps.Project, known: Sequence[object], watcher: Progress) -> _Kept | None:
    """The build cache; None if there is none, or the build has no name in it."""
    if cache is None:
        return None

    def fetch(url: str, wanted: list[str]) -> Fetched:
        watcher.show(f"looking in {remote.shown(url)}", 0, 0)
        try:
            return remote.fetch(url, wanted, watcher.tick)
        finally:
            watcher.clear()

    store = Store(cache, fetch, remote.send)
    try:
        return _Kept(cache, store, BuildStamp(store, cache, str(project.root), known))
    except NamelessError:
        return None


def _set_by_workers(plans: Sequence[ModulePlan], installed: Sequence[toolkits.Toolkit]) -> set[str]:
    """The environment variables that workers have values of their own for, which follow from what is known."""
    names = {item.frontend for item in plans}
    toolkit = next(iter(installed), None)
    given = process.environment(os.environ, *sorted(names), toolkit=toolkit)
    return {name for name in {*given, *os.environ} if given.get(name) != os.environ.get(name)}


def _packed(built: Output, depends: Iterable[Path]) -> object:
    """A build as its entry has it."""
    told = built.summary
    counts = (told.modules, told.kernels, told.functions, told.targets)
    named = [str(path) for path in depends]
    return (built.files, built.warnings, built.notes, dict(built.needed), built.sbom, named, counts)


_PACKED = tuple[
    dict[str, bytes], tuple[str, ...], tuple[str, ...], dict[str, str], bytes, list[str], tuple[int, int, int, int]
]
"""The type of what `_packed` gives."""


def _cached(
    kept: _Kept,
    plans: Sequence[ModulePlan],
    roots: Sequence[Path],
    project: stamps.Project,
    *,
    editable: bool,
) -> Output | None:
    """Return this very build from the cache; None if it is not there, or is not what the build would make."""
    found = kept.whole.get(_PACKED)
    if found is None:
        return None
    folders = (project.root, *roots)
    try:
        cached_files.check(found[0], plans, folders, project.package_root, version=__version__, editable=editable)
        return _unpacked(found, os.path.relpath(project.package_root, project.root))
    except (ManifestError, ValueError):
        kept.store.spoilt()
    return None


def _unpacked(found: Any, package_root: str) -> Output:
    """The build that `_packed` packed; its steps are those that were made once.

    Raises:
        ValueError: A name of what it depends on is none.
    """
    files, warnings, notes, needed, bill, named, (modules, kernels, functions, targets) = found
    return Output(
        files=files,
        package_root=package_root,
        warnings=warnings,
        notes=notes,
        needed=needed,
        sbom=bill,
        depends=tuple(map(Path, named)),
        summary=report.Summary(
            modules=modules,
            kernels=kernels,
            functions=functions,
            targets=targets,
            seconds=0,
            size=sum(map(len, files.values())),
            whole=True,
        ),
        reuse=Reuse(whole=True),
    )


def _summary(
    plans: Sequence[ModulePlan], files: Mapping[str, bytes], results: Sequence[Result], seconds: float
) -> Summary:
    return report.Summary(
        modules=len(plans),
        kernels=len({(unit.module, unit.name) for item in plans for unit in item.kernels}),
        functions=len({(unit.module, unit.name) for item in plans for unit in item.functions}),
        targets=len({target for item in plans for target in item.targets}),
        seconds=seconds,
        size=sum(map(len, files.values())),
        steps=tuple(step for result in results for step in result.steps),
    )


def _made(
    job: Job, installed: Sequence[toolkits.Toolkit], watcher: Progress
) -> tuple[list[Result], dict[str, list[tuple[Result, BuiltModule]]]]:
    """What `job` makes: all results, and by module a result of each toolkit that took part, the last with all images.

    Raises:
        AotcudaError: As for `build`.
    """
    results: list[Result] = []
    made: dict[str, list[tuple[Result, BuiltModule]]] = {}
    for toolkit, plans in plan.share(job.plans, installed):
        images = {name: parts[-1][1].images for name, parts in made.items()}
        for result in stages.run(replace(job, plans=plans, toolkit=toolkit, images=images), watcher=watcher):
            results.append(result)
            for built in result.modules:
                made.setdefault(built.plan.config.name, []).append((result, built))
    for parts in made.values():
        consistency.check(_import(built) for _, built in parts)
    return results, made


def _import(built: BuiltModule) -> consistency.Import:
    """A module as one toolkit has built it."""
    item = built.plan
    pairs = [*zip(item.kernels, built.kernels, strict=True), *zip(item.functions, built.functions, strict=True)]
    compiled = {(unit, item.compiled_for(unit)[0]): found for unit, found in pairs}
    first = min((target for _, target in compiled), key=Target.sort_key)
    return consistency.Import(first, frozenset(item.units), compiled)


def _check_modules(
    plans: Sequence[ModulePlan], roots: Sequence[Path], root: Path, extensions: Mapping[str, Path]
) -> None:
    """Refuse modules that would lie in no package or have a name that is taken, and folders that are none."""
    for item in plans:
        module = item.config
        _check_package_exists(module.name, module.key, roots, root)
        if not item.in_place:
            output_conflicts.check_module(module.name, module.key, roots, root, extensions)
        for folder in module.options.include_dirs:
            if not (root / folder).is_dir():
                message = f"{module.key}.options.include-dirs: {root / folder} is no folder; correct it or take it out"
                raise ConfigError(message)


def _import_roots(root: Path, given: Sequence[Path]) -> list[Path]:
    candidates = [*(path.resolve() for path in given), root / "src", root]
    return list(dict.fromkeys(path for path in candidates if path.is_dir()))


def _package_root(module: str, roots: Sequence[Path]) -> Path:
    top = module.partition(".")[0]
    return next((path for path in roots if (path / top).is_dir()), roots[0] if "." in module else roots[-1])


def _check_package_exists(module: str, key: str, roots: Sequence[Path], root: Path) -> None:
    """Refuse a name that would make a package of its own in the wheel, most likely a misspelt one."""
    *parents, _ = module.split(".")
    for depth, part in enumerate(parents, 1):
        above = [folder.joinpath(*parents[: depth - 1]) for folder in roots]
        if any((folder / part).is_dir() for folder in above):
            continue
        names = [path.name for folder in above if folder.is_dir() for path in folder.iterdir() if _is_package(path)]
        near = difflib.get_close_matches(part, names, n=1)
        package = ".".join(parents[:depth])
        meant = ".".join([*parents[: depth - 1], near[0], *module.split(".")[depth:]]) if near else ""
        hint = f"did you mean {meant}?" if meant else "name a module in a package of the project"
        message = f"{key}: there is no package {package} in {root}, in which the module would lie; {hint}"
        raise ConfigError(message)


def _is_package(path: Path) -> bool:
    return path.name.isidentifier() and path.is_dir() and any(path.glob("*.py"))


def _needed(module: str, found: Dependencies, carried: Collection[str], project: stamps.Project) -> dict[str, str]:
    """The files that the wheel must have so that the JIT fallback can compile a module, with the module's name."""
    paths = [item["path"] for item in found.sources if item["path"] not in carried]
    return {path: module for path in paths if not _is_of_another(path, project)}


def _is_of_another(path: str, project: stamps.Project) -> bool:
    """Whether a file belongs to a project that lies inside this one, as in a workspace; it has a wheel of its own."""
    folder = (project.package_root / path).resolve().parent
    while folder != project.root and folder.is_relative_to(project.root):
        if (folder / project_file.FILE_NAME).is_file():
            return True
        folder = folder.parent
    return False


def _dependencies(
    results: Sequence[Result], stamp: Stamp | None, table: Mapping[str, object], project: stamps.Project
) -> Dependencies:
    """What a module's manifest lists: in wheels its sources alone; an editable install has its whole stamp."""
    sources = stamps.sources(results, project)
    if stamp is None:
        return stamps.Dependencies(sources=sources)
    return stamps.listed(stamp, (item["path"] for result in results for item in result.sources), project, table)
