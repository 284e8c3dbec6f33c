"""Make the stamp of a build, and the parts of it that manifests hold.

A stamp has the `[tool.aotcuda]` table, all Python files of the project's packages, other files that were imported or
read (`compile/observer.py`), linked files and their headers, and environment variables. `aotcuda.common.stamp`
compares stamps.
"""

from __future__ import annotations

import glob
import os
import site
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda import manifest, registry
from aotcuda.builder.frontends import loading
from aotcuda.builder.plan import toolkits
from aotcuda.builder.project import files as project_files
from aotcuda.builder.project.files import INSTALLED
from aotcuda.common import project_file
from aotcuda.common.stamp import ALL_NAMES, CACHE_KEY, TABLE, Stamp, table_digest, variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aotcuda.builder.compile.job import Result
    from aotcuda.builder.config.model import Config
    from aotcuda.builder.plan.plan import ModulePlan

# Prefixes of variables that build tools set only during a build, as in the temporary environment of `pip install -e .`.
_BUILDERS = ("PIP_", "UV_", "HATCH_", "PEP517_", "_PYPROJECT_HOOKS_", "PYTHON")
_PATHS = ("PATH", "VIRTUAL_ENV", "TMPDIR")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The project's files.

    Attributes:
        root: Its folder.
        package_root: The folder that holds the package, which paths in manifests are relative to.
        names: The modules that the build adds to its wheel.
        tops: The first parts of the names of its packages and modules.
        is_installed: True for an installed package that the JIT fallback compiles; its folder has other packages too.
    """

    root: Path
    package_root: Path
    names: tuple[str, ...]
    tops: frozenset[str]
    is_installed: bool = False

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Return the prefixes of the paths of its files."""
        parts = [self.package_root / top for top in sorted(self.tops)] if self.is_installed else []
        folders = [self.root, *parts] if self.is_installed else [self.root, self.package_root]
        if self.is_installed and self.root == self.package_root:
            folders.remove(self.root)
        below = [f"{folder}/" for folder in folders]
        return tuple(dict.fromkeys([*below, *(f"{part}.py" for part in parts)]))

    def owns(self, path: str) -> bool:
        """Return True for a path of the project."""
        folder = next((prefix for prefix in self.prefixes if path.startswith(prefix)), None)
        return folder is not None and INSTALLED.isdisjoint(path[len(folder) :].split("/"))

    @property
    def relative_package_root(self) -> str:
        """Return the folder that holds the package, relative to the project's folder."""
        return os.path.relpath(self.package_root, self.root)

    def relative(self, path: str) -> str:
        """Return a path as manifests have it."""
        return Path(os.path.relpath(path, self.package_root)).as_posix()

    def is_generated(self, path: str) -> bool:
        """Return True for a path that this build writes."""
        for name in self.names:
            base = str(self.package_root.joinpath(*name.split(".")))
            folder = base + manifest.FOLDER_SUFFIX
            if path in (f"{base}.py", f"{base}.pyi", folder) or path.startswith(f"{folder}/"):
                return True
        return False

    def files(self, roots: Iterable[Path], plans: Iterable[ModulePlan]) -> Stamp:
        """Return the stamp of the packages' Python files below `roots`, and of the plans' files of variants."""
        stamp = Stamp()
        for base in (root / top for root in roots for top in sorted(self.tops)):
            paths = [f"{base}.py"]
            for folder, _, files in project_files.walk(str(base), str.isidentifier):
                stamp.add_question("modules", folder)
                stamp.add_question("file", os.path.join(folder, project_file.FILE_NAME))  # of a project inside this one
                paths += [os.path.join(folder, name) for name in files if name.endswith(".py")]
            for path in paths:
                if os.path.isfile(path) and not self.is_generated(path):
                    stamp.add_question("file", path)
        for path in (path for item in plans for path in item.recorded):
            stamp.add_question("file", path)
        return stamp


def top_packages(settings: Config) -> frozenset[str]:
    """Return the top packages of the project's modules, sources and prelude."""
    names = [module.name for module in settings.modules]
    names += [settings.prelude] if settings.prelude else []
    for module in settings.modules:
        names += loading.tables(settings.frontend_of(module)).modules(module)
    return frozenset(name.partition(".")[0] for name in names)


def patterns(globs: Iterable[str], folder: Path) -> tuple[str, ...]:
    """Return the configuration's `watch` as absolute globs, from the folder that they are relative to."""
    return tuple(os.path.normpath(folder / text) for text in globs)


def watch_warnings(globs: Iterable[str], folder: Path) -> list[str]:
    """Return a warning for each glob of the configuration's `watch` that matches nothing: it may be misspelt."""
    warnings = []
    for number, text in enumerate(globs):
        paths = glob.iglob(os.path.join(folder, text), recursive=True, include_hidden=True)
        if not any(map(os.path.lexists, paths)):  # for `DIR/**`, iglob also yields a DIR that does not exist
            warnings.append(
                f"tool.aotcuda.watch[{number}]: {text!r} matches no file in {folder}; correct it, or add one"
            )
    return warnings


def make_stamp(results: Iterable[Result], project: Project, python: Stamp, own_variables: Iterable[str] = ()) -> Stamp:
    """Return the stamp of a build, from the results of its workers.

    `python` are the project's Python files as they were before the build, `own_variables` those that workers set.
    """
    from aotcuda.builder.compile import process  # noqa: PLC0415 (a build from the cache starts no process)

    results = list(results)
    stamp = Stamp().add(result.seen for result in results).add([python])
    front_ends = {module.plan.frontend for result in results for module in result.modules}
    compilers = registry.variables(sorted(front_ends))
    set_for_workers = process.environment({}, *front_ends, toolkit=next(iter(toolkits.installed()), None))
    left_out = {*set_for_workers, *own_variables, "LD_LIBRARY_PATH", "CUDA_PATH"}
    reads = {key: answer for key, answer in stamp.reads.items() if not project.is_generated(key[1])}
    variables = {
        name: digest
        for name, digest in stamp.variables.items()
        if name not in left_out and not name.startswith(compilers.prefixes)
    }
    if ALL_NAMES in variables:  # a worker's names follow from this process's
        variables[ALL_NAMES] = variable(ALL_NAMES)
    stamp = Stamp(reads, variables)
    for name in (CACHE_KEY, *compilers.kept):
        stamp.add_variable(name)
    return stamp


def with_versions(stamp: Stamp) -> Stamp:
    """Return a stamp without the times at which packages were installed, for builds that know all versions.

    Package installers build in environments that are new each time.
    """
    return Stamp({key: answer for key, answer in stamp.reads.items() if key[0] != "status"}, stamp.variables)


def launch_stamp(stamp: Stamp, project: Project) -> Stamp:
    """Return the part of a build's stamp that launches compare; their environment is not the build's.

    Left out are files that are installed in the build's environment, and variables that build tools set.
    """
    installed = _installed_folders()
    reads = {
        (question, path): answer
        for (question, path), answer in stamp.reads.items()
        if project.owns(path) or not path.startswith(installed)
    }
    variables = {
        name: digest
        for name, digest in stamp.variables.items()
        if name not in (*_PATHS, ALL_NAMES) and not name.startswith(_BUILDERS)
    }
    return Stamp(reads, variables)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """The dependencies that a manifest lists."""

    sources: list[manifest.Source] = field(default_factory=list)
    reads: list[manifest.Read] = field(default_factory=list)
    variables: dict[str, str | None] = field(default_factory=dict)


def make_dependencies(
    stamp: Stamp, sources: Iterable[str], project: Project, table: Mapping[str, object] | None
) -> Dependencies:
    """Return the dependencies that a manifest lists, from a stamp.

    `sources` are the absolute paths of compiled or imported files; the project's own are the result's `sources`.
    `table` is the `[tool.aotcuda]` table if that is an input.
    """
    sources = {*sources}
    project_sources: list[manifest.Source] = []
    reads: list[manifest.Read] = []
    for (question, path), answer in sorted(stamp.reads.items()):
        name = project.relative(path) if project.owns(path) else path
        if question == "file" and answer is not None and path in sources and project.owns(path):
            project_sources.append({"path": name, "sha256": answer})
        else:
            reads.append({"ask": question, "path": name, "answer": answer})
    if table is not None:
        path = project.relative(str(project.root / project_file.FILE_NAME))
        project_sources.append({"path": f"{path}{TABLE}", "sha256": table_digest(table)})
    return Dependencies(
        sources=sorted(project_sources, key=lambda item: item["path"]),
        reads=reads,
        variables=dict(sorted(stamp.variables.items())),
    )


def sources(results: Sequence[Result], project: Project) -> list[manifest.Source]:
    """Return the project's files that were imported or linked, as wheels list them."""
    digests = {project.relative(item["path"]): item["sha256"] for result in results for item in result.sources}
    return [{"path": path, "sha256": digests[path]} for path in sorted(digests)]


def files(stamp: Stamp, project: Project) -> list[Path]:
    """Return the files and folders of a stamp that exist, for build systems.

    Installed packages and the standard library are left out, because build systems do not expect them to change.
    Missing files are left out, because build systems cannot use them.
    """
    installed = _installed_folders()
    return sorted(
        Path(path)
        for (_, path), answer in stamp.reads.items()
        if answer is not None and (project.owns(path) or not path.startswith(installed))
    )


def _installed_folders() -> tuple[str, ...]:
    """Return the folders of installed packages: of this process's environment, and those on its path."""
    prefixes = {sys.prefix, sys.base_prefix, site.PREFIXES[0]}
    for entry in sys.path:
        parts = Path(entry).parts
        if INSTALLED & {*parts} and len(parts) > 4:
            prefixes.add(str(Path(entry).parents[2]))  # of PREFIX/lib/pythonX.Y/site-packages
    return tuple(
        f"{prefix}/{name}/" for prefix in sorted(prefixes) for name in ("bin", "lib", "lib64", "include", "share")
    )
