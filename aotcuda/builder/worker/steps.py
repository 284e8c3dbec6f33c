"""The steps of a build inside the worker, each a round of children: compile, merge, check the link, link."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal

from aotcuda import dependencies, manifest
from aotcuda.arch import Target
from aotcuda.builder import sameness
from aotcuda.builder.build_cache.kept import Kept
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import included_headers, nvjitlink, nvrtc, preconditions
from aotcuda.builder.link import inputs as link_inputs
from aotcuda.builder.link.images import described
from aotcuda.builder.plan import code_target
from aotcuda.builder.worker import pool, source_loading
from aotcuda.builder.worker.finish import Parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aotcuda.builder.build_cache.kept import UnitNames
    from aotcuda.builder.frontends.protocol import Callbacks, CompiledFunction, CompiledKernel, FrontEnd, Unit
    from aotcuda.builder.link.inputs import Linked
    from aotcuda.builder.link.symbols import Symbols
    from aotcuda.builder.plan import ModulePlan
    from aotcuda.builder.worker.finish import Finisher
    from aotcuda.builder.worker.job import BuiltModule, Job
    from aotcuda.builder.worker.source_loading import Elsewhere
    from aotcuda.dependencies import Answer

    Compiled = dict[tuple[Unit, Target], Any]
    PerTarget = dict[tuple[str, Target], bytes]


class Steps:
    """One job's steps.

    Attributes:
        warnings: What the user should know, so far.
        surveyed: Everything foreign that was linked, with its symbols, by module.
        linkable: What other modules of the wheel link of these, by module; of those that they do.
        kept: The build cache.
        units: The names of units in it; None where it is not known what they depend on.
    """

    def __init__(
        self,
        job: Job,
        front: FrontEnd,
        finisher: Finisher,
        functions: dict[Unit, object],
        tell: Callable[..., None],
        elsewhere: Sequence[Elsewhere] = (),
        kept: Kept | None = None,
    ) -> None:
        self.job = job
        self.finisher = finisher
        self.front = front
        self.functions = functions
        self.tell = tell
        self.elsewhere = elsewhere
        self.kept = kept or Kept(None, job.root, ())
        self.units: UnitNames | None = None
        self.warnings: list[str] = []
        self.surveyed: dict[str, dict[LinkInput, Symbols]] = {}
        self.linkable: dict[str, Linked] = {}
        self.linked: dict[str, Linked] = {
            plan.config.name: link_inputs.read(plan.config.link, Path(job.root), job.linkable) for plan in job.plans
        }
        self.done = 0
        self.total = sum(
            sum(len(plan.compiled_for(unit)) for unit in plan.units)
            + (len(plan.targets) if plan.kernels else 0)
            + (len(plan.function_targets) if plan.functions else 0)
            for plan in job.plans
        )

    def run(self) -> list[BuiltModule]:
        """All modules, built.

        Raises:
            AotcudaError: Something cannot be compiled or linked.
        """
        compiled = self._compile()
        merged = self._merge(compiled)
        surveys = {plan.config.name: self._survey(plan, compiled) for plan in self.job.plans}
        self.surveyed = surveys
        images = self._link(compiled, merged)
        modules = []
        for plan in self.job.plans:
            parts = self._parts(plan, compiled, merged, images, surveys[plan.config.name])
            modules.append(self.finisher.finish(parts, self._sources_compiled))
            if plan.config.name in self.job.wanted:
                self.linkable[plan.config.name] = self.finisher.linkable(parts, modules[-1], self._sources_compiled)
        return modules

    def linked_files(self) -> tuple[manifest.Source, ...]:
        """The project's files that were linked and their headers, with digests; the paths are absolute."""
        paths = {path for plan in self.job.plans for path in self.files_of(plan)}
        return tuple({"path": str(path), "sha256": manifest.digest(path.read_bytes())} for path in sorted(paths))

    def headers_elsewhere(self) -> dict[tuple[str, str], Answer]:
        """What the compiler of CUDA C++ asked for besides, as `aotcuda.dependencies` has it."""
        asked: dict[tuple[str, str], Answer] = {}
        for plan in self.job.plans:
            others, missing = included_headers.elsewhere(
                self._files(plan), Path(self.job.root), plan.config.options.include_dirs
            )
            asked |= {("kind", os.path.normpath(path)): None for path in missing}
            asked |= {("content", str(path)): dependencies.answer("content", str(path)) for path in others}
        return asked

    def unseen(self) -> tuple[str, ...]:
        """What may read files that nobody knows of."""
        found: list[str] = []
        for plan in self.job.plans:
            options = plan.config.options
            found += included_headers.hidden(
                self._files(plan), Path(self.job.root), options.include_dirs, options.nvrtc_options
            )
        return tuple(dict.fromkeys(found))

    def _round(self, tasks: dict[Any, pool.Task]) -> dict[Any, Any]:
        def done(task: pool.Task) -> None:
            self.done += 1
            self.tell(step=task.title, done=self.done, total=max(self.total, self.done))

        return dict(zip(tasks, pool.run(list(tasks.values()), self.job.jobs, done), strict=True))

    def _kept_round(
        self,
        tasks: dict[Any, pool.Task],
        named: dict[Any, tuple[str, ...]],
        kind: str,
        choose: Callable[[Any, Any], int | None] = lambda _key, _made: 0,
    ) -> dict[Any, Any]:
        """A round of what the build cache does not have."""
        before = self.kept.reused

        def run(left: dict[Any, pool.Task]) -> dict[Any, Any]:
            self.done += len(tasks) - len(left)
            return self._round(left)

        results = self.kept.round(tasks, named, run, kind, choose)
        if self.kept.reused > before:
            self.tell(step=f"reusing {self.kept.reused - before} of {len(tasks)}", done=self.done, total=self.total)
        return results

    def _compile(self) -> Compiled:
        """Every unit for every target; those that other processes have compiled are taken as they are."""
        here = source_loading.targets(self.job)[: 1 if self.elsewhere else None]
        own = [target for found in here for target in found]
        tasks = source_loading.compile_tasks(self.job, self.front, self.functions, own)
        compiled = self._kept_round(tasks, self._unit_names(tasks), "unit", self._unit_name)
        imports = [sameness.Import(own[0], frozenset(self.functions), compiled)]
        for other in self.elsewhere:
            target = next(target for _, target in other.compiled)
            imports.append(sameness.Import(target, frozenset(other.units), other.compiled))
        sameness.check(imports)
        for other in self.elsewhere:
            compiled |= other.compiled
        return compiled

    def _unit_names(self, tasks: Iterable[tuple[Unit, Target]]) -> dict[tuple[Unit, Target], tuple[str, ...]]:
        """The names of units in the build cache; none where sources were imported for each target."""
        if self.units is None or self.elsewhere:
            return {}
        return {
            (unit, target): names
            for unit, target in tasks
            if not self.front.sources(unit, self.functions[unit], self.job.root)
            and (names := self.units.of(unit, target))
        }

    def _unit_name(self, key: tuple[Unit, Target], built: object) -> int | None:
        in_place = next(plan.in_place for plan in self.job.plans if plan.config.name == key[0].module)
        return self.units.choose(built, in_place=in_place) if self.units is not None else None

    def _merge(self, compiled: Compiled) -> PerTarget:
        tasks = {}
        named = {}
        for plan in self.job.plans:
            if not plan.functions:
                continue
            for target in self.finisher.function_targets(plan):
                functions = [compiled[unit, code_target(target)] for unit in plan.functions]
                form: Literal["ltoir", "ptx"] = "ltoir" if target.kind == "sass" else "ptx"
                run = partial(self.front.merge_functions, functions, code_target(target), plan.config.options, form)
                tasks[plan.config.name, target] = pool.Task(f"{plan.config.name} functions for {target}", run)
                parts = (plan.frontend, functions, code_target(target), plan.config.options, form)
                named[plan.config.name, target] = self.kept.name("merge", *parts)
        return self._kept_round(tasks, {key: names for key, names in named.items() if names}, "functions")

    def _survey(self, plan: ModulePlan, compiled: Compiled) -> dict[LinkInput, Symbols]:
        """The symbols of everything foreign in a module's link, which is checked with them."""
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
        found = self._round(tasks)
        own = [unit.symbol for unit in plan.units]
        preconditions.check(plan.config.name, wanted, own, found, plan.targets, asked_by, self._elsewhere(plan))
        return found

    def _asked_by(self, plan: ModulePlan, item: LinkInput, compiled: Compiled) -> str:
        """The key for which `item` is linked: one of the configuration's `link`, or that of a unit that brings it."""
        for given in plan.config.link:
            name = given.module or PurePath(given.path or "").as_posix()
            if item.name == name or item.name.startswith(f"{given.module} "):
                return given.key
        built = {unit: compiled[unit, plan.compiled_for(unit)[0]] for unit in plan.units}
        users = [unit for unit, found in built.items() if item.identity in _identities(found)]
        return users[0].key if users else plan.config.key

    def _elsewhere(self, plan: ModulePlan) -> dict[str, str]:
        """The names that other modules of the wheel have for others to link, with the module's name."""
        functions = {item.config.name: [unit.symbol for unit in item.functions] for item in self.job.plans}
        every = {**functions, **self.job.names}
        found = {name: module for module, names in every.items() for name in functions.get(module, names)}
        return {name: module for name, module in found.items() if module != plan.config.name}

    def _link(self, compiled: Compiled, merged: PerTarget) -> PerTarget:
        tasks = {}
        named = {}
        for plan in self.job.plans:
            if not plan.kernels:
                continue
            for target in plan.targets:
                inputs = self._link_inputs(plan, target, compiled, merged)
                settings = (plan.config.options, self._folders(plan), self._elsewhere(plan))
                run = partial(_link, plan.config.name, inputs, target, *settings)
                tasks[plan.config.name, target] = pool.Task(f"{plan.config.name} linked for {target}", run)
                named[plan.config.name, target] = self._link_names(plan, inputs, target)
        return self._kept_round(tasks, {key: names for key, names in named.items() if names}, "image")

    def _link_names(self, plan: ModulePlan, inputs: Sequence[LinkInput], target: Target) -> tuple[str, ...]:
        """An image's name in the build cache: what it is linked from, and headers of what is compiled on the way."""
        options, root = plan.config.options, Path(self.job.root)
        if not self.kept.is_on:
            return ()
        arguments = (inputs, root, options.include_dirs)
        if included_headers.hidden(*arguments, options.nvrtc_options):
            return ()
        headers = [*included_headers.project_files(*arguments), *sorted(included_headers.elsewhere(*arguments)[0])]
        items = [self.kept.item(item) for item in inputs]
        return self.kept.name("link", plan.config.name, items, target, options, self.kept.files(headers))

    def _link_inputs(self, plan: ModulePlan, target: Target, compiled: Compiled, merged: PerTarget) -> list[LinkInput]:
        code = plan.code_targets[target]
        kernels = [compiled[unit, code] for unit in plan.kernels]
        foreign = self._foreign(plan, kernels)
        inputs = [item for kernel in kernels for item in kernel.code]
        exported = {unit.symbol for unit in plan.functions}
        wanted = {external.name for kernel in kernels for external in kernel.externals}
        if exported & wanted or (exported and any(not item.internal for item in foreign)):
            # Kernels may call the module's own exported functions by their C ABI, and so may code that is linked in.
            name = f"code of {plan.config.name}'s functions"
            inputs.append(LinkInput(kind="ltoir", name=name, data=merged[plan.config.name, code]))
            foreign = self._foreign(plan, [*kernels, *(compiled[unit, code] for unit in plan.functions)])
        return [*inputs, *foreign]

    def _foreign(self, plan: ModulePlan, compiled: Iterable[CompiledKernel | CompiledFunction]) -> list[LinkInput]:
        """What is linked beside compiled Python: of the configuration first, then what the units bring, each once."""
        items = list(self.linked[plan.config.name].inputs)
        for built in compiled:
            items += built.needed
        return nvjitlink.unique(items)

    def files_of(self, plan: ModulePlan) -> tuple[Path, ...]:
        """The project's files that a module links or is compiled from, and their headers."""
        return included_headers.project_files(self._files(plan), Path(self.job.root), plan.config.options.include_dirs)

    def _files(self, plan: ModulePlan) -> list[LinkInput]:
        own = [item for unit in plan.units for item in self.front.sources(unit, self.functions[unit], self.job.root)]
        return [*self.surveyed.get(plan.config.name, {}), *own]

    def _folders(self, plan: ModulePlan) -> list[str]:
        given = [str(Path(self.job.root, path)) for path in plan.config.options.include_dirs]
        return [*given, *self.front.include_dirs()]

    def _parts(
        self,
        plan: ModulePlan,
        compiled: Compiled,
        merged: PerTarget,
        images: PerTarget,
        surveyed: dict[LinkInput, Symbols],
    ) -> Parts:
        name = plan.config.name
        kernels = tuple(compiled[unit, plan.compiled_for(unit)[0]] for unit in plan.kernels)
        functions = tuple(compiled[unit, plan.compiled_for(unit)[0]] for unit in plan.functions)
        self.warnings += [text for function in functions for text in function.warnings]
        linker = nvjitlink.number()
        linked = tuple(described(target, images[name, target], linker) for target in plan.targets if plan.kernels)
        callbacks: dict[Callbacks, None] = dict.fromkeys(self.linked[name].callbacks)
        for built in (*kernels, *functions):
            callbacks |= dict.fromkeys(built.callbacks)
        return Parts(
            plan=plan,
            images=linked,
            kernels=kernels,
            functions=functions,
            merged={target: merged[name, target] for target in self.finisher.function_targets(plan) if functions},
            callbacks=tuple(callbacks),
            foreign=_foreign_symbols(surveyed),
            called=tuple(self._called(plan, functions)),
            files=self.files_of(plan),
        )

    def _called(self, plan: ModulePlan, functions: Sequence[CompiledFunction]) -> list[LinkInput]:
        """What has to be linked wherever the exported functions are."""
        return self._foreign(plan, functions) if any(function.externals for function in functions) else []

    def _sources_compiled(self, plan: ModulePlan, item: LinkInput, targets: Sequence[Target]) -> dict[Target, bytes]:
        """CUDA C++ compiled for each target: LTOIR for machine code, PTX for PTX."""
        joined = replace(item, data=item.data + b"".join(data for _, data in item.pieces), pieces=())
        arguments = (plan.config.options, self._folders(plan))
        tasks = {}
        for target in targets:
            run = partial(_compile_source, joined, code_target(target), *arguments, lto=target.kind == "sass")
            tasks[target] = pool.Task(f"{plan.config.name}: {item.name} for {target}", run)
        return self._round(tasks)


def _identities(built: CompiledKernel | CompiledFunction) -> list[tuple[str, bytes]]:
    return [item.identity for item in built.needed]


def _foreign_symbols(surveyed: dict[LinkInput, Symbols]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((item.name, found.functions) for item, found in surveyed.items() if not item.internal)


def _compile_source(*arguments: Any, lto: bool) -> bytes:
    os.chdir("/")  # NVRTC writes the current folder into LTOIR
    return nvrtc.compile_source(*arguments, lto=lto)


def _link(*arguments: Any) -> bytes:
    # The linker writes the current folder into line tables; an image must not tell where it was built.
    os.chdir("/")
    return nvjitlink.link(*arguments)
