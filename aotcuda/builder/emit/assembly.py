"""Assemble the output of a build from the results of its workers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from aotcuda import manifest, registry
from aotcuda.builder.cache import stamps
from aotcuda.builder.emit import bundle, in_place, packs, report, sbom, wheel_files
from aotcuda.builder.emit.built import Output
from aotcuda.builder.link import inputs
from aotcuda.builder.plan import plan
from aotcuda.builder.project import files as project_files

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from aotcuda.builder.cache.stamps import Dependencies, Project
    from aotcuda.builder.compile.job import BuiltModule, Result
    from aotcuda.builder.config.model import Config
    from aotcuda.builder.plan.plan import ModulePlan
    from aotcuda.builder.plan.toolkits import Toolkit
    from aotcuda.common.stamp import Stamp


def assemble(
    settings: Config,
    table: Mapping[str, object],
    plans: Sequence[ModulePlan],
    project: Project,
    results: Sequence[Result],
    *,
    installed: Sequence[Toolkit],
    stamp: Stamp,
    editable: bool,
) -> Output:
    """Make the files of all modules, with warnings, notes and the bill of materials.

    Each toolkit has made one part of a module, and the last part has all images. `stamp` is empty if the build was not
    observed.
    """
    watch_warnings = stamps.watch_warnings(settings.watch, project.root)
    plan_warnings = [text for item in plans for text in item.warnings]
    warnings = [*watch_warnings, *plan_warnings, *(text for result in results for text in result.warnings)]
    launch_stamp = stamps.launch_stamp(stamp, project) if editable else None
    has_fallback = settings.fallback == "jit"
    by_module = parts_by_module(results)
    modules = [module for parts in by_module.values() for _, module in parts]
    carried_paths = {project.relative(str(project.root / path)) for module in modules for path, _ in module.carried}
    files: dict[str, bytes] = {}
    sizes: dict[str, int] = {}
    needed_sources: dict[str, str] = {}
    sources: dict[str, str] = {}
    for name, parts in by_module.items():
        dependencies = _dependencies([result for result, _ in parts], launch_stamp, table, project)
        if settings.runtime == "bundled" and not editable:
            dependencies = replace(
                dependencies, sources=bundle.sources(dependencies.sources, project.package_root, name)
            )
        if has_fallback and not editable:
            needed_sources = dict.fromkeys(_needed_sources(dependencies, carried_paths, project), name) | needed_sources
        if not editable:
            sources |= {item["path"]: item["sha256"] for item in dependencies.sources}
        rebuild = _rebuild(table, plans, parts[-1][1], project, editable=editable)
        files |= wheel_files.files(
            settings,
            parts,
            dependencies=dependencies,
            editable=editable,
            rebuild=rebuild if has_fallback and not _has_compiler_jit(parts[-1][1].plan) else None,
            warn=warnings.append,
            sizes=sizes,
        )
    files |= in_place.files(results, files, project.package_root, editable=editable)
    files |= packs.files((parts[-1][1].plan.config for parts in by_module.values()), files)
    return Output(
        files=files,
        package_root=project.relative_package_root,
        warnings=tuple(dict.fromkeys([*warnings, *report.size_warnings(files)])),
        notes=report.gpu_queries(query for result in results for query in result.queries),
        sbom=sbom.make(by_module, installed, packs.distributions(files)),
        needed=needed_sources,
        sources=sources,
        depends=tuple(stamps.files(stamp, project)),
        with_callbacks=tuple(name for name, parts in by_module.items() if parts[-1][1].callbacks),
        summary=report.Summary(
            modules=len(plans),
            kernels=len({(unit.module, unit.name) for item in plans for unit in item.kernels}),
            functions=len({(unit.module, unit.name) for item in plans for unit in item.functions}),
            targets=len({target for item in plans for target in item.targets}),
            seconds=0.0,
            size=sum(map(len, files.values())),
            steps=tuple(step for result in results for step in result.steps),
            code=sizes,
        ),
    )


def parts_by_module(results: Iterable[Result]) -> dict[str, list[tuple[Result, BuiltModule]]]:
    """Return the parts of each module, one for each toolkit; the last one has all images."""
    parts: dict[str, list[tuple[Result, BuiltModule]]] = {}
    for result in results:
        for built in result.modules:
            parts.setdefault(built.plan.config.name, []).append((result, built))
    return parts


def shard_output(shard: tuple[int, int], results: Sequence[Result], *, seconds: float) -> Output:
    """Return the output of a shard: no files, and a summary of the units that it compiled into the cache."""
    count, total = (sum(result.part[place] for result in results) for place in (0, 1))
    reused, made = (sum(getattr(result, name) for result in results) for name in ("reused", "made"))
    units = f"shard {shard[0]} of {shard[1]}: {count} of {total} kernels and device functions are in the build cache"
    steps = tuple(step for result in results for step in result.steps)
    counts = {"modules": 0, "kernels": count, "functions": 0, "targets": 0, "size": 0, "reused": reused, "made": made}
    return Output(
        files={},
        package_root="",
        warnings=tuple(dict.fromkeys(text for result in results for text in (*result.warnings, *result.problems))),
        notes=(f"{units}; {made} steps in {seconds:.1f} s, {reused} from the cache",),
        summary=report.Summary(**counts, seconds=seconds, steps=steps),
    )


def _has_compiler_jit(item: ModulePlan) -> bool:
    """Return True if the compiler's own JIT serves launches in place for which nothing is packaged."""
    registered = registry.find(item.frontend)
    return item.in_place and registered is not None and not registered.widens


def _dependencies(
    results: Sequence[Result], stamp: Stamp | None, table: Mapping[str, object], project: Project
) -> Dependencies:
    """Return the dependencies in a module's manifest: the sources, and in an editable install the stamp."""
    sources = stamps.sources(results, project)
    if stamp is None:
        return stamps.Dependencies(sources=sources)
    return stamps.make_dependencies(
        stamp, (item["path"] for result in results for item in result.sources), project, table
    )


def _needed_sources(dependencies: Dependencies, carried_paths: Collection[str], project: Project) -> list[str]:
    """Return the sources that the wheel must contain for the JIT fallback, in addition to those that it carries."""
    paths = [item["path"] for item in dependencies.sources if item["path"] not in carried_paths]
    return [path for path in paths if not _is_of_nested_project(path, project)]


def _is_of_nested_project(path: str, project: Project) -> bool:
    """Return True if a file belongs to a project inside this one, as in a workspace; that project has its own wheel."""
    return project_files.is_nested(Path(os.path.normpath(project.package_root / path)), project.root)


def _rebuild(
    table: Mapping[str, Any], plans: Sequence[ModulePlan], built: BuiltModule, project: Project, *, editable: bool
) -> manifest.Rebuild:
    """Return the inputs from which the JIT fallback builds a module again, for its manifest."""
    name, root, package_root = built.plan.config.name, project.root, project.package_root
    module_table: dict[str, Any] = {**table, "modules": {name: table["modules"][name]}}
    if not editable:
        module_table["modules"][name] = _with_copies(module_table["modules"][name], root)
    if "arch" in table:  # order and repetition make no difference
        module_table["arch"] = sorted(set(table["arch"]))
    folder = f"{name.replace('.', '/')}{manifest.FOLDER_SUFFIX}/{manifest.SOURCES}"
    return {
        "table": module_table if editable else _with_relative_globs(module_table, root, package_root),
        "names": {module: list(names) for module, names in plan.exported_names(plans).items()},
        "root": os.path.relpath(root, package_root) if editable else folder,
        "files": [_carried_file(path, Path(file).read_bytes()) for path, file in built.carried],
    }


def _carried_file(path: str, data: bytes) -> manifest.File:
    return {"path": path, "bytes": len(data), "sha256": manifest.digest(data)}


def _with_copies(module: Mapping[str, Any], root: Path) -> Mapping[str, Any]:
    """Return the table of a module, in which linked files outside of the project have the names of their copies."""
    items = module.get("link", [])
    paths = {str(item.get("path", "") if isinstance(item, dict) else item) for item in items} - {""}
    outside = inputs.outside_folders(paths, root)
    if not outside:
        return module
    names = {path: inputs.carried_name(inputs.place(root / path, root), root, outside) for path in paths}
    link: list[Any] = [
        {**item, "path": names[item["path"]]} if isinstance(item, dict) and "path" in item else item for item in items
    ]
    link = [names.get(item, item) if isinstance(item, str) else item for item in link]
    return {**module, "link": link}


def _with_relative_globs(table: dict[str, object], root: Path, package_root: Path) -> dict[str, object]:
    """Return `table` with the `watch` globs relative to the folder that holds the package.

    Globs that lead out of that folder are left out, since a wheel has no such files.
    """
    globs = cast("list[str]", table.get("watch", []))
    relative = [os.path.relpath(root / text, package_root) if not Path(text).is_absolute() else text for text in globs]
    inside = [text for text in relative if not text.startswith("..")]
    return {**table, "watch": inside} if globs else table
