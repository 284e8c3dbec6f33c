"""Share one build among several machines by entries of single units in the build cache.

A shard compiles its part of a project's units and stores an entry for each. The entry's name has the build's stamp and
the unit, but no intermediate representation. A build from the cache alone therefore imports the sources, computes the
names, and finds every result without typing. An entry also lists the files that were read while the unit was compiled,
which are compared before the entry is used.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from aotcuda.builder.cache import hashing
from aotcuda.builder.compile import telemetry
from aotcuda.builder.frontends.protocol import CompiledFunction, CompiledKernel, LeftOut
from aotcuda.builder.shards import MOST_SHARDS
from aotcuda.common.stamp import ALL_NAMES, Stamp
from aotcuda.errors import BuildError, CompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.cache.compile_cache import CompileCache, Name
    from aotcuda.builder.compile.job import Job
    from aotcuda.builder.frontends.protocol import Unit

    Compiled = dict[tuple[Unit, Target], Any]
    Inputs = dict[str, str | None]

_LEFT_OUT = tuple[str, str]
"""The type of a kernel that a target cannot have, in an entry: the error and the reason."""

_READS = list[tuple[str, str, str | None]]
"""The type of what was read while a unit was compiled, in an entry."""

_MACHINE_VARIABLES = frozenset(
    [ALL_NAMES, "PATH", "VIRTUAL_ENV", "TMPDIR", "CUDA_PATH", "CUDA_HOME", "LD_LIBRARY_PATH"]
)
"""Variables with paths of the machine."""

_MOST_NAMES = 8
"""The most kernels and files that an error lists."""


class UnitCache:
    """The entries of a build's units.

    Attributes:
        seconds: The seconds in which each cached unit was compiled, by module and symbol.
    """

    def __init__(self, job: Job, cache: CompileCache, stamps: Iterable[Stamp], unseen: Sequence[str] = ()) -> None:
        """Compute the names of entries.

        Args:
            job: The job.
            cache: The build cache.
            stamps: The stamps of the imports and of the source files.
            unseen: The sources whose text does not determine the compiled code.
        """
        self._job = job
        self._cache = cache
        self._unseen = unseen
        of_job = job.shared.inputs if job.shared is not None else {}
        self._inputs: Inputs = {**of_job, _VERSIONS: cache.name("versions")}
        for stamp in stamps:
            self._inputs |= _portable(stamp, job.root)
        self._stamp = cache.name("units", sorted(self._inputs.items())) if not unseen else ""
        self._changed: list[str] = []
        self.seconds: dict[tuple[str, str], float] = {}

    def find(self, units: Mapping[Unit, Sequence[Target]]) -> Compiled:
        """Return the cached results of units for targets.

        Raises:
            BuildError: An entry is missing, and this is a build from the cache alone.
        """
        names = {unit: self._name(unit, targets) for unit, targets in units.items() if targets}
        cached: Compiled = {}
        for unit, (reads, variables, seconds, built) in self._cache.find(names, _entry_type).items():
            seen = Stamp({(ask, self._absolute(path)): answer for ask, path, answer in reads}, variables)
            changed = seen.changed()
            if changed is not None:
                self._changed.append(changed)
                continue
            of_target = {
                target: _in_folder(_with_reads(one, seen), self._absolute)
                for targets, one in built
                for target in targets
            }
            if of_target.keys() == {str(target) for target in units[unit]}:
                self.seconds[unit.module, unit.identifier] = seconds
                cached |= {(unit, target): of_target[str(target)] for target in units[unit]}
        missing = [unit for unit, targets in units.items() if any((unit, target) not in cached for target in targets)]
        if missing and self._job.from_cache_only:
            raise self._missing_error(missing, len(units))
        return cached

    def store(self, compiled: Compiled) -> None:
        """Store the entries of units.

        Raises:
            BuildError: They cannot be stored.
        """
        seconds = telemetry.seconds_by_unit()
        of_unit: dict[Unit, dict[Target, Any]] = {}
        for (unit, target), built in compiled.items():
            of_unit.setdefault(unit, {})[target] = built
        values: dict[Unit, Any] = {}
        for unit, of_target in of_unit.items():
            seen = Stamp().add(built.seen for built in of_target.values())
            reads = [(ask, self._relative(path), answer) for (ask, path), answer in sorted(seen.reads.items())]
            of_targets: list[tuple[list[str], Any]] = []
            for target, built in of_target.items():
                left_out = isinstance(built, LeftOut)
                value = (
                    (str(built.error), built.reason)
                    if left_out
                    else _in_folder(without_cache_data(built), self._relative)
                )
                _add_result(of_targets, str(target), value)
            values[unit] = reads, seen.variables, seconds.get((unit.module, unit.identifier), 0.0), of_targets
        names = {unit: self._name(unit, list(of_target)) for unit, of_target in of_unit.items()}
        for unit, name in names.items():
            if not name:
                message = f"{unit.key}: {self._no_name_reason()}; build this project on one machine"
                raise BuildError(message)
        if not self._cache.store(values, names, {unit: unit.title for unit in values}, "unit"):
            problem = next(iter(self._cache.problems), "an entry has a value that the cache cannot hold")
            message = f"the shard cannot store its results: {problem}"
            raise BuildError(message)

    def record(self) -> None:
        """Record in the cache that this shard is complete, and the inputs that it was built from."""
        if self._job.shard is not None:
            index, count = self._job.shard
            values: dict[object, object] = {(): count, (index, count): self._inputs}
            titles = dict.fromkeys(values, f"shard {index}/{count} of {self._job.plans[0].config.name}")
            self._cache.store(values, {part: self._record_name(part) for part in values}, titles, "shard")

    def lacking_code(self, groups: Iterable[tuple[str, Sequence[str]]]) -> BuildError:
        """Return the error about groups of kernels whose machine code is missing."""
        names = sorted({f"{module}.{symbol}" for module, group in groups for symbol in group})
        return BuildError(
            f"the build cache lacks the machine code of {_join_names(names)}; build the shards again with this cache, "
            "and set AOTCUDA_CACHE_SIZE so that it holds them all"
        )

    def _missing_error(self, missing: Sequence[Unit], count: int) -> BuildError:
        """Return the error about units that the cache does not have, with the shards that have to be built again."""
        names = list(dict.fromkeys(f"{unit.module}.{unit.name}" for unit in missing))
        fact = f"the build cache lacks {len(missing)} of {count} kernels and device functions ({_join_names(names)})"
        if self._unseen:
            return BuildError(f"{fact}: {self._no_name_reason()}; build this project without AOTCUDA_FROM_CACHE_ONLY")
        if self._changed:
            return BuildError(f"{fact}: {self._changed[0]} after they were compiled; build all shards again")
        total = self._read_record(())
        if not isinstance(total, int):
            return BuildError(
                f"{fact}, and no shard of this project; run aotcuda build --shard I/N for each I with the same "
                "AOTCUDA_BUILD_CACHE, then this build"
            )
        reasons: dict[str, list[int]] = {}
        for index in range(1, min(total, MOST_SHARDS) + 1):
            inputs = self._read_record((index, total))
            if inputs is None:
                reasons.setdefault("was not built with this cache", []).append(index)
            elif differing := sorted(
                key for key in {*inputs, *self._inputs} if inputs.get(key) != self._inputs.get(key)
            ):
                reasons.setdefault(f"was built from another state ({_join_names(differing)})", []).append(index)
        if not reasons:
            return BuildError(f"{fact}; build the shards again with this cache, each of them of {total}")
        texts = [f"shard {', '.join(map(str, which))} of {total} {reason}" for reason, which in reasons.items()]
        return BuildError(f"{fact}: {'; '.join(texts)}; build it again from this state of the project")

    def _read_record(self, part: tuple[int, ...]) -> Any:
        """Return the inputs of a shard, or for `()` the number of shards; None if the cache has no record."""
        records = self._cache.find({part: self._record_name(part)}, lambda part: dict[str, str | None] if part else int)
        return records.get(part)

    def _record_name(self, part: object) -> Name:
        toolkit = self._job.toolkit.cuda if self._job.toolkit is not None else None
        modules = sorted(plan.config.name for plan in self._job.plans)
        return hashing.digest("shard", modules, self._job.frontend, toolkit, part)

    def _name(self, unit: Unit, targets: Sequence[Target]) -> Name:
        return self._cache.name("unit", self._stamp, unit, list(targets)) if self._stamp else ""

    def _no_name_reason(self) -> str:
        return f"{self._unseen[0]} does not determine what is compiled" if self._unseen else "its unit cannot be named"

    def _relative(self, path: str) -> str:
        return _relative_path(path, self._job.root)

    def _absolute(self, path: str) -> str:
        return os.path.normpath(Path(self._job.root, path))


_VERSIONS = "the versions of Python, aotcuda and compilers, or AOTCUDA_* variables"


def _portable(stamp: Stamp, root: str) -> Inputs:
    """Return a stamp's answers by names that are equal in every folder and on every machine."""
    reads = {
        f"{_relative_path(path, root)}{'' if question == 'file' else f' ({question})'}": answer
        for (question, path), answer in stamp.reads.items()
        if question != "status"  # versions represent installed packages
    }
    variables = {f"${name}": value for name, value in stamp.variables.items() if name not in _MACHINE_VARIABLES}
    return reads | variables


def _relative_path(path: str, root: str) -> str:
    return PurePosixPath(path).relative_to(root).as_posix() if PurePosixPath(path).is_relative_to(root) else path


def _entry_type(unit: Unit) -> Any:
    value: Any = CompiledKernel if unit.kind == "kernel" else CompiledFunction
    return tuple[_READS, dict[str, str | None], float, list[tuple[list[str], value | _LEFT_OUT]]]


def _add_result(of_targets: list[tuple[list[str], Any]], target: str, built: Any) -> None:
    """Add a target's result; an entry has equal results once."""
    for targets, other in of_targets:
        if other == built:
            targets.append(target)
            return
    of_targets.append(([target], built))


def without_cache_data(built: Any) -> Any:
    """Return a compiled unit without the attributes that only caches need."""
    if built.seen is None and getattr(built, "generated", None) is None:
        return built
    return replace(built, seen=None, **({"generated": None} if hasattr(built, "generated") else {}))


def _in_folder(built: Any, convert: Callable[[str], str]) -> Any:
    """Return a compiled unit with the converted folders of its linked files."""
    if isinstance(built, LeftOut) or not any(item.folder for item in built.needed):
        return built
    needed = [replace(item, folder=convert(item.folder)) if item.folder else item for item in built.needed]
    return replace(built, needed=tuple(needed))


def _with_reads(built: Any, seen: Stamp) -> Any:
    if isinstance(built, tuple):
        error, reason = built
        return LeftOut(error=CompileError(error), reason=reason, seen=seen or None)
    return replace(built, seen=seen) if seen else built


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
