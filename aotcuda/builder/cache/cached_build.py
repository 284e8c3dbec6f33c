"""Find a complete build in the build cache while its stamp holds, and store it after a build.

There is one entry for each project folder and configuration.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aotcuda.builder import cached_files
from aotcuda.builder.cache import hashing, stamps
from aotcuda.builder.cache.store import Store, trim
from aotcuda.builder.emit.built import Output
from aotcuda.common.stamp import Stamp
from aotcuda.errors import ManifestError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aotcuda.builder.cache.settings import Settings
    from aotcuda.builder.cache.stamps import Project
    from aotcuda.builder.compile.job import Result
    from aotcuda.builder.plan.plan import ModulePlan

_ENTRY = tuple[list[tuple[str, str, str | None]], dict[str, str | None], Output]
"""The type of an entry: the stamp's questions with their answers, its variables, and the build."""


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

    def find(self, plans: Sequence[ModulePlan], roots: Sequence[Path], *, editable: bool) -> Output | None:
        """Return the build if its stamp holds and its files are those that the build would write, else None."""
        entry = self._store.get({self._name: _ENTRY}).get(self._name)
        if entry is None:
            return None
        built: Output
        reads, variables, built = entry
        stamp = Stamp({(question, path): answer for question, path, answer in reads}, variables)
        if stamp.changed() is not None:
            return None
        project = self._project
        try:
            cached_files.check(built.files, plans, (project.root, *roots), project.package_root, editable=editable)
        except ManifestError:
            self._store.report_damage()
            return None
        depends = tuple(stamps.files(stamp, project))
        return replace(built, package_root=project.relative_package_root, depends=depends)

    def store(self, built: Output, stamp: Stamp, results: Sequence[Result]) -> Output:
        """Store a build, and return it with the problems of the cache as warnings and the reuse in its summary."""
        # An input that has changed since it was read makes the stamp worthless.
        if not any(result.unseen for result in results) and stamp.changed() is None:
            reads = [(question, path, answer) for (question, path), answer in sorted(stamp.reads.items())]
            summary = replace(built.summary, whole=True, steps=())
            value = (reads, stamp.variables, replace(built, summary=summary, depends=()))
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


def open_entry(cache: Settings | None, project: Project, inputs: Sequence[object]) -> CachedBuild | None:
    """Return the entry of a build; None without a cache, or if an input cannot be hashed."""
    try:
        return CachedBuild(cache, project, inputs) if cache is not None else None
    except hashing.NamelessError:
        return None
