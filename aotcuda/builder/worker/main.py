"""The worker: a process of its own that imports the compiler and the user's modules, and builds everything.

It is started by `aotcuda.builder.worker.process` with a clean environment, by way of
`aotcuda.builder.worker.supervisor`, reads a pickled `Job` from standard input, and sends a message for each step, then
one for the end. What was built goes to a file without a name. User modules may print as they like; their output goes to
standard error.
"""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

from aotcuda import frontends, manifest
from aotcuda.builder import toolchain
from aotcuda.builder.frontends import loading
from aotcuda.builder.link import nvjitlink as link
from aotcuda.builder.worker import dependency_trace, finish, pool
from aotcuda.builder.worker import imports as sources
from aotcuda.builder.worker.channel import Owned
from aotcuda.builder.worker.job import Job, Result
from aotcuda.builder.worker.steps import Steps
from aotcuda.errors import AotcudaError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aotcuda.builder.frontends.protocol import Unit


def main(tell: Callable[..., None], descriptor: int) -> int:
    """Run the job on standard input.

    Args:
        tell: Sends a message.
        descriptor: An empty file for the result.
    """
    file = Owned(descriptor)
    try:
        job: Job = pickle.load(sys.stdin.buffer)  # from the process that started this one
    except (EOFError, pickle.UnpicklingError):
        return 1  # which was killed while it wrote
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        result = pickle.dumps(build(job, tell))
    except AotcudaError as error:
        if os.environ.get("AOTCUDA_DEBUG") == "1":
            raise
        tell(error=type(error).__name__, message=str(error))
        return 1
    tell(step="handing the result over", done=0, total=0)
    file.check()
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    file.write(result)
    tell(finished=manifest.digest(result))
    return 0


def build(job: Job, tell: Callable[..., None]) -> Result:
    """Import, compile, link and pack everything in `job`.

    Raises:
        AotcudaError: Something in the project or the toolchain is wrong.
    """
    toolchain.load(job.toolkit)
    for plan in job.plans:
        for target in plan.targets:
            toolchain.check_target(target, job.arch_key, job.frontend)
    front = loading.compiler(job.frontend, _askers(job), jit=job.product == "jit")
    tell(step="starting the compiler", done=0, total=0)
    versions = front.prepare(job.root)
    sources.prepare_imports(job.import_roots, job.names)
    finisher = finish.make(job)
    units = [unit for plan in job.plans for unit in plan.units]
    functions: dict[Unit, object] = {}
    understood: dict[tuple[str, str, str], Unit] = {}
    watch = (
        dependency_trace.watch(job.watched, job.names, frontends.internals(job.frontend))
        if job.trace
        else nullcontext()
    )
    with pool.gathered() as attempt, watch as seen:
        for unit in units:
            tell(step=unit.loading, done=0, total=0)
            with attempt():
                functions[unit] = front.load(unit, job.root)
                signature = front.resolve(unit, functions[unit])
                _check_new(unit, understood.setdefault((unit.module, unit.name, signature), unit))
        tell(step="reading what is linked", done=0, total=0)
        with attempt():
            steps = Steps(
                job, front, finisher, functions, tell
            )  # reads what is linked, other packages' modules among it
    modules = steps.run()
    toolchain.check_loaded()
    if seen is not None:
        seen.reads = steps.headers_elsewhere() | seen.reads
    versions_of = {
        "cuda": ".".join(map(str, toolchain.toolkit_version())),
        "nvjitlink": link.version(),
        **finisher.tools(),
        "python": ".".join(map(str, sys.version_info[:2])),
        **versions,
    }
    return Result(
        toolchain=versions_of,
        modules=tuple(modules),
        sources=(*finisher.sources(), *steps.linked_files()),
        warnings=tuple(dict.fromkeys(steps.warnings)),
        trace=seen,
        linkable=steps.linkable,
    )


def _askers(job: Job) -> str:
    """Who wants the job's front end, as errors say it: the key that names it, and the modules."""
    return f"{job.plans[0].frontend_key}: the front end of {', '.join(plan.config.name for plan in job.plans)}"


def _check_new(unit: Unit, first: Unit) -> None:
    if unit is not first:
        message = (
            f"{unit.signature_key}: {unit.signature!r} is the same signature as {first.signature!r}; remove one of them"
        )
        raise ConfigError(message)
