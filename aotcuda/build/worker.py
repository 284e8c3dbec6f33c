"""The worker: a process of its own that imports the compiler and the user's modules, and builds everything.

It is started by `aotcuda.build.process` with a clean environment (`python -m aotcuda.build.worker`), reads a pickled
`Job` from standard input, and writes to the file descriptor that it is given: a line of JSON for each step, then one
for the end. What was built goes to a file. User modules may print as they like; their output goes to standard error.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda.build import frontends, link, nvrtc, pack, pool, sources
from aotcuda.build.frontends import LinkInput
from aotcuda.build.job import BuiltModule, Job, Result
from aotcuda.errors import AotcudaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aotcuda.arch import Target
    from aotcuda.build.frontends import CompiledFunction, CompiledKernel, FrontEnd
    from aotcuda.build.plan import ModulePlan, Unit


def main() -> int:
    """Run the job on standard input; arguments: the file descriptor for messages, the file for the result."""
    descriptor, path = int(sys.argv[1]), Path(sys.argv[2])
    os.set_inheritable(descriptor, False)
    messages = os.fdopen(descriptor, "w", encoding="utf-8", buffering=1)
    job: Job = pickle.load(sys.stdin.buffer)
    os.dup2(2, 1)

    def tell(**message: object) -> None:
        messages.write(json.dumps(message) + "\n")

    try:
        result = build(job, tell)
    except AotcudaError as error:
        if os.environ.get("AOTCUDA_DEBUG") == "1":
            raise
        tell(error=type(error).__name__, message=str(error))
        return 1
    path.write_bytes(pickle.dumps(result))
    tell(finished=True)
    return 0


def build(job: Job, tell: Callable[..., None]) -> Result:
    """Import, compile, link and pack everything in `job`.

    Raises:
        AotcudaError: Something in the project or the toolchain is wrong.
    """
    for plan in job.plans:
        for target in plan.targets:
            nvrtc.check_target(target, "tool.aotcuda.arch")
    front = frontends.get(job.frontend)
    tell(step="starting the compiler", done=0, total=0)
    versions = front.prepare(job.root)
    sources.prepare_imports(job.import_roots, job.names)
    units = [unit for plan in job.plans for unit in plan.units]
    functions = sources.load(units, job.root)
    for unit in units:
        front.resolve(unit, functions[unit])
    modules, warnings = _Builder(job, front, functions, tell).build()
    toolchain = {
        "cuda": ".".join(map(str, nvrtc.toolkit_version())),
        "nvjitlink": link.version(),
        "nvfatbin": pack.version(),
        "python": ".".join(map(str, sys.version_info[:2])),
        **versions,
    }
    return Result(
        toolchain=toolchain,
        modules=tuple(modules),
        sources=sources.project_files(job.import_roots),
        warnings=tuple(dict.fromkeys(warnings)),
    )


class _Builder:
    """The steps of one job, each a round of children: compile every unit, merge functions, link every image."""

    def __init__(self, job: Job, front: FrontEnd, functions: dict[Unit, object], tell: Callable[..., None]) -> None:
        self.job = job
        self.front = front
        self.functions = functions
        self.tell = tell
        self.done = 0
        self.total = sum(
            len(plan.units) * len(plan.ltoir_targets)
            + (len(plan.targets) if plan.kernels else 0)
            + (len(plan.ltoir_targets) if plan.functions else 0)
            for plan in job.plans
        )

    def build(self) -> tuple[list[BuiltModule], list[str]]:
        compiled = self._compile()
        merged = self._merge(compiled)
        images = self._link(compiled, merged)
        modules, warnings = [], []
        for plan in self.job.plans:
            first = plan.ltoir_targets[0]
            functions = tuple(compiled[unit, first] for unit in plan.functions)
            warnings += [text for function in functions for text in function.warnings]
            linked = tuple((target, images[plan.config.name, target]) for target in plan.targets if plan.kernels)
            ltoir = tuple((target, merged[plan.config.name, target]) for target in plan.ltoir_targets if functions)
            modules.append(
                BuiltModule(
                    plan=plan,
                    images=linked,
                    kernels=tuple(compiled[unit, first] for unit in plan.kernels),
                    ltoir=ltoir,
                    functions=functions,
                    kernel_fatbin=pack.kernels(linked, plan.config.name) if linked else b"",
                    function_fatbin=pack.functions(ltoir, plan.config.name) if ltoir else b"",
                )
            )
        return modules, warnings

    def _round(self, tasks: dict[Any, pool.Task]) -> dict[Any, Any]:
        def done(task: pool.Task) -> None:
            self.done += 1
            self.tell(step=task.title, done=self.done, total=self.total)

        return dict(zip(tasks, pool.run(list(tasks.values()), self.job.jobs, done), strict=True))

    def _compile(self) -> dict[tuple[Unit, Target], Any]:
        tasks = {}
        for plan in self.job.plans:
            for unit in plan.units:
                compiler: Callable[..., CompiledKernel | CompiledFunction] = (
                    self.front.compile_kernel if unit.kind == "kernel" else self.front.compile_function
                )
                for target in plan.ltoir_targets:
                    run = partial(compiler, unit, self.functions[unit], target)
                    tasks[unit, target] = pool.Task(f"{unit.title} for {target}", run)
        return self._round(tasks)

    def _merge(self, compiled: dict[tuple[Unit, Target], Any]) -> dict[tuple[str, Target], bytes]:
        tasks = {}
        for plan in self.job.plans:
            if not plan.functions:
                continue
            for target in plan.ltoir_targets:
                functions = [compiled[unit, target] for unit in plan.functions]
                run = partial(self.front.merge_functions, functions, target, plan.config.options)
                tasks[plan.config.name, target] = pool.Task(f"{plan.config.name} functions for {target}", run)
        return self._round(tasks)

    def _link(
        self, compiled: dict[tuple[Unit, Target], Any], merged: dict[tuple[str, Target], bytes]
    ) -> dict[tuple[str, Target], bytes]:
        tasks = {}
        for plan in self.job.plans:
            if not plan.kernels:
                continue
            for target in plan.targets:
                inputs = self._link_inputs(plan, target, compiled, merged)
                options, folders = plan.config.options, self.front.include_dirs()
                run = partial(_link_anywhere, plan.config.name, inputs, target, options, folders)
                tasks[plan.config.name, target] = pool.Task(f"{plan.config.name} linked for {target}", run)
        return self._round(tasks)

    @staticmethod
    def _link_inputs(
        plan: ModulePlan,
        target: Target,
        compiled: dict[tuple[Unit, Target], Any],
        merged: dict[tuple[str, Target], bytes],
    ) -> list[LinkInput]:
        code = _code_target(target, plan)
        inputs = [item for unit in plan.kernels for item in compiled[unit, code].code]
        foreign = any(item.kind != "ltoir" for item in inputs)
        if foreign and plan.functions:
            # Code that is linked in may call the module's own exported functions.
            name = f"{plan.config.name} functions"
            inputs.append(LinkInput(kind="ltoir", name=name, data=merged[plan.config.name, code]))
        return inputs


def _link_anywhere(*arguments: Any) -> bytes:
    # The linker writes the current folder into line tables; an image must not tell where it was built.
    os.chdir("/")
    return link.link(*arguments)


def _code_target(target: Target, plan: ModulePlan) -> Target:
    return next(item for item in plan.ltoir_targets if item.number == target.number)


if __name__ == "__main__":
    sys.exit(main())
