"""The build's entry points: for the hatchling hook, and for `aotcuda build`."""

from __future__ import annotations

import difflib
import os
import tomllib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aotcuda import dependencies, manifest
from aotcuda import missing_hook as forgotten
from aotcuda.builder import manifest_dependencies as depends
from aotcuda.builder import output, plan, rebuild, stages, toolkits
from aotcuda.builder import wheel_files as artifacts
from aotcuda.builder.config import parser as config
from aotcuda.builder.worker.job import Job
from aotcuda.errors import ConfigError
from aotcuda.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from aotcuda.builder.worker.job import BuiltModule, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a build made.

    Attributes:
        files: Content of each file, by its path from the folder that holds the package.
        package_root: That folder in the project (`.` or `src`), relative to the project.
        warnings: What the user should know.
    """

    files: dict[str, bytes]
    package_root: str
    warnings: tuple[str, ...]


def build(
    table: Mapping[str, object], root: Path, import_roots: Sequence[Path] = (), *, editable: bool = False
) -> Output:
    """Build every module that `table`, the content of `[tool.aotcuda]`, asks for.

    Args:
        table: The configuration.
        root: The project's folder, with its pyproject.toml.
        import_roots: Folders that its packages are imported from, beside `src` and `root` itself.
        editable: The files will lie in the source tree, and their sources may be edited after the build.

    Raises:
        AotcudaError: The configuration, a source or the toolchain is at fault. Nothing has been written.
    """
    settings = config.parse(table, environ=os.environ)
    plans = plan.make(settings)
    root = root.resolve()
    roots = _import_roots(root, import_roots)
    output.sweep([module.name for module in settings.modules], roots)
    for module in settings.modules:
        _check_package_exists(module.name, module.key, roots, root)
        _check_name_is_free(module.name, module.key, roots, root)
    job = Job(
        root=str(root),
        import_roots=tuple(map(str, roots)),
        arch_key=settings.arch_key,
        plans=plans,
        names=plan.names(plans),
        jobs=len(os.sched_getaffinity(0)),
        carry=settings.fallback == "jit" and not editable,
        trace=editable,
        watched=depends.patterns(settings.watch, root) if editable else (),
    )
    made = _made(job)
    package_root = _package_root(settings.modules[0].name, roots)
    project = depends.Project(root=root, package_root=package_root, names=tuple(plan.names(plans)))
    files: dict[str, bytes] = {}
    for parts in made.values():
        found = _dependencies([result for result, _ in parts], table, project, editable=editable)
        files |= artifacts.files(
            settings,
            parts,
            version=__version__,
            dependencies=found,
            editable=editable,
            rebuild=rebuild.describe(table, plans, parts[-1][1], root, package_root, editable=editable)
            if settings.fallback == "jit"
            else None,
        )
    return Output(
        files=files,
        package_root=os.path.relpath(package_root, root),
        warnings=tuple(
            dict.fromkeys(text for parts in made.values() for result, _ in parts for text in result.warnings)
        ),
    )


def _made(job: Job) -> dict[str, list[tuple[Result, BuiltModule]]]:
    """What `job` makes, by module: a result of each toolkit that took part, the last one with all images."""
    made: dict[str, list[tuple[Result, BuiltModule]]] = {}
    for toolkit, plans in plan.share(job.plans, toolkits.installed()):
        images = {name: parts[-1][1].images for name, parts in made.items()}
        for result in stages.run(replace(job, plans=plans, toolkit=toolkit, images=images)):
            for built in result.modules:
                made.setdefault(built.plan.config.name, []).append((result, built))
    return made


def _ignore(text: str) -> None:
    del text


def build_project(project: Path, out: Path | None = None, warn: Callable[[str], None] = _ignore) -> list[Path]:
    """Build the project in folder `project` into folder `out`, with no wheel; returns the files written.

    Args:
        project: A folder with a pyproject.toml, or that file itself.
        out: Where the files go, as they would lie beside the package in a wheel; `build/aotcuda` in the project by
            default.
        warn: Is told what the user should know.

    Raises:
        AotcudaError: As for `build`; nothing has been written.
    """
    pyproject = project if project.is_file() else project / "pyproject.toml"
    try:
        table = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    except FileNotFoundError:
        message = f"{pyproject} does not exist; name a folder with a pyproject.toml"
        raise ConfigError(message) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        message = f"{pyproject} is not valid TOML: {error}"
        raise ConfigError(message) from None
    section = table.get("tool", {}).get("aotcuda")
    if not isinstance(section, dict):
        message = f"{pyproject} has no [tool.aotcuda] table; the documentation's first page shows one"
        raise ConfigError(message)
    hint = forgotten.in_project(str(pyproject.parent))
    built = build(section, pyproject.parent)
    for text in [*([hint] if hint else []), *built.warnings]:
        warn(text)
    return output.write(built.files, out if out is not None else pyproject.parent / "build" / "aotcuda")


def is_generated(path: Path) -> bool:
    """Whether `path` is a module that an earlier build wrote."""
    with path.open("rb") as file:
        return file.read(len(artifacts.MARK)) == artifacts.MARK.encode()


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


def _check_name_is_free(module: str, key: str, roots: Sequence[Path], root: Path) -> None:
    parts = module.split(".")
    for folder in roots:
        base = folder.joinpath(*parts)
        for path in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
            if path.is_file() and not is_generated(path):
                message = (
                    f"{key}: the project already has {path.relative_to(root)}, where the generated module would go; "
                    "choose another module name"
                )
                raise ConfigError(message)


def _dependencies(
    results: Sequence[Result], table: Mapping[str, object], project: depends.Project, *, editable: bool
) -> depends.Dependencies:
    """What the results depend on; in wheels their sources alone, and in an editable install the table as well."""
    found = depends.of(results, project, lasting=True)
    if not editable:
        return depends.Dependencies(sources=found.sources)
    pyproject = project.relative(project.root / "pyproject.toml")
    table_of: manifest.Source = {"path": f"{pyproject}{dependencies.TABLE}", "sha256": dependencies.table_digest(table)}
    sources = sorted([*found.sources, table_of], key=lambda item: item["path"])
    return replace(found, sources=sources)
