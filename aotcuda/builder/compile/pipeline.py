"""The pipeline of a build inside the worker: compile, check, link (`linking`) and pack, each in children.

Modules go through it concurrently: one is linked while another compiles.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from aotcuda.arch import Target
from aotcuda.builder.cache.unit_cache import UnitCache, without_cache_data
from aotcuda.builder.compile import code_warnings, flows, left_out, pool, source_loading, telemetry, unit_compiling
from aotcuda.builder.compile.linking import Linking, record_cached
from aotcuda.builder.compile.module_inputs import ModuleInputs
from aotcuda.builder.compile.parts import combine
from aotcuda.builder.frontends.protocol import CompiledKernel, LeftOut, LinkInput
from aotcuda.builder.link import nvrtc, preconditions, prototypes
from aotcuda.builder.plan import consistency
from aotcuda.builder.plan.plan import code_target
from aotcuda.builder.shards.shards import choose_units
from aotcuda.common.stamp import Stamp
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aotcuda.builder.cache.compile_cache import CompileCache, Name
    from aotcuda.builder.compile.job import BuiltModule, Job
    from aotcuda.builder.compile.packaging import Packager
    from aotcuda.builder.compile.parts import ModuleCode, Parts
    from aotcuda.builder.frontends.protocol import FrontEnd, Unit
    from aotcuda.builder.link.inputs import Linked
    from aotcuda.builder.link.symbols import Symbols
    from aotcuda.builder.plan.plan import ModulePlan

    Compiled = dict[tuple[Unit, Target], Any]


class Pipeline:
    """The pipeline of one job.

    Attributes:
        inputs: The link inputs of its modules.
        linkable: The link items for other modules of the wheel, by module.
        units: The entries of units, if several machines share the build.
        seen: The stamp of what functions of the project read while the compiler ran them.
    """

    def __init__(
        self,
        job: Job,
        front: FrontEnd,
        packager: Packager,
        functions: dict[Unit, object],
        tell: Callable[..., None],
        cache: CompileCache,
    ) -> None:
        self.job = job
        self.packager = packager
        self.front = front
        self.functions = functions
        self.tell = tell
        self.other_imports = job.others.imports
        self.cache = cache
        self.units: UnitCache | None = None
        self.own_targets = source_loading.targets_by_capability(job)
        self._all_plans = {plan.config.name: plan for plan in job.plans}
        self._cached: Compiled = {}
        self.warnings: list[str] = []
        self.linkable: dict[str, Linked] = {}
        self.inputs = ModuleInputs(job, front, functions)
        self.linking = Linking(job, self.inputs, packager, cache)
        self.seen = Stamp()
        self.linking.total = self._step_count()

    def run(self) -> list[BuiltModule]:
        """Build all modules.

        Raises:
            AotcudaError: Something cannot be compiled or linked.
        """
        self._begin()
        modules = []
        for parts, packed in flows.run_flows(map(self._module, self.job.plans), self.job.jobs, self._done):
            modules.append(self.packager.finish(parts, packed, self._sources_compiled))
            if parts.name in self.job.others.wanted:
                self.linkable[parts.name] = self.packager.linkable(parts, modules[-1], self._sources_compiled)
        return modules

    def share(self, seen: Stamp) -> frozenset[tuple[str, str]] | None:
        """Use the cache's entries of units if several machines share the build.

        Returns:
            The module and symbol of each unit that this shard compiles; None if this process is not a shard.
        """
        if (shared := self.job.shared) is None:
            return None
        of_sources = Stamp()
        for plan in self.job.plans:
            headers = self.inputs.headers(plan)
            for path in (*headers.files, *headers.links, *headers.missing):
                of_sources.add_question("file", os.path.normpath(path))
        self.units = self.linking.units = UnitCache(
            self.job, self.cache, [seen, of_sources], self.inputs.undetermined()
        )
        if shared.shard is None:
            return None
        chosen = choose_units(self.job.plans, self.functions, shared, in_groups=not self.linking.assembles)
        part = frozenset((unit.module, unit.identifier) for unit in chosen)
        plans = [plan.only_with(part) for plan in self.job.plans]
        self.job = replace(self.job, plans=tuple(plan for plan in plans if plan.units))
        self.inputs.job = self.linking.job = self.job
        self.linking.total = self._step_count()
        return part

    def run_shard(self) -> tuple[int, int]:
        """Compile the shard's units and machine code into the cache; return the numbers of its units and of all units.

        Raises:
            AotcudaError: Something cannot be compiled or stored.
        """
        self._begin()
        flows.run_flows(map(self._compile_part, self.job.plans), self.job.jobs, self._done)
        if self.units is not None:
            self.units.record()
        return sum(len(plan.units) for plan in self.job.plans), sum(
            len(plan.units) for plan in self._all_plans.values()
        )

    def _compile_part(self, plan: ModulePlan) -> flows.Flow[None]:
        """Compile a shard's part of a module, with machine code of complete groups; link a complete module."""
        every = self._all_plans[plan.config.name].units
        if len(plan.units) == len(every) and not any(item.module for item in plan.config.link):
            yield from self._build_code(plan)
            return
        compiled, _ = yield from self._compile(plan)
        yield from self.linking.compile_shard(plan, compiled)

    def _begin(self) -> None:
        """Find the entries of all units; a build from the cache alone fails if one is missing."""
        self.tell(step="compiling", done=0, total=self.linking.total)
        if self.units is not None:
            self._cached = self.units.find(unit_compiling.targets_by_unit(self.job.plans, self._own_targets()))
            for unit in dict.fromkeys(unit for unit, _ in self._cached):
                work = tuple((unit.module, unit.identifier, str(target)) for key, target in self._cached if key is unit)
                telemetry.add_cached(work, self.units.seconds.get((unit.module, unit.identifier), 0.0))

    def _step_count(self) -> int:
        links = sum(self.linking.step_count(plan) for plan in self.job.plans)
        return unit_compiling.step_count(self.job.plans, self._own_targets()) + links

    def _own_targets(self) -> list[Target]:
        """Return the targets that this process compiles for."""
        return [target for targets in self.own_targets[: 1 if self.other_imports else None] for target in targets]

    def _done(self, task: pool.Task) -> None:
        linking = self.linking
        linking.done += task.steps
        step = telemetry.slowest()
        slowest = f"{step.title} {step.seconds:.1f} s" if step is not None else ""
        self.tell(step=task.title, done=linking.done, total=linking.total, slowest=slowest)

    def _module(self, plan: ModulePlan) -> flows.Flow[tuple[Parts, list[bytes]]]:
        parts = yield from self._build_code(plan)
        return parts, (yield from self._pack(parts))

    def _build_code(self, plan: ModulePlan) -> flows.Flow[Parts]:
        """Compile and link a module."""
        compiled, lacking = yield from self._compile(plan)
        steps = self.linking.step_count(plan)
        plan, removed = self._remove_kernels(plan, lacking)
        self.linking.done += steps - self.linking.step_count(plan)
        built = ((unit, code) for (unit, _), code in compiled.items())
        self.warnings += code_warnings.known_faults(built, self.job.product.known_faults)
        for target in plan.targets if plan.kernels else ():
            code = plan.code_targets[target]
            of_target = [(unit, compiled[unit, code]) for unit in plan.kernels if (unit, code) in compiled]
            code_warnings.check_constants(plan.config.key, of_target)
        self.inputs.surveyed[plan.config.name] = yield from self._survey(plan, compiled)
        linked = yield from self.linking.link_module(plan, compiled)
        plan, refused = self._remove_kernels(plan, _refused_by_assembler(plan, linked))
        parts = combine(plan, compiled, linked, self.inputs)
        self.warnings += [text for function in parts.functions for text in function.warnings]
        self.warnings += code_warnings.shared_memory(zip(plan.kernels, parts.kernels, strict=True))
        return replace(
            parts,
            left_out=(*removed.notes, *refused.notes),
            general_left_out=tuple(sorted((removed.optional + refused.optional).items())),
        )

    def _remove_kernels(
        self, plan: ModulePlan, kernels: Mapping[tuple[Unit, Target], LeftOut]
    ) -> tuple[ModulePlan, left_out.Removed]:
        """Return a plan without the kernels that targets cannot have, and these kernels."""
        plan, removed = left_out.remove_kernels(plan, kernels, self.job.product.incomplete)
        self.warnings += removed.warnings
        return plan, removed

    def _pack(self, parts: Parts) -> flows.Flow[list[bytes]]:
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
        return (yield from flows.run_in_shares(flows.PACK, tasks, self.job.jobs))

    def _compile(self, plan: ModulePlan) -> flows.Flow[tuple[Compiled, dict[tuple[Unit, Target], LeftOut]]]:
        """Return every unit for every target, and the units that targets cannot have.

        Results of other processes are used unchanged.
        """
        targets = self._own_targets()
        batches = self._batch_names(plan, targets)
        cached = _of_module(plan.config.name, self._cached)
        for (units, target), built in self.cache.find(batches, lambda _: list[CompiledKernel]).items():
            if len(built) == len(units):
                cached |= {(unit, target): kernel for unit, kernel in zip(units, built, strict=True)}
                record_cached(units, target)
        self.linking.done += len(cached)
        compiled = yield from unit_compiling.compile_units(self.job, self.front, plan, self.functions, targets, cached)
        new_results = {key: built for key, built in compiled.items() if key not in cached}
        self._store_compiled(plan, batches, new_results)
        if self.units is not None:
            self.units.store(new_results)
        own = _without_left_out(compiled)
        imports = [consistency.Import(targets[0], frozenset(plan.units), own)] if targets else []
        for other in self.other_imports:
            target = next(target for _, target in other.compiled)
            units_of_module = frozenset(unit for unit in other.units if unit.module == plan.config.name)
            of_other = _of_module(plan.config.name, other.compiled)
            imports.append(consistency.Import(target, units_of_module, _without_left_out(of_other)))
            compiled |= of_other
        self.seen.add(built.seen for built in compiled.values())
        consistency.check(imports)
        lacking = {key: built for key, built in compiled.items() if isinstance(built, LeftOut)}
        return {key: without_cache_data(built) for key, built in _without_left_out(compiled).items()}, lacking

    def _batch_names(self, plan: ModulePlan, targets: Sequence[Target]) -> dict[tuple[tuple[Unit, ...], Target], Name]:
        """Return the names of the code of batches that are compiled from files instead of Python, for each target."""
        if not hasattr(self.front, "declared") or self.other_imports or self.units is not None:
            return {}
        batches: dict[str, list[Unit]] = {}
        for unit in plan.units:
            if unit.batch:
                batches.setdefault(unit.batch, []).append(unit)
        names: dict[tuple[tuple[Unit, ...], Target], Name] = {}
        for units in batches.values():
            others = ("batch", plan.frontend, units, self.front.declared(units[0], self.functions[units[0]]))
            name = self.linking.name_with(plan, self.inputs.sources_of(units), *others)
            for target in plan.compiled_for(units[0]):
                if target in targets:
                    names[tuple(units), target] = self.cache.name(name, target) if name else ""
        return names

    def _store_compiled(
        self, plan: ModulePlan, batches: Mapping[tuple[tuple[Unit, ...], Target], Name], new_results: Compiled
    ) -> None:
        """Store compiled batches, and the results of front ends' own code generators."""
        compiled_batches = {
            (units, target): [new_results[unit, target] for unit in units]
            for units, target in batches
            if (units[0], target) in new_results
        }
        titles = {key: f"{key[0][0].batch}, {len(key[0])} kernels, for {key[1]}" for key in compiled_batches}
        unedited = self.linking.unedited(batches, self._batch_names(plan, [*plan.ltoir_targets]))
        self.cache.store(compiled_batches, unedited, titles, "code")
        entries = {key: built.generated for key, built in new_results.items() if getattr(built, "generated", None)}
        new = {key: entry for key, entry in entries.items() if entry.value is not None}
        self.cache.count_reused(len(entries) - len(new))
        for unit, target in entries.keys() - new.keys():
            record_cached([unit], target)
        values = {key: entry.value for key, entry in new.items()}
        names = {key: entry.name for key, entry in new.items()}
        self.cache.store(values, names, {key: f"{key[0].title} for {key[1]}" for key in new}, "code")

    def _survey(self, plan: ModulePlan, compiled: Compiled) -> flows.Flow[dict[LinkInput, Symbols]]:
        """Return the symbols of a module's linked files and modules, after checking them."""
        if not plan.units:
            return {}
        built = {unit: compiled[unit, plan.compiled_for(unit)[0]] for unit in plan.units}
        first = min((plan.compiled_for(unit)[0] for unit in plan.units), key=Target.sort_key)
        externals_of = {unit: code.externals for unit, code in built.items()}
        externals = [external for of_unit in externals_of.values() for external in of_unit]
        foreign = self.inputs.foreign_inputs(plan, built.values())
        if plan.functions:
            names = {unit.symbol: unit.key for unit in plan.functions}
            check_names = partial(preconditions.check_names, names, code_target(first), plan.config.options)
            yield flows.Round(flows.SURVEY, [pool.Task(f"{plan.config.name}: names of its functions", check_names)])
        if not foreign and not externals:
            return {}
        keys = {item: self.inputs.requesting_key(plan, item, compiled) for item in foreign}
        tasks = {}
        for item in foreign:
            arguments = (plan.config.options, self.inputs.include_dirs(plan), keys[item])
            run = partial(preconditions.survey, item, externals, first, *arguments)
            tasks[item] = pool.Task(f"{plan.config.name}: symbols of {item.name}", run)
        declarations = self._declarations(plan, keys, first)
        results = yield from flows.run_round(flows.SURVEY, {**tasks, **declarations})
        symbols = {item: results[item] for item in tasks}
        has_links = [name for name in plan.images if plan.of_image(name).has_links]
        own = {
            unit.symbol: unit.origin.partition(":")[0] if plan.linked is not None else _OWN
            for unit in plan.units
            if unit.kind == "function" or unit.image in has_links
        }
        own |= {symbol: name.partition(":")[0] for name, symbol, image, _ in plan.variables[::-1] if image in has_links}
        preconditions.check(
            plan.config.name, externals_of, own, symbols, plan.targets, keys, self.inputs.names_of_other_modules(plan)
        )
        return symbols

    def _declarations(
        self, plan: ModulePlan, keys: Mapping[LinkInput, str], target: Target
    ) -> dict[tuple[LinkInput, LinkInput], pool.Task]:
        """Return tasks that check declarations in a module's own CUDA C++ against other modules' headers."""
        sources = [item for item in self.inputs.sources_of(plan.units) if item.kind == "cu"]
        tasks = {}
        for source in sources:
            for item, key in keys.items():
                if item.header:
                    arguments = (source, item, target, plan.config.options, self.inputs.include_dirs(plan), key)
                    title = f"{plan.config.name}: declarations of {item.name} in {source.name}"
                    tasks[source, item] = pool.Task(title, partial(prototypes.check_source, *arguments), key=key)
        return tasks

    def _sources_compiled(self, plan: ModulePlan, item: LinkInput, targets: Sequence[Target]) -> dict[Target, bytes]:
        """Compile CUDA C++ for each target: to LTOIR for machine code, to PTX for PTX."""
        joined = replace(item, data=item.data + b"".join(data for _, data in item.pieces), pieces=())
        arguments = (plan.config.options, self.inputs.include_dirs(plan))
        tasks = {}
        for target in targets:
            run = partial(_compile_source, joined, code_target(target), *arguments, lto=target.kind == "sass")
            tasks[target] = pool.Task(f"{plan.config.name}: {item.name} for {target}", run)
        return dict(zip(tasks, flows.run(list(tasks.values()), self.job.jobs, self._done), strict=True))


_OWN = "the module's own kernels and functions"


def _without_left_out(compiled: Compiled) -> Compiled:
    """Return the compiled units, without the stand-ins for kernels that targets cannot have."""
    return {key: built for key, built in compiled.items() if not isinstance(built, LeftOut)}


def _refused_by_assembler(plan: ModulePlan, linked: ModuleCode) -> dict[tuple[Unit, Target], LeftOut]:
    """Return the kernels that the front end's assembler refused."""
    units = {(unit.image, unit.symbol): unit for unit in plan.kernels}
    return {
        (unit, plan.code_targets[target]): LeftOut(error=CompileError(f"{unit.head}: {reason}"), reason=reason)
        for name, images in zip(plan.images, linked.images, strict=True)
        for target, image in images.items()
        for symbol, reason in getattr(image, "left_out", ())
        if (unit := units[name, symbol])
    }


def _of_module(module: str, compiled: Mapping[tuple[Unit, Target], Any]) -> Compiled:
    return {(unit, target): built for (unit, target), built in compiled.items() if unit.module == module}


def _compile_source(*arguments: Any, lto: bool) -> bytes:
    os.chdir("/")  # NVRTC writes the current folder into LTOIR
    return nvrtc.compile_source(*arguments, lto=lto)
