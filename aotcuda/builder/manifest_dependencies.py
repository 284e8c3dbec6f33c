"""What images depend on, as their manifest says it: made from what the imports were seen to ask of the machine.

The project's own files are listed with the digests of their content. Everything else is a question with its answer:
there may be many such files, and large ones, and who writes them sets their times.
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
from aotcuda.builder import toolkits
from aotcuda.builder.worker import dependency_trace, process
from aotcuda.common import dependencies, project_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aotcuda.builder.worker.dependency_trace import DependencyTrace
    from aotcuda.builder.worker.job import Result

_CONTENT = frozenset(["content", "stat", "filled", "names"])
"""The questions whose answer is another one after a file, or a folder, was changed."""

_LARGE = 1 << 24
"""From how many bytes on a file of the project is known by size and time too."""

# What tools that build set for a build alone: `pip install -e .` runs in an environment that is gone afterwards.
_BUILDERS = ("PIP_", "UV_", "HATCH_", "PEP517_", "_PYPROJECT_HOOKS_", "PYTHON")
_PATHS = ("PATH", "VIRTUAL_ENV", "TMPDIR")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """Where the project lies.

    Attributes:
        root: Its folder.
        package_root: The folder that holds the package, which paths in manifests are relative to.
        names: The modules that its wheel gains.
        tops: Its packages; None if all in the folders is its own.
    """

    root: Path
    package_root: Path
    names: tuple[str, ...]
    tops: frozenset[str] | None = None

    def own(self, name: str) -> Path | None:
        """The path of a file that is the project's, below one of its folders."""
        for path in (Path(name), Path(name).resolve()):
            installed = not dependency_trace.INSTALLED.isdisjoint(path.parts)
            below = path.relative_to(self.package_root).parts if path.is_relative_to(self.package_root) else ()
            if below and (not installed if self.tops is None else below[0].removesuffix(".py") in self.tops):
                return path
            if path.is_relative_to(self.root) and not installed:
                return path
        return None

    def relative(self, path: Path) -> str:
        """An own path as manifests have it."""
        return Path(os.path.relpath(path, self.package_root)).as_posix()

    def is_generated(self, path: str) -> bool:
        """Whether a path is one of those that this very build writes."""
        for name in self.names:
            base = str(self.package_root.joinpath(*name.split(".")))
            folder = base + manifest.FOLDER_SUFFIX
            if path in (f"{base}.py", f"{base}.pyi", folder) or path.startswith(f"{folder}/"):
                return True
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What a manifest lists.

    Attributes:
        sources: The project's own files.
        reads: What else was asked.
        variables: SHA-256 of environment variables.
    """

    sources: list[manifest.Source] = field(default_factory=list)
    reads: list[manifest.Read] = field(default_factory=list)
    variables: dict[str, str | None] = field(default_factory=dict)


def patterns(globs: Iterable[str], folder: Path) -> tuple[str, ...]:
    """The configuration's `watch` as absolute globs, from the folder that they are relative to."""
    return tuple(os.path.normpath(folder / text) for text in globs)


def unmatched(globs: Iterable[str], folder: Path) -> list[str]:
    """Return a warning for each glob of the configuration's `watch` that matches nothing: it may be misspelt."""
    found = []
    for number, text in enumerate(globs):
        paths = glob.iglob(os.path.join(folder, text), recursive=True, include_hidden=True)  # noqa: PTH118, PTH207
        if not any(map(os.path.lexists, paths)):  # of `**` it gives the folder before, there or not
            found.append(f"tool.aotcuda.watch[{number}]: {text!r} matches no file in {folder}; correct it, or add one")
    return found


def table_source(table: Mapping[str, object], project: Project) -> manifest.Source:
    """`[tool.aotcuda]`, as what depends on it lists it: the rest of that file may be edited."""
    path = project.relative(project.root / project_file.FILE_NAME)
    return {"path": f"{path}{dependencies.TABLE}", "sha256": dependencies.table_digest(table)}


def files(results: Iterable[Result], project: Project) -> list[Path]:
    """The files and folders that are there and decide what `results` have, as build systems ask for them.

    Left out are what is installed and the standard library, which no build system expects to change, and what was
    looked for in vain, which none can be told of.
    """
    found = of(results, project, lasting=True)
    named = [source["path"] for source in found.sources]
    named += [read["path"] for read in found.reads if read["ask"] in _CONTENT]
    paths = {Path(os.path.normpath(project.package_root / name)) for name in named}
    return sorted(path for path in paths if path.exists())


def of(
    results: Iterable[Result],
    project: Project,
    *,
    lasting: bool = False,
    own_variables: Iterable[str] = (),
    module: str | None = None,
) -> Dependencies:
    """What the images depend on that `results` are about.

    Args:
        results: What workers built, with what they saw.
        project: The project.
        lasting: The environment of the build is not that of the launches, as with `pip install -e .`: leave out what
            is installed in it.
        own_variables: Environment variables that workers have values of their own for.
        module: The module that the images are of; None for all that the results have.
    """
    results = list(results)
    seen = dependency_trace.joined(result.trace for result in results if result.trace is not None)
    imported = {item["path"]: item["sha256"] for result in results for item in result.sources}
    apart = set() if module is None else set(imported).difference(*(result.needed[module] for result in results))
    sources = {project.relative(Path(path)): digest for path, digest in imported.items() if path not in apart}
    questions: list[manifest.Read] = []
    installed = _installed() if lasting else ()
    for (ask, name), answer in sorted(seen.reads.items()):
        if project.is_generated(name) or (apart and str(Path(name).resolve()) in apart):
            continue
        path = project.own(name)
        if path is None:
            if not (
                lasting
                and (ask == "module" or name.startswith(installed) or dependency_trace.INSTALLED & {*Path(name).parts})
            ):
                questions.append({"ask": ask, "path": name, "answer": answer})
        elif ask == "content" and isinstance(answer, list) and answer[0] < _LARGE:
            sources[project.relative(path)] = _digest(name, seen)
        else:
            questions.append({"ask": ask, "path": project.relative(path), "answer": answer})
    front_ends = {module.plan.frontend for result in results for module in result.modules}
    compilers = registry.variables(sorted(front_ends))
    taken = {
        *process.environment({}, *front_ends, toolkit=next(iter(toolkits.installed()), None)),
        *own_variables,
        "LD_LIBRARY_PATH",
        "CUDA_PATH",
        *(_PATHS if lasting else ()),
    }
    variables = {
        name: digest
        for name, digest in sorted(seen.variables.items())
        if name not in taken and not name.startswith((*compilers.prefixes, *(_BUILDERS if lasting else ())))
    }
    return Dependencies(
        sources=[{"path": path, "sha256": sources[path]} for path in sorted(sources)],
        reads=questions,
        variables=variables | {name: dependencies.variable(name) for name in (dependencies.CACHE_KEY, *compilers.kept)},
    )


def _digest(path: str, seen: DependencyTrace) -> str:
    """The digest of what the build read; empty, which is out of date, if the file has changed meanwhile."""
    try:
        content = Path(path).read_bytes()
    except OSError:
        return ""
    return manifest.digest(content) if seen.holds("content", path) else ""


def _installed() -> tuple[str, ...]:
    """Where environments keep what is installed in them: this process's, and those that the build adds to its path."""
    prefixes = {sys.prefix, sys.base_prefix, site.PREFIXES[0]}
    for entry in sys.path:
        parts = Path(entry).parts
        if dependency_trace.INSTALLED & {*parts} and len(parts) > 4:
            prefixes.add(str(Path(entry).parents[2]))
    return tuple(
        f"{prefix}/{name}/" for prefix in sorted(prefixes) for name in ("bin", "lib", "lib64", "include", "share")
    )
