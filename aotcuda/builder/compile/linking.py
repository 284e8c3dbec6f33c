"""Link modules: merge their functions, make machine code of groups of kernels, and link images.

Results of equal inputs come from the compile cache; children make the others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from aotcuda.builder import failures
from aotcuda.builder.compile import flows, kernel_groups, pool, telemetry
from aotcuda.builder.compile.parts import ModuleCode
from aotcuda.builder.frontends.protocol import Assembled, Ir
from aotcuda.builder.plan.plan import code_target
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.cache.compile_cache import CompileCache, Name
    from aotcuda.builder.cache.unit_cache import UnitCache
    from aotcuda.builder.compile.job import Job
    from aotcuda.builder.compile.kernel_groups import Generate, Group, GroupCode, Objects
    from aotcuda.builder.compile.module_inputs import ModuleInputs
    from aotcuda.builder.compile.packaging import Packager
    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.protocol import LinkInput, Unit
    from aotcuda.builder.plan.plan import ModulePlan

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
        units: The entries of units, if several machines share the build.
        done: The number of steps that have ended, or whose results were in the cache.
        total: The number of all steps, known before the first one: one for each pair of unit and target that is
            compiled, each kernel in an image, and each merge of functions. Surveys and packing have none.
        assembles: True if the front end has an assembler; otherwise `nvJitLink` links images.
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
        self.assembles = hasattr(self.front, "assembler")
        self._all_plans = {plan.config.name: plan for plan in job.plans}

    def step_count(self, plan: ModulePlan) -> int:
        """Return the number of steps that link a module."""
        merges = len(self.packager.function_targets(plan)) if plan.functions else 0
        return merges + sum(len(plan.kernels_for(target)) for target in plan.targets)

    def link_module(self, plan: ModulePlan, compiled: Compiled) -> flows.Flow[ModuleCode]:
        """Return a module's images and merged functions. The images are linked side by side."""
        merges = self._merges(plan, compiled)
        merged: PerTarget = {}
        if self.inputs.needs_functions(plan, compiled):
            names = partial(self._merge_names, plan, compiled, merges)
            merged = yield from self._cached_round(
                plan, names, lambda missing: flows.run_round(flows.MERGE, _select(merges, missing))
            )
            merges = {}
        images = [plan.of_image(name) for name in plan.images]
        parts = [self._link(part, compiled, {}, merged) for part in images]
        parts += [self._link(replace(plan, units=plan.functions), compiled, merges, merged)] if merges else []
        linked = yield from flows.side_by_side(parts)
        every = merged | linked[-1] if merges else merged
        return ModuleCode(
            functions={target: code for (_, target), code in every.items()},
            images=tuple({target: code for (_, target), code in part.items()} for part in linked[: len(images)]),
        )

    def compile_shard(self, plan: ModulePlan, compiled: Compiled) -> flows.Flow[list[Objects]]:
        """Make machine code of the groups of a module that are complete in a shard."""
        images = [plan.of_image(name) for name in plan.images]
        codes = [self._group_code(image, compiled) for image in images]
        groups = [
            self._compile_groups(image, code, self._object_names(image, code))
            for image, code in zip(images, codes, strict=True)
        ]
        objects = yield from flows.side_by_side(groups)
        self.done += self.step_count(plan) - sum(len(group) for code in codes for group, _ in code)
        return objects

    def _link(
        self, plan: ModulePlan, compiled: Compiled, merges: dict[Key, pool.Task], merged: PerTarget
    ) -> flows.Flow[PerTarget]:
        """Return a module's images, and its functions if `merges` has tasks for them.

        The cache entry of an image that is linked from groups has a name made from the groups' names. If the cache has
        the image, the machine code of the groups is not needed.
        """
        group_code = self._group_code(plan, compiled)
        group_names = self._object_names(plan, group_code)

        def names() -> dict[Key, Name]:
            names_by_key = self._merge_names(plan, compiled, merges)
            for target in plan.targets if plan.kernels else ():
                groups = [name for (_, of_target), name in group_names.items() if of_target == target]
                if groups:
                    name = self.cache.name("image", plan.config.name, target, groups) if all(groups) else ""
                else:
                    name = self._link_name(
                        plan, "image", self.inputs.image_inputs(plan, target, compiled, merged), target
                    )
                names_by_key["image", target] = name
            return names_by_key

        def make(missing: Sequence[Key]) -> flows.Flow[PerTarget]:
            targets = [target for kind, target in missing if kind == "image"]
            objects = yield from self._compile_groups(
                plan, {key: code for key, code in group_code.items() if key[1] in targets}, group_names
            )
            grouped = Counter(target for group, target in group_code for _ in group)
            tasks = _select(merges, missing) | self._links(plan, targets, compiled, merged, objects, grouped)
            if not all(kind == "image" and kernel_groups.link_inputs(target, objects) for kind, target in tasks):
                return (yield from flows.run_round(flows.LINK, tasks))
            # Linking machine code alone is quick, so several links share a process.
            results = yield from flows.run_in_shares(
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
        before = names()
        cached = self.cache.find(before, lambda key: bytes if key[0] == "functions" else self._image_type)
        self.done += sum(len(plan.kernels_for(target)) if kind == "image" else 1 for kind, target in cached)
        for kind, target in cached:
            record_cached(plan.kernels_for(target) if kind == "image" else plan.functions, target)
        missing = [key for key in before if key not in cached]
        results = (yield from make(missing)) if missing else {}
        if results:
            titles = {key: _title(plan, *key) for key in results}
            self.cache.store(results, self.unedited(before, names()), titles, "code")
        return {key: cached[key] if key in cached else results[key] for key in before}

    def _merge_names(self, plan: ModulePlan, compiled: Compiled, merges: Iterable[Key]) -> dict[Key, Name]:
        names: dict[Key, Name] = {}
        for kind, target in merges if self.cache.is_on else ():
            code = code_target(target)
            texts = [compiled[unit, code].ir for unit in plan.functions]
            sources = self.inputs.sources_of(plan.functions)
            names[kind, target] = self.name_with(plan, sources, "functions", texts, target.kind, code)
        return names if self.cache.is_on else dict.fromkeys(merges, "")

    def _link_name(
        self,
        plan: ModulePlan,
        kind: Literal["image", "object"],
        inputs: Sequence[LinkInput | Ir] | Name,
        target: Target,
    ) -> Name:
        """Return the name of a link's result; `inputs` are the link inputs, or a name that represents them."""
        tools = [digest for _, digest in self.inputs.tools([target])]
        others = (kind, plan.config.name, target, plan.code_targets[target], tools)
        if isinstance(inputs, str):
            return self.cache.name(inputs, *others)
        return self.name_with(plan, inputs, *others)

    def name_with(self, plan: ModulePlan, inputs: Sequence[LinkInput | Ir], *others: object) -> Name:
        """Return the name of a result of link inputs and others; empty if their text does not determine the result."""
        return self.cache.name_with(inputs, plan.config.options, self.inputs.header_folders(plan), *others)

    @staticmethod
    def unedited(before: Mapping[T, Name], after: Mapping[T, Name]) -> dict[T, Name]:
        """Return the names that are equal before and after a step; an edit of a header changes a name."""
        return {key: name for key, name in before.items() if after.get(key) == name}

    def _merges(self, plan: ModulePlan, compiled: Compiled) -> dict[Key, pool.Task]:
        tasks: dict[Key, pool.Task] = {}
        for target in self.packager.function_targets(plan) if plan.functions else ():
            irs = {unit: compiled[unit, code_target(target)].ir for unit in plan.functions}
            run = partial(self._merge, plan, irs, target)
            tasks["functions", target] = pool.Task(_title(plan, "functions", target), run, steps=1)
        return tasks

    def _merge(self, plan: ModulePlan, irs: Mapping[Unit, bytes], target: Target) -> bytes:
        """Return one LTOIR or PTX of a module's functions."""
        form: Literal["ltoir", "ptx"] = "ltoir" if target.kind == "sass" else "ptx"
        arguments = (irs, self.inputs.functions, code_target(target), plan.config.options, form)
        (code,) = self.front.generate(*arguments)
        return code.data

    def _group_code(self, plan: ModulePlan, compiled: Compiled) -> GroupCode:
        """Return the code of each group of kernels for the targets whose images are linked from groups."""
        kernels = {unit.symbol: unit for unit in plan.kernels}
        every_plan = self._all_plans[plan.config.name] if self.job.shard is not None else plan
        every_kernel = (every_plan.of_image(plan.image) if plan.image is not None else every_plan).kernels
        groups = kernel_groups.divide([unit.symbol for unit in every_kernel])
        return {
            (group, target): [
                item for symbol in group for item in compiled[kernels[symbol], plan.code_targets[target]].code
            ]
            for target in plan.targets
            if len(groups) > 1 and self._has_independent_kernels(plan, target, compiled)
            for group in groups
            if kernels.keys() >= {*group}
        }

    def _object_names(self, plan: ModulePlan, group_code: GroupCode) -> dict[tuple[Group, Target], Name]:
        """Return the names of the groups' machine code; targets often share the code that it is made from."""
        of_code: dict[tuple[LinkInput | Ir, ...], Name] = {}
        names = {}
        for (group, target), inputs in group_code.items():
            code = tuple(inputs)
            if code not in of_code:
                of_code[code] = self.name_with(plan, inputs)
            names[group, target] = self._link_name(plan, "object", of_code[code], target) if of_code[code] else ""
        return names

    def _compile_groups(
        self, plan: ModulePlan, group_code: GroupCode, group_names: Mapping[tuple[Group, Target], Name]
    ) -> flows.Flow[Objects]:
        """Make machine code of groups of kernels.

        The cache has the unchanged groups, so after an edit few kernels are compiled for a target.
        """
        kernels = {unit.symbol: unit for unit in plan.kernels}
        names = {key: group_names[key] for key in group_code}
        cached = self.cache.find(names, lambda _: _CODE)
        for group, target in cached:
            self.done += len(group)
            record_cached([kernels[symbol] for symbol in group], target)
        missing: dict[Group, GroupCode] = {}
        for (group, target), inputs in group_code.items():
            if (group, target) not in cached:
                missing.setdefault(group, {})[group, target] = inputs
        if missing and self.units is not None and self.job.from_cache_only:
            raise self.units.lacking_code((plan.config.name, group) for group in missing)
        shares = kernel_groups.divide_among(list(missing.values()), self.job.jobs)
        tasks = [self._object_task(plan, share) for share in shares]
        results: Objects = {}
        for objects in (yield flows.Round(flows.OBJECTS, tasks)):
            results |= objects
        titles = {
            (group, target): f"{plan.config.name}.{kernel_groups.short_list(group)}, machine code for {target}"
            for group, target in results
        }
        self.cache.store(results, names, titles, "code")
        every = {key: cached[key] if key in cached else results[key] for key in group_code}
        unlinkable = {target for (_, target), (data, _) in every.items() if not data}
        return {key: code for key, code in every.items() if key[1] not in unlinkable}

    def _has_independent_kernels(self, plan: ModulePlan, target: Target, compiled: Compiled) -> bool:
        """Return True if a module's kernels are independent, so they can become machine code in groups."""
        kernels = [compiled[unit, plan.code_targets[target]] for unit in plan.kernels_for(target)]
        return (
            not self.assembles
            and target.kind == "sass"
            and not plan.has_links
            and all(kernel.self_contained for kernel in kernels)
        )

    def _object_task(self, plan: ModulePlan, share: GroupCode) -> pool.Task:
        names = list(dict.fromkeys(symbol for group, _ in share for symbol in group))
        targets = ", ".join(dict.fromkeys(str(target) for _, target in share))
        title = f"{plan.config.name}: machine code of {kernel_groups.short_list(names)} for {targets}"
        run = partial(
            kernel_groups.make_objects, _place(plan), share, self._code_generator(plan), *self._link_settings(plan)
        )
        work = tuple((plan.config.name, symbol, str(target)) for group, target in share for symbol in group)
        return pool.Task(title, run, steps=len(work), work=work)

    def _links(
        self,
        plan: ModulePlan,
        targets: Iterable[Target],
        compiled: Compiled,
        merged: PerTarget,
        objects: Objects,
        grouped: Mapping[Target, int],
    ) -> dict[Key, pool.Task]:
        """Return the tasks that link images; `grouped` has the numbers of steps of their groups."""
        tasks: dict[Key, pool.Task] = {}
        run: Callable[[], Any]
        for target in targets:
            inputs: Sequence[Any] = kernel_groups.link_inputs(target, objects) or self.inputs.image_inputs(
                plan, target, compiled, merged
            )
            if self.assembles:
                run = partial(self.front.assembler(target).assemble, plan.config.name, inputs, plan.config.options)
            else:
                spills = kernel_groups.spilled_bytes(target, objects)
                arguments = (_place(plan), inputs, target, self._code_generator(plan), self._link_settings(plan))
                run = partial(kernel_groups.link, *arguments, spills)
            steps = len(plan.kernels_for(target)) - grouped[target]
            tasks["image", target] = pool.Task(_title(plan, "image", target), run, steps=steps)
        return tasks

    def _code_generator(self, plan: ModulePlan) -> Generate:
        """Return a function that compiles the front end's IR to code; children call it before they link."""
        units = {unit.symbol: unit for unit in plan.kernels}

        def generate(inputs: Sequence[LinkInput | Ir], target: Target) -> list[LinkInput]:
            linkable: list[LinkInput] = []
            with failures.gather() as attempt:
                for item in inputs:
                    with attempt():
                        if isinstance(item, Ir):
                            linkable += self._generated(plan, units[item.symbol], item.data, target)
                        else:
                            linkable.append(item)
            return linkable

        return generate

    def _generated(self, plan: ModulePlan, unit: Unit, ir: bytes, target: Target) -> tuple[LinkInput, ...]:
        code = self.front.generate({unit: ir}, self.inputs.functions, plan.code_targets[target], unit.options)
        if target.kind == "ptx" and any(part.kind == "ptx" for part in code):
            message = (
                f"{unit.key}: debug=True gives machine code alone, and {target} of arch is PTX; remove debug=True from "
                "the kernel's decorator, or list sm_* targets only"
            )
            raise CompileError(message)
        return code

    def _link_settings(self, plan: ModulePlan) -> tuple[Options, list[str], dict[str, str]]:
        """Return the arguments of links besides their inputs."""
        return plan.config.options, self.inputs.include_dirs(plan), self.inputs.names_of_other_modules(plan)

    @property
    def _image_type(self) -> Any:
        """Return the type of an image of the linker, or of the front end's assembler."""
        return Assembled if self.assembles else _CODE


def _title(plan: ModulePlan, kind: str, target: Target) -> str:
    name = f"{plan.config.name} ({plan.image})" if plan.image and kind == "image" else plan.config.name
    return f"{name} {'linked' if kind == 'image' else kind} for {target}"


def _place(plan: ModulePlan) -> str:
    """Return the name of a module for errors of its links, with the CUDA C++ files of the image."""
    files = plan.image or ", ".join(plan.config.source if plan.linked is not None else ())
    return f"{plan.config.name} ({files})" if files else plan.config.name


def _select(tasks: Mapping[Key, pool.Task], keys: Iterable[Key]) -> dict[Key, pool.Task]:
    return {key: tasks[key] for key in keys if key in tasks}


def record_cached(units: Iterable[Unit], target: Target) -> None:
    """Record that the build cache had the results of units for a target."""
    telemetry.add_cached(tuple((unit.module, unit.identifier, str(target)) for unit in units))
