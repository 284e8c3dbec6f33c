"""The pipeline of a build inside the worker: compile, check what is linked, merge, link and pack, each in children.

Modules go through it concurrently: one is linked while another compiles.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from aotcuda import manifest
from aotcuda.arch import Target
from aotcuda.binary import grid_sync, targets
from aotcuda.builder import code_warnings, consistency, failures, toolchain
from aotcuda.builder.frontends.protocol import Assembled, CompiledFunction, CompiledKernel, LeftOut, LinkInput
from aotcuda.builder.link import inputs as link_inputs
from aotcuda.builder.link import nvjitlink, nvrtc, preconditions, prototypes
from aotcuda.builder.link.images import described
from aotcuda.builder.link.included_headers import Headers
from aotcuda.builder.plan import code_target
from aotcuda.builder.worker import flows, kernel_groups, left_out, pool, source_loading, telemetry, unit_compiling
from aotcuda.builder.worker.job import LinkedItem
from aotcuda.builder.worker.observer import INSTALLED
from aotcuda.builder.worker.packaging import Parts
from aotcuda.builder.worker.shards import part_of
from aotcuda.builder.worker.unit_cache import UnitCache, plain
from aotcuda.cache import compilers
from aotcuda.common.stamp import Stamp
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aotcuda.builder.build_cache.compile_cache import CompileCache, Name
    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.protocol import Callbacks, FrontEnd, Unit
    from aotcuda.builder.link.images import Image
    from aotcuda.builder.link.inputs import Linked
    from aotcuda.builder.link.symbols import Symbols
    from aotcuda.builder.plan import ModulePlan
    from aotcuda.builder.worker.job import BuiltModule, Job
    from aotcuda.builder.worker.kernel_groups import Apart, Generate, Group, Objects
    from aotcuda.builder.worker.packaging import JitPackager
    from aotcuda.builder.worker.source_loading import Elsewhere

    Compiled = dict[tuple[Unit, Target], Any]
    PerTarget = dict[tuple[str, Target], Any]
    """What was merged of a module's `"functions"`, or linked to an `"image"`, for each target."""


T = TypeVar("T")

_HEAD = 4096
_LICENCE = re.compile(rb"SPDX-License-Identifier:[ \t]*([A-Za-z0-9.+() \t-]+)")
"""The line with a source's licence, near its beginning; SPDX 2.2.2, annex E:
https://spdx.github.io/spdx-spec/v2.2.2/using-SPDX-short-identifiers-in-source-files."""


class Pipeline:
    """The pipeline of one job.

    Attributes:
        surveyed: Everything foreign that was linked, with its symbols, by module.
        linkable: What other modules of the wheel link of these, by module; of those that they do.
    """

    def __init__(
        self,
        job: Job,
        front: FrontEnd,
        packager: JitPackager,
        functions: dict[Unit, object],
        tell: Callable[..., None],
        cache: CompileCache,
    ) -> None:
        self.job = job
        self.packager = packager
        self.front = front
        self._assemble: Callable[..., Any] | None = getattr(front, "assemble", None)
        self.functions = functions
        self.tell = tell
        self.elsewhere: Sequence[Elsewhere] = ()
        self.cache = cache
        self.units: UnitCache | None = None
        self.own_targets = source_loading.targets(job)
        self._all_plans = {plan.config.name: plan for plan in job.plans}
        self._have: Compiled = {}
        self.warnings: list[str] = []
        self.surveyed: dict[str, dict[LinkInput, Symbols]] = {}
        self.linkable: dict[str, Linked] = {}
        self.seen = Stamp()
        self._folders_searched: dict[str, list[str]] = {}
        self.linked: dict[str, Linked] = {
            plan.config.name: link_inputs.read(
                [
                    item for item in plan.config.link if item.module is None or job.shard is None
                ],  # a shard has no others
                Path(job.root),
                job.linkable,
            )
            for plan in job.plans
        }
        self.done = 0
        self.total = sum(
            len(plan.units)
            + (len(plan.targets) if plan.kernels else 0)
            + (len(packager.function_targets(plan)) if plan.functions else 0)
            for plan in job.plans
        )

    def run(self) -> list[BuiltModule]:
        """Build all modules.

        Raises:
            AotcudaError: Something cannot be compiled or linked.
        """
        self._find_units()
        modules = []
        for parts, packed in flows.flow(map(self._module, self.job.plans), self.job.jobs, self._done):
            modules.append(self.packager.finish(parts, packed, self._sources_compiled))
            if parts.name in self.job.wanted:
                self.linkable[parts.name] = self.packager.linkable(parts, modules[-1], self._sources_compiled)
        return modules

    def share(self, seen: Stamp) -> frozenset[tuple[str, str]] | None:
        """Use entries of units, and leave a shard its part of the units: return modules with symbols."""
        if not self.job.is_shared:
            return None
        of_sources = Stamp()
        for plan in self.job.plans:
            headers = self._headers(plan)
            for path in (*headers.files, *headers.missing):
                of_sources.ask("file", os.path.normpath(path))
        self.units = UnitCache(self.job, self.cache, [seen, of_sources], self.unseen())
        if self.job.shard is None:
            return None
        chosen = part_of(self.job, self.functions, in_groups=self._assemble is None)
        part = frozenset((unit.module, unit.symbol) for unit in chosen)
        plans = [plan.only_with(part) for plan in self.job.plans]
        self.job = replace(self.job, plans=tuple(plan for plan in plans if plan.units))
        self.total = len(chosen)
        return part

    def run_shard(self) -> tuple[int, int]:
        """Compile the shard's units and machine code into the cache; return how many units it and the build have.

        Raises:
            AotcudaError: Something cannot be compiled, or kept.
        """
        self._find_units()
        flows.flow(map(self._shard, self.job.plans), self.job.jobs, self._done)
        if self.units is not None:
            self.units.record()
        own, every = (sum(len(plan.units) for plan in plans) for plans in (self.job.plans, self._all_plans.values()))
        return own, every

    def _shard(self, plan: ModulePlan) -> flows.Flow[None]:
        """Compile a module's part, with machine code of whole groups; link a module that is whole."""
        whole = self._all_plans[plan.config.name]
        if len(plan.units) == len(whole.units) and not any(item.module for item in plan.config.link):
            yield from self._made(plan)
            return
        compiled, _ = yield from self._compile(plan)
        yield from self._objects(plan, compiled)

    def _find_units(self) -> None:
        """Find the entries of all units; a build from the cache alone has them or fails."""
        if self.units is not None:
            self._have = self.units.find(unit_compiling.wanted_of(self.job.plans, self._targets_here()))
            for unit in dict.fromkeys(unit for unit, _ in self._have):
                work = tuple((unit.module, unit.symbol, str(target)) for one, target in self._have if one is unit)
                telemetry.note_cached(work, self.units.seconds.get((unit.module, unit.symbol), 0.0))

    def _targets_here(self) -> list[Target]:
        """Return the targets that this process compiles for."""
        here = self.own_targets[: 1 if self.elsewhere else None]
        return [target for found in here for target in found]

    def linked_files(self) -> tuple[manifest.Source, ...]:
        """Return the project's files that were linked and their headers, with digests; the paths are absolute."""
        paths = {path for plan in self.job.plans for path in self._headers(plan).own}
        return tuple({"path": str(path), "sha256": manifest.digest(path.read_bytes())} for path in sorted(paths))

    def linked_stamp(self) -> Stamp:
        """Return the stamp of linked files and of headers, with the places where headers were looked for in vain."""
        found = Stamp()
        for plan in self.job.plans:
            headers = self._headers(plan)
            for path in (*headers.files, *headers.missing):
                found.ask("file", os.path.normpath(path))
            for item in plan.config.link:
                if item.module is not None and item.module not in self.job.linkable:
                    where = targets.find_module(item.module).where
                    found.ask("file", str(Path(where, manifest.FILE_NAME)))  # which has digests of the code
        return found

    def unseen(self) -> tuple[str, ...]:
        """Return the sources whose text does not tell what was compiled."""
        found: list[str] = []
        for plan in self.job.plans:
            found += self._headers(plan).hidden(plan.config.options)
        return tuple(dict.fromkeys(found))

    def _done(self, task: pool.Task) -> None:
        self.done += task.steps
        slow = telemetry.slowest()
        slowest = f"{slow.title} {slow.seconds:.1f} s" if slow is not None else ""
        self.tell(step=task.title, done=self.done, total=max(self.total, self.done), slowest=slowest)

    def _module(self, plan: ModulePlan) -> flows.Flow[tuple[Parts, list[bytes]]]:
        parts = yield from self._made(plan)
        return parts, (yield from self._packing(parts))

    def _made(self, plan: ModulePlan) -> flows.Flow[Parts]:
        """Compile and link a module."""
        compiled, lacking = yield from self._compile(plan)
        plan, notes = self._without(plan, lacking)
        built = ((unit, one) for (unit, _), one in compiled.items())
        self.warnings += code_warnings.known_faults(built, self.job.known_faults)
        for target in plan.targets if plan.kernels else ():
            code = plan.code_targets[target]
            of_target = [(unit, compiled[unit, code]) for unit in plan.kernels if (unit, code) in compiled]
            code_warnings.check_constants(plan.config.key, of_target)
        surveyed = self.surveyed[plan.config.name] = yield from self._survey(plan, compiled)
        merges = self._merges(plan, compiled)
        merged: PerTarget = {}
        if self._calls_own_functions(plan, compiled):
            merged, merges = (yield from self._cached_round(_MERGE, plan, merges, compiled, merged, {})), {}
        objects = yield from self._objects(plan, compiled)
        tasks = merges | self._links(plan, compiled, merged, objects)
        made = yield from self._cached_round(_LINK, plan, tasks, compiled, merged, objects)
        plan, more = self._without(plan, _refused(plan, made))
        return replace(self._parts(plan, compiled, merged | made, surveyed), left_out=(*notes, *more))

    def _without(
        self, plan: ModulePlan, found: Mapping[tuple[Unit, Target], LeftOut]
    ) -> tuple[ModulePlan, list[manifest.LeftOut]]:
        """Return a plan without the kernels that targets cannot have, and the notes about these kernels."""
        plan, notes, warnings = left_out.without(plan, found, self.job.incomplete)
        self.warnings += warnings
        return plan, notes

    def _packing(self, parts: Parts) -> flows.Flow[list[bytes]]:
        """Pack a module's images."""
        pack = self.packager.packer(parts.name, [image.cuda for image in parts.images])
        if pack is None:
            return []
        tasks = [
            (
                image.target,
                pool.Task(f"{parts.name} packed for {image.target}", partial(pack, image.target, image.data)),
            )
            for image in self.packager.images(parts)
        ]
        self.total += len(tasks)
        return (yield from _shared(_PACK, tasks, self.job.jobs))

    def _compile(self, plan: ModulePlan) -> flows.Flow[tuple[Compiled, dict[tuple[Unit, Target], LeftOut]]]:
        """Return every unit for every target, and records of those that targets cannot have.

        What other processes have compiled is taken as it is.
        """
        own = self._targets_here()
        batches = self._batch_names(plan, own)
        have: Compiled = {key: built for key, built in self._have.items() if key[0].module == plan.config.name}
        for (units, target), built in self.cache.find(batches, lambda _: list[CompiledKernel]).items():
            if len(built) == len(units):
                have |= {(unit, target): one for unit, one in zip(units, built, strict=True)}
                _note_cached(units, target)
        self.done += sum(all((unit, target) in have for target in plan.compiled_for(unit)) for unit in plan.units)
        compiled = yield from unit_compiling.compiling(
            self.job, self.front, plan, self.functions, own, self.cache, have
        )
        made = {key: built for key, built in compiled.items() if key not in have}
        self._keep_compiled(plan, batches, made)
        if self.units is not None:
            self.units.keep(made)
        others = [(other, _of(plan.config.name, other.compiled)) for other in self.elsewhere]
        for one in (compiled, *(found for _, found in others)):
            self.seen.add(built.seen for built in one.values())
        imports = [consistency.Import(own[0], frozenset(plan.units), _had(compiled))]
        for other, found in others:
            target = next(target for _, target in other.compiled)
            of_module = frozenset(unit for unit in other.units if unit.module == plan.config.name)
            imports.append(consistency.Import(target, of_module, _had(found)))
        consistency.check(imports)
        for _, found in others:
            compiled |= found
        lacking = {key: built for key, built in compiled.items() if isinstance(built, LeftOut)}
        return {key: plain(built) for key, built in _had(compiled).items()}, lacking

    def _batch_names(self, plan: ModulePlan, own: Sequence[Target]) -> dict[tuple[tuple[Unit, ...], Target], Name]:
        """Return the names of the code of batches that are compiled from files, and no Python, for each target."""
        if not hasattr(self.front, "declared") or self.elsewhere or self.units is not None:
            return {}
        found: dict[str, list[Unit]] = {}
        for unit in plan.units:
            if unit.batch:
                found.setdefault(unit.batch, []).append(unit)
        named: dict[tuple[tuple[Unit, ...], Target], Name] = {}
        for units in found.values():
            made_from = ("batch", plan.frontend, units, self.front.declared(units[0], self.functions[units[0]]))
            shared = self._name_with(plan, self._sources_of(units), *made_from)
            for target in plan.compiled_for(units[0]):
                if target in own:
                    named[tuple(units), target] = self.cache.name(shared, target) if shared else ""
        return named

    def _keep_compiled(
        self, plan: ModulePlan, batches: Mapping[tuple[tuple[Unit, ...], Target], Name], made: Compiled
    ) -> None:
        """Keep batches that were made, and what front ends' own code generators made."""
        whole = {
            (units, target): [made[unit, target] for unit in units]
            for units, target in batches
            if (units[0], target) in made
        }
        titles = {key: f"{key[0][0].batch}, {len(key[0])} kernels, for {key[1]}" for key in whole}
        self.cache.keep(whole, self._unedited(batches, self._batch_names(plan, [*plan.ltoir_targets])), titles, "code")
        generated = {key: built.generated for key, built in made.items() if getattr(built, "generated", None)}
        fresh = {key: found for key, found in generated.items() if found.value is not None}
        self.cache.count_reused(len(generated) - len(fresh))
        for unit, target in generated.keys() - fresh.keys():
            _note_cached([unit], target)
        values = {key: found.value for key, found in fresh.items()}
        named = {key: found.name for key, found in fresh.items()}
        self.cache.keep(values, named, {key: f"{key[0].title} for {key[1]}" for key in fresh}, "code")

    @staticmethod
    def _unedited(before: Mapping[T, Name], after: Mapping[T, Name]) -> dict[T, Name]:
        """Return those of the names that are as they were: no header was edited meanwhile."""
        return {key: name for key, name in before.items() if after.get(key) == name}

    def _cached_round(
        self,
        rank: int,
        plan: ModulePlan,
        tasks: dict[tuple[str, Target], pool.Task],
        compiled: Compiled,
        merged: PerTarget,
        objects: Objects,
    ) -> flows.Flow[PerTarget]:
        """Return a round of merges and links that the build cache does not have."""

        def names() -> dict[tuple[str, Target], Name]:
            return {key: self._name(plan, *key, compiled, merged, objects) for key in tasks}

        named = names()
        have = self.cache.find(named, lambda key: bytes if key[0] == "functions" else self._linked)
        self.done += len(have)
        for kind, target in have:
            _note_cached(plan.kernels_for(target) if kind == "image" else plan.functions, target)
        left = {key: task for key, task in tasks.items() if key not in have}
        made = (yield from self._left(rank, left, objects)) if left else {}
        if made:
            titles = {key: task.title for key, task in left.items()}
            self.cache.keep(made, self._unedited(named, names()), titles, "code")
        return {key: have[key] if key in have else made[key] for key in tasks}

    def _left(self, rank: int, tasks: dict[tuple[str, Target], pool.Task], objects: Objects) -> flows.Flow[PerTarget]:
        """Return a round, whose links of nothing but machine code share processes."""
        if not all(kind == "image" and kernel_groups.objects_of(target, objects) for kind, target in tasks):
            return (yield from _round(rank, tasks))
        results = yield from _shared(rank, [(target, task) for (_, target), task in tasks.items()], self.job.jobs)
        return dict(zip(tasks, results, strict=True))

    def _name(
        self, plan: ModulePlan, kind: str, target: Target, compiled: Compiled, merged: PerTarget, objects: Objects
    ) -> Name:
        """Return the name of a module's `"functions"` or `"image"` in the compile cache."""
        if not self.cache.is_on:
            return ""
        if kind == "functions":
            code = code_target(target)
            texts = [(compiled[unit, code].ir, compiled[unit, code].fastmath) for unit in plan.functions]
            return self._name_with(plan, self._sources_of(plan.functions), "functions", texts, target.kind, code)
        inputs = kernel_groups.objects_of(target, objects) or self._link_inputs(plan, target, compiled, merged)
        return self._link_name(plan, "image", inputs, target)

    def _link_name(
        self, plan: ModulePlan, kind: Literal["image", "object"], inputs: Sequence[LinkInput], target: Target
    ) -> Name:
        """Return the name of what is linked of `inputs`."""
        tools = [digest for _, digest in self.tools([target])]
        return self._name_with(plan, inputs, kind, plan.config.name, target, plan.code_targets[target], tools)

    def _name_with(self, plan: ModulePlan, inputs: Sequence[LinkInput], *made_from: object) -> Name:
        return self.cache.name_with(inputs, plan.config.options, self._searched(plan), *made_from)

    def tools(self, targets: Iterable[Target]) -> list[tuple[str, str | None]]:
        """Return the front end's own tools, with their digests; versions represent those of installed packages."""
        tools: Callable[[Target], list[str]] = getattr(self.front, "tools", lambda _: [])
        paths = {os.path.realpath(path) for target in targets for path in tools(target)}
        others = sorted(path for path in paths if INSTALLED.isdisjoint(path.split("/")))
        return [(path, compilers.digest(path)) for path in others]

    def _merges(self, plan: ModulePlan, compiled: Compiled) -> dict[tuple[str, Target], pool.Task]:
        tasks = {}
        for target in self.packager.function_targets(plan) if plan.functions else ():
            functions = [compiled[unit, code_target(target)] for unit in plan.functions]
            form: Literal["ltoir", "ptx"] = "ltoir" if target.kind == "sass" else "ptx"
            run = partial(self.front.merge_functions, functions, code_target(target), plan.config.options, form)
            tasks["functions", target] = pool.Task(f"{plan.config.name} functions for {target}", run)
        return tasks

    def _survey(self, plan: ModulePlan, compiled: Compiled) -> flows.Flow[dict[LinkInput, Symbols]]:
        """Return the symbols of everything foreign in a module's link, which is checked with them."""
        if not plan.units:
            return {}
        built = {unit: compiled[unit, plan.compiled_for(unit)[0]] for unit in plan.units}
        first = min((plan.compiled_for(unit)[0] for unit in plan.units), key=Target.sort_key)
        wanted = {unit: found.externals for unit, found in built.items()}
        externals = [external for found in wanted.values() for external in found]
        foreign = self._foreign(plan, built.values())
        if not foreign and not externals:
            return {}
        asked_by = {item: self._asked_by(plan, item, compiled) for item in foreign}
        tasks = {}
        for item in foreign:
            arguments = (plan.config.options, self._folders(plan), asked_by[item])
            run = partial(preconditions.survey, item, externals, first, *arguments)
            tasks[item] = pool.Task(f"{plan.config.name}: symbols of {item.name}", run)
        declared = self._declarations(plan, asked_by, first)
        results = yield from _round(_SURVEY, {**tasks, **declared})
        found = {item: results[item] for item in tasks}
        own = [unit.symbol for unit in plan.units]
        preconditions.check(plan.config.name, wanted, own, found, plan.targets, asked_by, self._elsewhere(plan))
        return found

    def _declarations(
        self, plan: ModulePlan, asked_by: Mapping[LinkInput, str], target: Target
    ) -> dict[tuple[LinkInput, LinkInput], pool.Task]:
        """Return tasks that check declarations in a module's own CUDA C++ against other modules' headers."""
        sources = [item for item in self._sources_of(plan.units) if item.kind == "cu"]
        tasks = {}
        for source in sources:
            for item, key in asked_by.items():
                if item.header:
                    arguments = (source, item, target, plan.config.options, self._folders(plan), key)
                    title = f"{plan.config.name}: what {source.name} declares of {item.name}"
                    tasks[source, item] = pool.Task(title, partial(prototypes.check_source, *arguments), key=key)
        return tasks

    def _asked_by(self, plan: ModulePlan, item: LinkInput, compiled: Compiled) -> str:
        """Return the key for which `item` is linked: of the configuration's `link`, or of a unit that brings it."""
        for given in plan.config.link:
            name = given.module or PurePath(given.path or "").as_posix()
            if item.name == name or item.name.startswith(f"{given.module} "):
                return given.key
        built = {unit: compiled[unit, plan.compiled_for(unit)[0]] for unit in plan.units}
        users = [unit for unit, found in built.items() if item.identity in [one.identity for one in found.needed]]
        return users[0].key if users else plan.config.key

    def _elsewhere(self, plan: ModulePlan) -> dict[str, str]:
        """Return the names that other modules of the wheel have for others to link, with the module's name."""
        functions = {item.config.name: [unit.symbol for unit in item.functions] for item in self.job.plans}
        every = {**functions, **self.job.names}
        found = {name: module for module, names in every.items() for name in functions.get(module, names)}
        return {name: module for name, module in found.items() if module != plan.config.name}

    def _objects(self, plan: ModulePlan, compiled: Compiled) -> flows.Flow[Objects]:
        """Make the machine code of each group of kernels, for those targets for which a module is linked of such.

        What did not change is taken from the cache, so after an edit a target costs a few kernels and not a module.
        """
        kernels = {unit.symbol: unit for unit in plan.kernels}
        every_kernel = (self._all_plans[plan.config.name] if self.job.shard is not None else plan).kernels
        groups = kernel_groups.grouped([unit.symbol for unit in every_kernel])
        parts: Apart = {
            (group, target): [
                item for symbol in group for item in compiled[kernels[symbol], plan.code_targets[target]].code
            ]
            for target in plan.targets
            if len(groups) > 1 and self._is_split(plan, target, compiled)
            for group in groups
            if kernels.keys() >= {*group}
        }
        named = {key: self._link_name(plan, "object", part, key[1]) for key, part in parts.items()}
        have = self.cache.find(named, lambda _: _CODE)
        for group, target in have:
            _note_cached([kernels[symbol] for symbol in group], target)
        left: dict[Group, Apart] = {}
        for (group, target), part in parts.items():
            if (group, target) not in have:
                left.setdefault(group, {})[group, target] = part
        if left and self.units is not None and self.job.from_cache_only:
            raise self.units.lacking_code((plan.config.name, group) for group in left)
        tasks = [self._object_task(plan, share) for share in kernel_groups.shares(list(left.values()), self.job.jobs)]
        self.total += len(tasks)
        made: Objects = {}
        for found in (yield flows.Round(_OBJECTS, tasks)):
            made |= found
        titles = {
            (group, target): f"{plan.config.name}.{kernel_groups.and_more(group)}, machine code for {target}"
            for group, target in made
        }
        self.cache.keep(made, named, titles, "code")
        every = {key: have[key] if key in have else made[key] for key in parts}
        whole = {target for (_, target), (data, _) in every.items() if not data}
        return {key: built for key, built in every.items() if key[1] not in whole}

    def _is_split(self, plan: ModulePlan, target: Target, compiled: Compiled) -> bool:
        """Return True if a module's kernels have nothing in common, so some become machine code without the others."""
        kernels = [compiled[unit, plan.code_targets[target]] for unit in plan.kernels_for(target)]
        return (
            self._assemble is None
            and target.kind == "sass"
            and not plan.config.link
            and all(kernel.self_contained for kernel in kernels)
        )

    def _object_task(self, plan: ModulePlan, parts: Apart) -> pool.Task:
        names = list(dict.fromkeys(symbol for group, _ in parts for symbol in group))
        targets = ", ".join(dict.fromkeys(str(target) for _, target in parts))
        title = f"{plan.config.name}: machine code of {kernel_groups.and_more(names)} for {targets}"
        run = partial(kernel_groups.relocatable, plan.config.name, parts, self._generate(plan), *self._settings(plan))
        work = tuple((plan.config.name, symbol, str(target)) for group, target in parts for symbol in group)
        return pool.Task(title, run, work=work)

    def _links(
        self, plan: ModulePlan, compiled: Compiled, merged: PerTarget, objects: Objects
    ) -> dict[tuple[str, Target], pool.Task]:
        tasks = {}
        for target in plan.targets if plan.kernels else ():
            inputs = kernel_groups.objects_of(target, objects) or self._link_inputs(plan, target, compiled, merged)
            if self._assemble is not None:
                run = partial(self._assemble, plan.config.name, inputs, target, plan.config.options)
            else:
                spills = kernel_groups.spilled(target, objects)
                arguments = (plan.config.name, inputs, target, self._generate(plan), self._settings(plan))
                run = partial(kernel_groups.linked, *arguments, spills)
            tasks["image", target] = pool.Task(f"{plan.config.name} linked for {target}", run)
        return tasks

    def _generate(self, plan: ModulePlan) -> Generate:
        """Return a function that makes code of the front end's IR, in children, before they link."""
        units = {unit.symbol: unit for unit in plan.kernels}

        def generate(inputs: Sequence[LinkInput], target: Target) -> list[LinkInput]:
            found: list[LinkInput] = []
            with failures.gathered() as attempt:
                for item in inputs:
                    with attempt():
                        unit = units.get(item.name) if item.kind == "ir" else None
                        code = plan.code_targets[target]
                        made = self.front.generated(unit, self.functions[unit], item, code) if unit else (item,)
                        if unit and target.kind == "ptx" and any(one.kind == "ptx" for one in made):
                            message = (
                                f"{unit.key}: debug=True gives machine code alone, and {target} of arch is "
                                "PTX; remove debug=True from the kernel's decorator, or list sm_* targets only"
                            )
                            raise CompileError(message)
                        found += made
            return found

        return generate

    def _settings(self, plan: ModulePlan) -> tuple[Options, list[str], dict[str, str]]:
        """Return the arguments of links besides their inputs."""
        return plan.config.options, self._folders(plan), self._elsewhere(plan)

    def _calls_own_functions(self, plan: ModulePlan, compiled: Compiled) -> bool:
        """Return True if kernels, or what is linked in, may call the module's own exported functions by their C ABI."""
        return any(self._takes_functions(plan, target, compiled) for target in plan.targets if plan.kernels)

    def _takes_functions(self, plan: ModulePlan, target: Target, compiled: Compiled) -> bool:
        kernels = [compiled[unit, plan.code_targets[target]] for unit in plan.kernels_for(target)]
        exported = {unit.symbol for unit in plan.functions}
        wanted = {external.name for kernel in kernels for external in kernel.externals}
        return bool(exported & wanted) or (
            bool(exported) and any(not item.internal for item in self._foreign(plan, kernels))
        )

    def _link_inputs(self, plan: ModulePlan, target: Target, compiled: Compiled, merged: PerTarget) -> list[LinkInput]:
        code = plan.code_targets[target]
        kernels = [compiled[unit, code] for unit in plan.kernels_for(target)]
        inputs = [item for kernel in kernels for item in kernel.code]
        if not self._takes_functions(plan, target, compiled) or any(kernel.has_functions for kernel in kernels):
            return [*inputs, *self._foreign(plan, kernels)]
        name = f"code of {plan.config.name}'s functions"
        inputs.append(LinkInput(kind="ltoir", name=name, data=merged["functions", code]))
        return [*inputs, *self._foreign(plan, [*kernels, *(compiled[unit, code] for unit in plan.functions)])]

    def _foreign(self, plan: ModulePlan, compiled: Iterable[CompiledKernel | CompiledFunction]) -> list[LinkInput]:
        """Return the inputs other than compiled Python: of the configuration first, then of the units, each once."""
        items = list(self.linked[plan.config.name].inputs)
        for built in compiled:
            items += built.needed
        return nvjitlink.unique(items)

    def _headers(self, plan: ModulePlan) -> Headers:
        """Return the files that a module links or is compiled from, and their headers."""
        items = [*self.surveyed.get(plan.config.name, {}), *self._sources_of(plan.units)]
        return Headers(items, Path(self.job.root), self._searched(plan))

    def _sources_of(self, units: Iterable[Unit]) -> list[LinkInput]:
        """Return the files other than Python modules that units are compiled from, each once."""
        found = (item for unit in units for item in self.front.sources(unit, self.functions[unit], self.job.root))
        return nvjitlink.unique(found)

    def _searched(self, plan: ModulePlan) -> list[str]:
        """Return the folders whose headers are inputs; versions represent installed packages and the toolkit."""
        name = plan.config.name
        if name not in self._folders_searched:
            known = (*toolchain.include_dirs(), *compilers.machine_toolkits())
            self._folders_searched[name] = [
                path
                for path in self._folders(plan)
                if INSTALLED.isdisjoint(path.split("/")) and not os.path.realpath(path).startswith(known)
            ]
        return self._folders_searched[name]

    def _folders(self, plan: ModulePlan) -> list[str]:
        given = [str(Path(self.job.root, path)) for path in plan.config.options.include_dirs]
        return [*given, *self.front.include_dirs()]

    def _parts(
        self,
        plan: ModulePlan,
        compiled: Compiled,
        made: PerTarget,
        surveyed: dict[LinkInput, Symbols],
    ) -> Parts:
        name = plan.config.name
        kernels = tuple(_with_launches(plan, unit, compiled) for unit in plan.kernels)
        functions = tuple(compiled[unit, plan.compiled_for(unit)[0]] for unit in plan.functions)
        self.warnings += [text for function in functions for text in function.warnings]
        self.warnings += code_warnings.shared_memory(zip(plan.kernels, kernels, strict=True))
        linked = tuple(self._image(target, made["image", target]) for target in plan.targets if plan.kernels)
        kernels = self._with_cooperative(plan, kernels, linked, surveyed)
        callbacks: dict[Callbacks, None] = dict.fromkeys(self.linked[name].callbacks)
        for built in (*kernels, *functions):
            callbacks |= dict.fromkeys(built.callbacks)
        return Parts(
            plan=plan,
            images=linked,
            kernels=kernels,
            functions=functions,
            merged={target: made["functions", target] for target in self.packager.function_targets(plan) if functions},
            callbacks=tuple(callbacks),
            foreign=tuple((item.name, found.functions) for item, found in surveyed.items() if not item.internal),
            linked=tuple(_linked_item(item, plan) for item in surveyed if not item.internal),
            called=tuple(self._called(plan, functions)),
            files=tuple(sorted(self._headers(plan).own)),
        )

    @property
    def _linked(self) -> Any:
        """Return the type of an image that was linked, or that the front end assembled."""
        return _CODE if self._assemble is None else Assembled

    def _with_cooperative(
        self,
        plan: ModulePlan,
        kernels: tuple[CompiledKernel, ...],
        linked: Sequence[Image],
        surveyed: Iterable[LinkInput],
    ) -> tuple[CompiledKernel, ...]:
        """Mark kernels that synchronize the grid in CUDA C++ or other foreign code; front ends mark their own."""
        foreign = any(not item.internal for item in surveyed) or bool(self._sources_of(plan.units))
        if self._assemble is not None or not foreign:
            return kernels
        found: set[str] = set()
        for image in linked:
            if image.target.kind == "ptx":
                found |= grid_sync.in_ptx(image.data.decode())
            else:
                found |= grid_sync.in_cubin(image.data, image.target.major)
        symbols = [unit.symbol for unit in plan.kernels]
        return tuple(
            replace(kernel, cooperative=kernel.cooperative or symbol in found)
            for symbol, kernel in zip(symbols, kernels, strict=True)
        )

    def _image(self, target: Target, made: Any) -> Image:
        linker = nvjitlink.number()
        if self._assemble is None:
            data, spills = made
            return described(target, data, linker, spills)
        return described(target, made.data, made.cuda)._replace(linker=linker)

    def _called(self, plan: ModulePlan, functions: Sequence[CompiledFunction]) -> list[LinkInput]:
        """Return the inputs that have to be linked wherever the exported functions are."""
        return self._foreign(plan, functions) if any(function.externals for function in functions) else []

    def _sources_compiled(self, plan: ModulePlan, item: LinkInput, targets: Sequence[Target]) -> dict[Target, bytes]:
        """CUDA C++ compiled for each target: LTOIR for machine code, PTX for PTX."""
        joined = replace(item, data=item.data + b"".join(data for _, data in item.pieces), pieces=())
        arguments = (plan.config.options, self._folders(plan))
        tasks = {}
        for target in targets:
            run = partial(_compile_source, joined, code_target(target), *arguments, lto=target.kind == "sass")
            tasks[target] = pool.Task(f"{plan.config.name}: {item.name} for {target}", run)
        return dict(zip(tasks, flows.run(list(tasks.values()), self.job.jobs, self._done), strict=True))


def _note_cached(units: Iterable[Unit], target: Target) -> None:
    telemetry.note_cached(tuple((unit.module, unit.symbol, str(target)) for unit in units))


_CODE = tuple[bytes, dict[str, int]]
"""Machine code as the linker gives it, and what it spilled."""

_SURVEY, _MERGE, _OBJECTS, _LINK, _PACK = range(unit_compiling.COMPILE + 1, unit_compiling.COMPILE + 6)
"""The ranks of the rounds."""


def _round(rank: int, tasks: dict[Any, pool.Task]) -> flows.Flow[dict[Any, Any]]:
    return dict(zip(tasks, (yield flows.Round(rank, list(tasks.values()))), strict=True))


def _shared(rank: int, tasks: Sequence[tuple[Target, pool.Task]], processes: int) -> flows.Flow[list[Any]]:
    """Run quick tasks for several targets in a few processes: starting one takes as long as a task."""
    shares = [share for start in range(processes) if (share := tasks[start::processes])]
    if not shares:
        return []
    results: dict[Target, Any] = {}
    for found in (yield flows.Round(rank, [_joint(share) for share in shares])):
        results |= found
    return [results[target] for target, _ in tasks]


def _joint(tasks: Sequence[tuple[Target, pool.Task]]) -> pool.Task:
    def run() -> dict[Target, Any]:
        found = {}
        with failures.gathered() as attempt:
            for target, task in tasks:
                with attempt():
                    found[target] = task.run()
        return found

    (_, first), *others = tasks
    return pool.Task(", ".join([first.title, *(str(target) for target, _ in others)]), run, steps=len(tasks))


def _had(compiled: Compiled) -> Compiled:
    """Return the compiled kernels, without those that targets cannot have."""
    return {key: built for key, built in compiled.items() if not isinstance(built, LeftOut)}


def _refused(plan: ModulePlan, made: PerTarget) -> dict[tuple[Unit, Target], LeftOut]:
    """Return the kernels that the front end's assembler has refused."""
    units = {unit.symbol: unit for unit in plan.kernels}
    return {
        (units[symbol], plan.code_targets[target]): LeftOut(
            error=CompileError(f"{units[symbol].head}: {reason}"), reason=reason
        )
        for (_, target), image in made.items()
        for symbol, reason in getattr(image, "left_out", ())
    }


def _of(module: str, compiled: Compiled) -> Compiled:
    return {(unit, target): built for (unit, target), built in compiled.items() if unit.module == module}


def _with_launches(plan: ModulePlan, unit: Unit, compiled: Compiled) -> CompiledKernel:
    """Return a kernel, and how each of its images has to be launched."""
    built: CompiledKernel = compiled[unit, plan.compiled_for(unit)[0]]
    has = {*plan.compiled_for(unit)}
    codes = [(str(target), plan.code_targets[target]) for target in plan.targets]
    launches = [(arch, compiled[unit, code].launch) for arch, code in codes if code in has]
    return replace(built, launches=tuple((arch, launch) for arch, launch in launches if launch is not None))


def _linked_item(item: LinkInput, plan: ModulePlan) -> LinkedItem:
    # Other parts of a packaged module are named by the module's name and their own.
    module = item.name.partition(" ")[0]
    is_module = bool(item.header) or module in {given.module for given in plan.config.link}
    licence = _LICENCE.search(item.data[:_HEAD]) if item.kind in {"cu", "ptx"} else None
    return LinkedItem(
        name=item.name,
        sha256=manifest.digest(item.data),
        module=module if is_module else "",
        licence=licence[1].decode().strip() if licence else "",
    )


def _compile_source(*arguments: Any, lto: bool) -> bytes:
    os.chdir("/")  # NVRTC writes the current folder into LTOIR
    return nvrtc.compile_source(*arguments, lto=lto)
