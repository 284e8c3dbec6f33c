"""Link modules: merge their functions, make machine code of groups of kernels, and link images.

The compile cache has the results of equal inputs; children make the others.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from aotcuda.builder import failures
from aotcuda.builder.frontends.protocol import Assembled
from aotcuda.builder.plan import code_target
from aotcuda.builder.worker import flows, kernel_groups, pool, telemetry
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.build_cache.compile_cache import CompileCache, Name
    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.protocol import LinkInput, Unit
    from aotcuda.builder.plan import ModulePlan
    from aotcuda.builder.worker.job import Job
    from aotcuda.builder.worker.kernel_groups import Apart, Generate, Group, Objects
    from aotcuda.builder.worker.module_inputs import ModuleInputs
    from aotcuda.builder.worker.packaging import Packager
    from aotcuda.builder.worker.unit_cache import UnitCache

    Compiled = dict[tuple[Unit, Target], Any]
    Key = tuple[str, Target]
    """A module's `"functions"`, which are merged, or `"image"`, which is linked, for a target."""
    PerTarget = dict[Key, Any]

T = TypeVar("T")

_CODE = tuple[bytes, dict[str, int]]
"""The linker's machine code, and the spilled bytes of its kernels."""


class Linking:
    """The links of one job.

    Attributes:
        done: How many steps have ended, or were found in the cache.
        total: The number of steps.
    """

    def __init__(self, job: Job, inputs: ModuleInputs, packager: Packager, cache: CompileCache) -> None:
        self.job = job
        self.inputs = inputs
        self.front = inputs.front
        self.packager = packager
        self.cache = cache
        self.units: UnitCache | None = None
        self.done = 0
        self.total = 0
        self.assembler: Callable[..., Any] | None = getattr(self.front, "assemble", None)
        self._all_plans = {plan.config.name: plan for plan in job.plans}

    def work(self, plan: ModulePlan, compiled: Compiled) -> flows.Flow[PerTarget]:
        """Return a module's images and merged functions."""
        merges = self._merges(plan, compiled)
        merged: PerTarget = {}
        if self.inputs.calls_own_functions(plan, compiled):
            names = partial(self._merge_names, plan, compiled, merges)
            merged = yield from self._cached_round(
                plan, names, lambda left: flows.run_round(flows.MERGE, _only(merges, left))
            )
            merges = {}
        return merged | (yield from self._link(plan, compiled, merges, merged))

    def of_shard(self, plan: ModulePlan, compiled: Compiled) -> flows.Flow[Objects]:
        """Make machine code of the groups of a module that are complete in a shard."""
        parts = self._apart(plan, compiled)
        return (yield from self._objects(plan, parts, self._object_names(plan, parts)))

    def _link(
        self, plan: ModulePlan, compiled: Compiled, merges: dict[Key, pool.Task], merged: PerTarget
    ) -> flows.Flow[PerTarget]:
        """Return a module's images, and its functions if they are still to be merged.

        An image of groups of kernels is named by their names, so their machine code is needed only to link it.
        """
        parts = self._apart(plan, compiled)
        named = self._object_names(plan, parts)

        def names() -> dict[Key, Name]:
            found = self._merge_names(plan, compiled, merges)
            for target in plan.targets if plan.kernels else ():
                groups = [name for (_, at), name in named.items() if at == target]
                if groups:
                    name = self.cache.name("image", plan.config.name, target, groups) if all(groups) else ""
                else:
                    name = self._link_name(plan, "image", self.inputs.of_link(plan, target, compiled, merged), target)
                found["image", target] = name
            return found

        def make(left: Sequence[Key]) -> flows.Flow[PerTarget]:
            targets = [target for kind, target in left if kind == "image"]
            objects = yield from self._objects(
                plan, {key: part for key, part in parts.items() if key[1] in targets}, named
            )
            tasks = _only(merges, left) | self._links(plan, targets, compiled, merged, objects)
            if not all(kind == "image" and kernel_groups.link_inputs(target, objects) for kind, target in tasks):
                return (yield from flows.run_round(flows.LINK, tasks))
            # Links of nothing but machine code are quick, and share processes.
            results = yield from flows.shared(
                flows.LINK, [(target, task) for (_, target), task in tasks.items()], self.job.jobs
            )
            return dict(zip(tasks, results, strict=True))

        return (yield from self._cached_round(plan, names, make))

    def _cached_round(
        self,
        plan: ModulePlan,
        names: Callable[[], dict[Key, Name]],
        make: Callable[[Sequence[Key]], flows.Flow[PerTarget]],
    ) -> flows.Flow[PerTarget]:
        """Return the results that the build cache has under `names`, and make the others."""
        named = names()
        have = self.cache.find(named, lambda key: bytes if key[0] == "functions" else self._linked)
        self.done += len(have)
        for kind, target in have:
            note_cached(plan.kernels_for(target) if kind == "image" else plan.functions, target)
        left = [key for key in named if key not in have]
        made = (yield from make(left)) if left else {}
        if made:
            titles = {key: _title(plan, *key) for key in made}
            self.cache.store(made, self.unedited(named, names()), titles, "code")
        return {key: have[key] if key in have else made[key] for key in named}

    def _merge_names(self, plan: ModulePlan, compiled: Compiled, merges: Iterable[Key]) -> dict[Key, Name]:
        found: dict[Key, Name] = {}
        for kind, target in merges if self.cache.is_on else ():
            code = code_target(target)
            texts = [(compiled[unit, code].ir, compiled[unit, code].fastmath) for unit in plan.functions]
            sources = self.inputs.sources_of(plan.functions)
            found[kind, target] = self.name_with(plan, sources, "functions", texts, target.kind, code)
        return found if self.cache.is_on else dict.fromkeys(merges, "")

    def _link_name(
        self, plan: ModulePlan, kind: Literal["image", "object"], inputs: Sequence[LinkInput] | Name, target: Target
    ) -> Name:
        """Return the name of a link's result; `inputs` are linked, or are the name of another result."""
        tools = [digest for _, digest in self.inputs.tools([target])]
        made_from = (kind, plan.config.name, target, plan.code_targets[target], tools)
        if isinstance(inputs, str):
            return self.cache.name(inputs, *made_from)
        return self.name_with(plan, inputs, *made_from)

    def name_with(self, plan: ModulePlan, inputs: Sequence[LinkInput], *made_from: object) -> Name:
        """Return the name of a result of `inputs` and more; empty if the inputs' text does not determine it."""
        return self.cache.name_with(inputs, plan.config.options, self.inputs.searched(plan), *made_from)

    @staticmethod
    def unedited(before: Mapping[T, Name], after: Mapping[T, Name]) -> dict[T, Name]:
        """Return the names that did not change during the build, because no header was edited."""
        return {key: name for key, name in before.items() if after.get(key) == name}

    def _merges(self, plan: ModulePlan, compiled: Compiled) -> dict[Key, pool.Task]:
        tasks: dict[Key, pool.Task] = {}
        for target in self.packager.function_targets(plan) if plan.functions else ():
            functions = [compiled[unit, code_target(target)] for unit in plan.functions]
            form: Literal["ltoir", "ptx"] = "ltoir" if target.kind == "sass" else "ptx"
            run = partial(self.front.merge_functions, functions, code_target(target), plan.config.options, form)
            tasks["functions", target] = pool.Task(_title(plan, "functions", target), run)
        return tasks

    def _apart(self, plan: ModulePlan, compiled: Compiled) -> Apart:
        """Return the code of each group of kernels, for the targets whose image is linked from groups."""
        kernels = {unit.symbol: unit for unit in plan.kernels}
        every_kernel = (self._all_plans[plan.config.name] if self.job.shard is not None else plan).kernels
        groups = kernel_groups.divide([unit.symbol for unit in every_kernel])
        return {
            (group, target): [
                item for symbol in group for item in compiled[kernels[symbol], plan.code_targets[target]].code
            ]
            for target in plan.targets
            if len(groups) > 1 and self._is_split(plan, target, compiled)
            for group in groups
            if kernels.keys() >= {*group}
        }

    def _object_names(self, plan: ModulePlan, parts: Apart) -> dict[tuple[Group, Target], Name]:
        """Return the names of machine code; targets often share the code that it is made from."""
        of_code: dict[tuple[LinkInput, ...], Name] = {}
        found = {}
        for (group, target), part in parts.items():
            code = tuple(part)
            if code not in of_code:
                of_code[code] = self.name_with(plan, part)
            found[group, target] = self._link_name(plan, "object", of_code[code], target) if of_code[code] else ""
        return found

    def _objects(
        self, plan: ModulePlan, parts: Apart, names: Mapping[tuple[Group, Target], Name]
    ) -> flows.Flow[Objects]:
        """Make machine code of groups of kernels.

        Unchanged groups come from the cache, so after an edit a target costs a few kernels, not the module.
        """
        kernels = {unit.symbol: unit for unit in plan.kernels}
        named = {key: names[key] for key in parts}
        have = self.cache.find(named, lambda _: _CODE)
        for group, target in have:
            note_cached([kernels[symbol] for symbol in group], target)
        left: dict[Group, Apart] = {}
        for (group, target), part in parts.items():
            if (group, target) not in have:
                left.setdefault(group, {})[group, target] = part
        if left and self.units is not None and self.job.from_cache_only:
            raise self.units.lacking_code((plan.config.name, group) for group in left)
        tasks = [
            self._object_task(plan, share) for share in kernel_groups.divide_among(list(left.values()), self.job.jobs)
        ]
        self.total += len(tasks)
        made: Objects = {}
        for found in (yield flows.Round(flows.OBJECTS, tasks)):
            made |= found
        titles = {
            (group, target): f"{plan.config.name}.{kernel_groups.short_list(group)}, machine code for {target}"
            for group, target in made
        }
        self.cache.store(made, named, titles, "code")
        every = {key: have[key] if key in have else made[key] for key in parts}
        whole = {target for (_, target), (data, _) in every.items() if not data}
        return {key: built for key, built in every.items() if key[1] not in whole}

    def _is_split(self, plan: ModulePlan, target: Target, compiled: Compiled) -> bool:
        """Return True if a module's kernels are independent, so they can become machine code in groups."""
        kernels = [compiled[unit, plan.code_targets[target]] for unit in plan.kernels_for(target)]
        return (
            self.assembler is None
            and target.kind == "sass"
            and not plan.config.link
            and all(kernel.self_contained for kernel in kernels)
        )

    def _object_task(self, plan: ModulePlan, parts: Apart) -> pool.Task:
        names = list(dict.fromkeys(symbol for group, _ in parts for symbol in group))
        targets = ", ".join(dict.fromkeys(str(target) for _, target in parts))
        title = f"{plan.config.name}: machine code of {kernel_groups.short_list(names)} for {targets}"
        run = partial(kernel_groups.make_objects, plan.config.name, parts, self._generate(plan), *self._settings(plan))
        work = tuple((plan.config.name, symbol, str(target)) for group, target in parts for symbol in group)
        return pool.Task(title, run, work=work)

    def _links(
        self, plan: ModulePlan, targets: Iterable[Target], compiled: Compiled, merged: PerTarget, objects: Objects
    ) -> dict[Key, pool.Task]:
        tasks: dict[Key, pool.Task] = {}
        for target in targets:
            inputs = kernel_groups.link_inputs(target, objects) or self.inputs.of_link(plan, target, compiled, merged)
            if self.assembler is not None:
                run = partial(self.assembler, plan.config.name, inputs, target, plan.config.options)
            else:
                spills = kernel_groups.spilled_bytes(target, objects)
                arguments = (plan.config.name, inputs, target, self._generate(plan), self._settings(plan))
                run = partial(kernel_groups.link, *arguments, spills)
            tasks["image", target] = pool.Task(_title(plan, "image", target), run)
        return tasks

    def _generate(self, plan: ModulePlan) -> Generate:
        """Return a function that makes code from the front end's IR; children call it before they link."""
        units = {unit.symbol: unit for unit in plan.kernels}

        def generate(inputs: Sequence[LinkInput], target: Target) -> list[LinkInput]:
            found: list[LinkInput] = []
            with failures.gather() as attempt:
                for item in inputs:
                    with attempt():
                        unit = units.get(item.name) if item.kind == "ir" else None
                        code = plan.code_targets[target]
                        made = self.front.generated(unit, self.inputs.functions[unit], item, code) if unit else (item,)
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
        return plan.config.options, self.inputs.folders(plan), self.inputs.names_of_other_modules(plan)

    @property
    def _linked(self) -> Any:
        """Return the type of an image that was linked, or that the front end assembled."""
        return _CODE if self.assembler is None else Assembled


def _title(plan: ModulePlan, kind: str, target: Target) -> str:
    return f"{plan.config.name} {'linked' if kind == 'image' else kind} for {target}"


def _only(tasks: Mapping[Key, pool.Task], keys: Iterable[Key]) -> dict[Key, pool.Task]:
    return {key: tasks[key] for key in keys if key in tasks}


def note_cached(units: Iterable[Unit], target: Target) -> None:
    """Note results of the build cache that units have for a target."""
    telemetry.note_cached(tuple((unit.module, unit.symbol, str(target)) for unit in units))
