"""The entry of a whole build in the build cache: find it while its stamp holds, and store it after a build."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda.builder import cached_files, report
from aotcuda.builder.build_cache import remote
from aotcuda.builder.build_cache.build_stamp import BuildStamp
from aotcuda.builder.build_cache.hashing import NamelessError
from aotcuda.builder.build_cache.store import Store, trim
from aotcuda.builder.built import Output, Reuse
from aotcuda.errors import ManifestError
from aotcuda.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.builder.build_cache.remote import Fetched
    from aotcuda.builder.build_cache.settings import Settings
    from aotcuda.builder.plan import ModulePlan
    from aotcuda.builder.progress import Progress
    from aotcuda.builder.stamps import Project
    from aotcuda.builder.worker.job import Result
    from aotcuda.common.stamp import Stamp

_PACKED = tuple[
    dict[str, bytes], tuple[str, ...], tuple[str, ...], dict[str, str], bytes, list[str], tuple[int, int, int, int]
]
"""The type of a stored build: files, warnings, notes, needed, sbom, depends, counts."""


class CachedBuild:
    """The entry of one build.

    Attributes:
        cache: The settings of the build cache.
    """

    def __init__(self, cache: Settings, store: Store, stamp: BuildStamp, project: Project) -> None:
        self.cache = cache
        self._store = store
        self._stamp = stamp
        self._project = project

    def find(self, plans: Sequence[ModulePlan], roots: Sequence[Path], *, editable: bool) -> Output | None:
        """Return the build if its stamp holds and its files are those that the build would write, else None."""
        found = self._stamp.get(_PACKED)
        if found is None:
            return None
        project = self._project
        try:
            folders = (project.root, *roots)
            cached_files.check(found[0], plans, folders, project.package_root, version=__version__, editable=editable)
            return _unpacked(found, os.path.relpath(project.package_root, project.root))
        except (ManifestError, ValueError):
            self._store.spoilt()
        return None

    def settings_of_workers(self) -> Settings:
        """Return the settings for workers: without a URL that did not answer, so they neither wait nor warn again."""
        return self.cache if self._store.answers else replace(self.cache, url=None, sends=False)

    def store(self, built: Output, stamp: Stamp, results: Sequence[Result]) -> Output:
        """Store a build, and return it with the problems of the cache as warnings and the reuse in its summary."""
        if any(result.unanswered for result in results):
            self._store.ask_no_more()
        if not any(result.unseen for result in results):
            modules = dict.fromkeys(module.plan.config.name for result in results for module in result.modules)
            self._stamp.keep(stamp, _packed(built), ", ".join(modules))
        trim(self.cache)
        problems = [*(text for result in results for text in result.problems), *self._store.problems]
        return replace(
            built,
            warnings=tuple(dict.fromkeys([*built.warnings, *problems])),
            summary=replace(built.summary, reused=built.reuse.steps, made=built.reuse.made),
        )


def open_entry(
    cache: Settings | None, project: Project, known: Sequence[object], watcher: Progress
) -> CachedBuild | None:
    """Return the entry of a build; None without a cache, or if an input cannot be hashed.

    Args:
        cache: The settings of the build cache, or None.
        project: The project.
        known: The inputs that are known before the build; they name the entry.
        watcher: Shows that the build waits for a URL.
    """
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
        return CachedBuild(cache, store, BuildStamp(store, cache, str(project.root), known), project)
    except NamelessError:
        return None


def _packed(built: Output) -> object:
    """Return a build as the cache stores it."""
    summary = built.summary
    counts = (summary.modules, summary.kernels, summary.functions, summary.targets)
    depends = [str(path) for path in built.depends]
    return (built.files, built.warnings, built.notes, dict(built.needed), built.sbom, depends, counts)


def _unpacked(found: Any, package_root: str) -> Output:
    """Return the build that `_packed` stored."""
    files, warnings, notes, needed, bill, depends, (modules, kernels, functions, targets) = found
    return Output(
        files=files,
        package_root=package_root,
        warnings=warnings,
        notes=notes,
        needed=needed,
        sbom=bill,
        depends=tuple(map(Path, depends)),
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
