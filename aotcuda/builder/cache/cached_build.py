"""Find the results of a complete build in the build cache while its stamp holds, and store them after a build.

There is one entry for each project folder and configuration. It has the results of the workers without plans, copies of
the project's files, and code that is also in a fatbin. The build plans again, reads the project's files again, and
makes its files from both.

An entry is not trusted. Its values have their declared types (`serialization`), and the build refuses paths that it
would not write.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from aotcuda import manifest
from aotcuda.builder.cache import hashing
from aotcuda.builder.cache.store import Store, trim
from aotcuda.builder.compile.job import CompletedPlan, Result
from aotcuda.builder.link import inputs as link_inputs
from aotcuda.common.stamp import Stamp
from aotcuda.errors import AotcudaError, ManifestError
from aotcuda.manifest import linkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aotcuda.builder.cache.settings import Settings
    from aotcuda.builder.cache.stamps import Project
    from aotcuda.builder.compile.job import BuiltModule
    from aotcuda.builder.emit.built import Output
    from aotcuda.builder.plan.plan import ModulePlan

_Stored = list[tuple[Result, list[CompletedPlan]]]
"""The workers' results, each with the parts of the plans of its modules that the worker has completed."""
_ENTRY = tuple[list[tuple[str, str, str | None]], dict[str, str | None], _Stored]
"""The type of an entry: the stamp's questions with their answers, its variables, and the results."""

_SUFFIXES = "|".join(re.escape(suffix) for suffix in sorted({".fatbin", *linkable.SUFFIXES.values()}))
_LINK = re.compile(rf"link\d+_\w+(?:{_SUFFIXES})")
"""The names of files that users of exported functions link; see `compile.packaging`."""


class CachedBuild:
    """The entry of one build.

    Args:
        known: The inputs that are known before the build; they name the entry.

    Raises:
        NamelessError: An input cannot be hashed.
    """

    def __init__(self, cache: Settings, project: Project, inputs: Sequence[object]) -> None:
        self._cache = cache
        self._project = project
        self._name = hashing.digest("build", cache.facts, str(project.root), inputs)
        self._store = Store(cache)

    def find(
        self,
        plans: Sequence[ModulePlan],
        roots: Sequence[Path],
        assemble: Callable[[Sequence[Result], Stamp], Output],
    ) -> Output | None:
        """Return the build if its stamp holds, else None.

        Args:
            plans: The plans of the build.
            roots: The folders of the project's packages.
            assemble: A function that makes the files from results and a stamp.
        """
        entry = self._store.get({self._name: _ENTRY}).get(self._name)
        if entry is None:
            return None
        reads, variables, stored = entry
        stamp = Stamp({(question, path): answer for question, path, answer in reads}, variables)
        if stamp.changed() is not None:
            return None
        try:
            built = assemble(self._results(stored, plans, roots), stamp)
            self._check(built.files, plans)
        except (AotcudaError, LookupError, TypeError, ValueError, OSError):  # the entry contradicts itself or the plans
            self._store.report_damage()
            return None
        return replace(built, summary=replace(built.summary, whole=True))

    def store(self, built: Output, stamp: Stamp, results: Sequence[Result]) -> Output:
        """Store a build, and return it with the problems of the cache as warnings and the reuse in its summary."""
        # An input that has changed since it was read makes the stamp worthless.
        if not any(result.unseen for result in results) and stamp.changed() is None:
            reads = [(question, path, answer) for (question, path), answer in sorted(stamp.reads.items())]
            value = (reads, stamp.variables, [_stored(result) for result in results])
            modules = dict.fromkeys(module.plan.config.name for result in results for module in result.modules)
            self._store.put({self._name: value}, "build", {self._name: ", ".join(modules)})
        trim(self._cache)
        problems = [*(text for result in results for text in result.problems), *self._store.problems]
        reused, made = (sum(getattr(result, name) for result in results) for name in ("reused", "made"))
        return replace(
            built,
            warnings=tuple(dict.fromkeys([*built.warnings, *problems])),
            summary=replace(built.summary, reused=reused, made=made),
        )

    def _results(self, stored: _Stored, plans: Sequence[ModulePlan], roots: Sequence[Path]) -> list[Result]:
        """Return the results of an entry with the plans of their modules.

        Raises:
            LookupError: A module is not planned.
            ValueError: A module has a file that is not carried, or a file name that builds do not give.
        """
        by_name = {item.config.name: item for item in plans if item.units}
        results = []
        for result, completed in stored:
            modules = [
                replace(module, plan=item.complete(by_name[item.name]))
                for item, module in zip(completed, result.modules, strict=True)
            ]
            for module in modules:
                self._check_names(module, roots)
            results.append(replace(result, modules=tuple(modules), seen=Stamp()))
        if missing := by_name.keys() - {module.plan.config.name for result in results for module in result.modules}:
            message = f"the entry lacks {min(missing)}"
            raise LookupError(message)
        return results

    def _check_names(self, module: BuiltModule, roots: Sequence[Path]) -> None:
        """Refuse files that a build does not carry, and names that it gives no linked file."""
        root = self._project.root
        paths = [listed.path for listed in module.plan.config.link if listed.path is not None]
        outside = link_inputs.outside_folders(paths, root)
        for name, file in module.carried:
            path = Path(file)
            of_link = link_inputs.carried_name(path, root, outside)
            if not _is_normal(file) or name not in (of_link, *(_below(path, folder) for folder in roots)):
                message = f"{file} is not carried as {name}"
                raise ValueError(message)
        if odd := next((name for name, _ in module.function_links if _LINK.fullmatch(name) is None), None):
            message = f"{odd} is not a linked file"
            raise ValueError(message)

    def _check(self, files: Mapping[str, bytes], plans: Sequence[ModulePlan]) -> None:
        """Refuse files that no build of these plans writes, and manifests without their declared shape.

        Raises:
            ManifestError: There is such a file.
        """
        names = {item.config.name.replace(".", "/") for item in plans}
        for path, data in files.items():
            base, _, name = path.partition(f"{manifest.FOLDER_SUFFIX}/")
            if name == manifest.IN_PLACE:
                source = self._project.package_root / base
                is_known = base in names or any(Path(f"{source}{end}").is_file() for end in (".py", "/__init__.py"))
            else:
                is_known = name == manifest.PACK or base.removesuffix(".pyi").removesuffix(".py") in names
            if not is_known or not _is_normal(f"/{path}"):
                message = f"{path} is not a file that the build writes"
                raise ManifestError(message)
            if name == manifest.FILE_NAME:
                manifest.parse(data, path)


def open_entry(cache: Settings | None, project: Project, inputs: Sequence[object]) -> CachedBuild | None:
    """Return the entry of a build; None without a cache, or if an input cannot be hashed."""
    try:
        return CachedBuild(cache, project, inputs) if cache is not None else None
    except hashing.NamelessError:
        return None


def _stored(result: Result) -> tuple[Result, list[CompletedPlan]]:
    """Return a result as an entry has it."""
    modules = tuple(
        # The fatbins have the images.
        replace(module, plan=cast("ModulePlan", None), images=tuple(replace(item, data=b"") for item in module.images))
        for module in result.modules
    )
    stored = replace(
        result, modules=modules, seen=cast("Stamp", None), linkable={}, steps=(), reused=0, made=0, problems=()
    )
    return stored, [CompletedPlan.of(module.plan) for module in result.modules]


def _below(path: Path, folder: Path) -> str | None:
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else None


def _is_normal(path: str) -> bool:
    """Return True for an absolute path without parts such as `..`."""
    return path == os.path.normpath(path) and path.startswith("/") and "\\" not in path and "\0" not in path
