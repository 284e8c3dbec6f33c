"""Find the inputs of modules besides Python: files, headers, tools and link inputs."""

from __future__ import annotations

import os
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from aotcuda import manifest
from aotcuda.binary import targets
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import inputs, nvjitlink
from aotcuda.builder.link.included_headers import Headers
from aotcuda.builder.plan import toolchain
from aotcuda.builder.project.files import INSTALLED
from aotcuda.cache import compilers
from aotcuda.common.stamp import Stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from aotcuda.arch import Target
    from aotcuda.builder.compile.job import Job
    from aotcuda.builder.config.model import LinkItem
    from aotcuda.builder.frontends.protocol import CompiledFunction, CompiledKernel, FrontEnd, Ir, Unit
    from aotcuda.builder.link.inputs import Linked
    from aotcuda.builder.link.symbols import Symbols
    from aotcuda.builder.plan.plan import ModulePlan

    Compiled = Mapping[tuple[Unit, Target], Any]


class ModuleInputs:
    """The inputs of a job's modules.

    Attributes:
        linked: The items of each module's key `link`.
        surveyed: The linked files and modules with their symbols, by module.
    """

    def __init__(self, job: Job, front: FrontEnd, functions: Mapping[Unit, object]) -> None:
        self.job = job
        self.front = front
        self.functions = functions
        self.surveyed: dict[str, dict[LinkInput, Symbols]] = {}
        self._header_folders: dict[str, list[str]] = {}
        self.linked: dict[str, Linked] = {
            plan.config.name: inputs.read(_read_items(plan, job), Path(job.root), job.others.linkable)
            for plan in job.plans
        }
        self._first_stamp = self._current_stamp()

    def linked_files(self) -> tuple[manifest.Source, ...]:
        """Return the project's files that were linked and their headers, with digests; the paths are absolute."""
        paths = {path for plan in self.job.plans for path in self.headers(plan).project_files}
        return tuple({"path": str(path), "sha256": manifest.digest(path.read_bytes())} for path in sorted(paths))

    def stamp(self) -> Stamp:
        """Return the stamp of linked files, headers, and missing files that would be found before a header.

        The answers are those from before the compilation, where the files were known then.
        """
        return Stamp().add([self._first_stamp, self._current_stamp()])

    def _current_stamp(self) -> Stamp:
        stamp = Stamp()
        for plan in self.job.plans:
            headers = self.headers(plan)
            for path in (*headers.files, *headers.links, *headers.missing):
                stamp.add_question("file", os.path.normpath(path))
            for item in _read_items(plan, self.job):
                if item.module is not None and item.module not in self.job.others.linkable:
                    module = targets.find_module(item.module)
                    # The manifest has digests of the code.
                    stamp.add_question("file", str(Path(str(module.path), manifest.FILE_NAME)))
                    for path in inputs.editable_sources(module):
                        stamp.add_question("file", str(path))
        return stamp

    def undetermined(self) -> tuple[str, ...]:
        """Return the sources whose text does not determine the compiled code."""
        names = (name for plan in self.job.plans for name in self.headers(plan).uncacheable(plan.config.options))
        return tuple(dict.fromkeys(names))

    def tools(self, targets: Iterable[Target]) -> list[tuple[str, str | None]]:
        """Return the front end's own tools, with their digests; versions represent those of installed packages."""
        own = targets if hasattr(self.front, "assembler") else ()
        paths = {os.path.realpath(path) for target in own for path in self.front.assembler(target).tools}
        return [(path, compilers.digest(path)) for path in sorted(paths) if INSTALLED.isdisjoint(path.split("/"))]

    def requesting_key(self, plan: ModulePlan, item: LinkInput, compiled: Compiled) -> str:
        """Return the key that requests a link input: an item of `link`, or a unit that needs the input."""
        path, root = Path(item.folder, PurePath(item.name).name), Path(self.job.root)
        for listed in plan.config.link:
            if listed.path is not None and inputs.place(root / listed.path, root) == path:
                return listed.key
            if listed.module is not None and listed.module == item.module:
                return listed.key
        built = {unit: compiled[unit, plan.compiled_for(unit)[0]] for unit in plan.units}
        users = (
            unit for unit, code in built.items() if any(needed.identity == item.identity for needed in code.needed)
        )
        return next((unit.key for unit in users), plan.config.key)

    def names_of_other_modules(self, plan: ModulePlan) -> dict[str, str]:
        """Return the exported names of the wheel's other modules, each with its module."""
        functions = {item.config.name: [unit.symbol for unit in item.functions] for item in self.job.plans}
        every = {**functions, **self.job.names, **functions}
        exported = {name: module for module, names in every.items() for name in names}
        return {name: module for name, module in exported.items() if module != plan.config.name}

    def needs_functions(self, plan: ModulePlan, compiled: Compiled) -> bool:
        """Return True if kernels or linked files may call the module's own exported functions by their C ABI."""
        return any(self.links_functions(plan, target, compiled) for target in plan.targets if plan.kernels)

    def links_functions(self, plan: ModulePlan, target: Target, compiled: Compiled) -> bool:
        """Return True if the image for a target is linked with the module's own exported functions."""
        kernels = [compiled[unit, plan.code_targets[target]] for unit in plan.kernels_for(target)]
        exported = {unit.symbol for unit in plan.functions}
        wanted = {external.name for kernel in kernels for external in kernel.externals}
        return bool(exported & wanted) or (
            bool(exported) and any(not item.internal for item in self.foreign_inputs(plan, kernels))
        )

    def image_inputs(
        self, plan: ModulePlan, target: Target, compiled: Compiled, merged: Mapping[tuple[str, Target], Any]
    ) -> list[LinkInput | Ir]:
        """Return the link inputs of the image for a target; `merged` has the merged functions."""
        code = plan.code_targets[target]
        kernels = [compiled[unit, code] for unit in plan.kernels_for(target)]
        inputs: list[LinkInput | Ir] = [item for kernel in kernels for item in kernel.code]
        if not self.links_functions(plan, target, compiled) or any(kernel.has_functions for kernel in kernels):
            return [*inputs, *self.foreign_inputs(plan, kernels)]
        name = f"code of {plan.config.name}'s functions"
        inputs.append(LinkInput(kind="ltoir", name=name, data=merged["functions", code]))
        functions = [compiled[unit, code] for unit in plan.functions]
        return [*inputs, *self.foreign_inputs(plan, [*kernels, *functions])]

    def foreign_inputs(
        self, plan: ModulePlan, compiled: Iterable[CompiledKernel | CompiledFunction]
    ) -> list[LinkInput]:
        """Return the inputs other than compiled Python, each once: first from `link`, then from the units."""
        items = list(self.linked[plan.config.name].inputs) if plan.has_links else []
        for built in compiled:
            items += built.needed
        return nvjitlink.unique(items)

    def function_inputs(self, plan: ModulePlan, functions: Sequence[CompiledFunction]) -> list[LinkInput]:
        """Return the inputs that must be linked together with the exported functions."""
        return self.foreign_inputs(plan, functions) if any(function.externals for function in functions) else []

    def headers(self, plan: ModulePlan) -> Headers:
        """Return the files that a module links or is compiled from, and their headers."""
        linked = self.surveyed.get(plan.config.name, self.linked[plan.config.name].inputs)
        items = [*linked, *self.sources_of(plan.units)]
        return Headers(items, Path(self.job.root), self.header_folders(plan), plan.config.options)

    def sources_of(self, units: Iterable[Unit]) -> list[LinkInput]:
        """Return the files other than Python modules that units are compiled from, each once."""
        sources: Callable[[Any, Any], Sequence[LinkInput]] = getattr(self.front, "sources", lambda *_: ())
        return nvjitlink.unique(item for unit in units for item in sources(unit, self.functions[unit]))

    def carried_files(self, plan: ModulePlan) -> tuple[tuple[str, Path], ...]:
        """Return the files of a module that a wheel holds for the JIT fallback, with their names there."""
        root = Path(self.job.root)
        outside = inputs.outside_folders((item.path for item in plan.config.link if item.path is not None), root)
        names = {path: inputs.carried_name(path, root, outside) for path in self.headers(plan).files}
        return tuple(sorted((name, path) for path, name in names.items() if name is not None))

    def header_folders(self, plan: ModulePlan) -> list[str]:
        """Return the folders whose headers are inputs; versions represent installed packages and the toolkit."""
        name = plan.config.name
        if name not in self._header_folders:
            toolkits = (*toolchain.include_dirs(), *compilers.machine_toolkits())
            self._header_folders[name] = [
                path
                for path in self.include_dirs(plan)
                if INSTALLED.isdisjoint(path.split("/")) and not os.path.realpath(path).startswith(toolkits)
            ]
        return self._header_folders[name]

    def include_dirs(self, plan: ModulePlan) -> list[str]:
        """Return the folders in which CUDA C++ finds headers."""
        configured = [str(Path(self.job.root, path)) for path in plan.config.options.include_dirs]
        return [*configured, *(self.front.include_dirs() if hasattr(self.front, "include_dirs") else ())]


def _read_items(plan: ModulePlan, job: Job) -> list[LinkItem]:
    """Return the items of `link` that this process reads; a shard links no modules."""
    return [item for item in plan.config.link if item.module is None or job.shard is None]
