"""The process of an export for one compute capability: import the sources, and let Triton compile into its cache.

The job is pickled on standard input, the result is written to a file, whose path is the argument. `TRITON_CACHE_DIR` is
a folder of the export.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import pickle
import platform
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda.builder.frontends.triton import compile_errors
from aotcuda.errors import AotcudaError
from aotcuda.integrations.in_place.triton import private_parts as in_place
from aotcuda.tools.export import compilation, launchers, private_parts, timings
from aotcuda.tools.export.job import Job, Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.builder.frontends.triton.config import TritonUnit


def main() -> int:
    """Do the job on standard input; write the result, or the error, to the file of the argument."""
    job: Job = pickle.load(sys.stdin.buffer)  # noqa: S301 (the command wrote it)
    outcome: Result | AotcudaError
    try:
        outcome = _run(job)
    except AotcudaError as error:
        outcome = error
    Path(sys.argv[1]).write_bytes(pickle.dumps(outcome))
    return 0


def _run(job: Job) -> Result:
    sys.path[:0] = job.folders
    from aotcuda.builder.frontends.triton import gpu  # noqa: PLC0415 (after the change of the path)
    from aotcuda.builder.frontends.triton.compilation import gpu_target  # noqa: PLC0415

    private_parts.check()
    result = Result()
    cache = Path(os.environ["TRITON_CACHE_DIR"])
    utilities: list[list[str]] = []
    if job.stub is not None:
        utilities = launchers.compile_utilities(launchers.prepare(Path(job.stub)), cache)
    with gpu.importing(job.target, gpu_target(job.target), job.root):
        loaded = _load(job, result)
    with compilation.for_target(job.target):
        for outcome in _compile(job, loaded):
            if isinstance(outcome, str):
                result.left_out.append(outcome)
            else:
                result.kernels += outcome
        timings.export(job, loaded, result)
    result.facts = _facts(job, utilities)
    return result


def _load(job: Job, result: Result) -> list[tuple[TritonUnit, Any]]:
    """Return completed units with their loaded sources; units that cannot be loaded are left out with a line."""
    from aotcuda.builder.frontends import python_source  # noqa: PLC0415 (after the change of the path)
    from aotcuda.builder.frontends.triton.compiler import TritonFrontEnd  # noqa: PLC0415

    if job.prelude:
        python_source.import_for("tool.aotcuda.prelude", job.prelude, job.root)
    front = TritonFrontEnd(job.root)
    loaded: list[tuple[TritonUnit, Any]] = []
    sources: dict[object, Any] = {}
    problems: dict[str, int] = {}
    for unit in job.units:
        key = unit.module, unit.name, unit.python
        try:
            if key not in sources:
                sources[key] = front.load(unit)
            if isinstance(sources[key], AotcudaError):
                raise sources[key]
            loaded += [(each, sources[key]) for each, _ in front.resolve(unit, sources[key])]
        except AotcudaError as error:
            sources.setdefault(key, error)
            problems[str(error)] = problems.get(str(error), 0) + 1
    result.left_out += [f"{problem} ({count} variant{'s' * (count != 1)})" for problem, count in problems.items()]
    return loaded


_work: list[Any] = []
"""The job and the loaded units, for the processes that are forked from the worker."""


def _compile(job: Job, loaded: Sequence[tuple[TritonUnit, Any]]) -> list[list[dict[str, str]] | str]:
    """Compile units side by side; return their entries, or the reason for which a unit is left out."""
    _work[:] = [job, loaded]
    count = min(job.processes, len(loaded))
    if count < 2:
        return [_compile_one(at) for at in range(len(loaded))]
    with multiprocessing.get_context("fork").Pool(count) as pool:
        return pool.map(_compile_one, range(len(loaded)), chunksize=1)


def _compile_one(at: int) -> list[dict[str, str]] | str:
    job, loaded = _work
    unit, source = loaded[at]
    try:
        kernels = compilation.compile_variant(unit, source.function)
        if job.stub is not None:
            for kernel in kernels:
                launchers.compile_launcher(kernel)
    except Exception as error:  # noqa: BLE001 (Triton and its assembler raise errors of any class)
        return f"{unit.title} for {job.target}: {compile_errors.first_line(error)}"
    facts = {"module": unit.origin.partition(":")[0], "kernel": unit.origin.partition(":")[2]}
    facts |= {"signature": unit.signature, "capability": f"{job.target.major}.{job.target.minor}"}
    source_digest = hashlib.sha256(source.function.cache_key.encode()).hexdigest()
    return [{**facts, "source": source_digest, "entry": compilation.folder_of(kernel)} for kernel in kernels]


def _facts(job: Job, utilities: list[list[str]]) -> dict[str, Any]:
    number = job.target.major * 10 + job.target.minor
    return environment() | {
        "ptxas": {f"{job.target.major}.{job.target.minor}": private_parts.ptxas(number)},
        "libcuda": utilities,
    }


def environment() -> dict[str, Any]:
    """Return what the keys of this environment's Triton depend on, apart from the GPU."""
    import triton  # noqa: PLC0415 (only workers have Triton)
    from triton._C.libtriton import get_cache_invalidating_env_vars  # noqa: PLC0415
    from triton.runtime.cache import triton_key  # noqa: PLC0415

    changing = {name: os.environ[name] for name in in_place.VARIABLES if os.environ.get(name)}
    return {
        "triton": triton.__version__,
        "triton_key": hashlib.sha256(triton_key().encode()).hexdigest(),
        "python": ".".join(map(str, sys.version_info[:2])),
        "extension": sysconfig.get_config_var("EXT_SUFFIX"),
        "platform": f"{platform.system()} {platform.machine()}",
        "variables": dict(sorted({**changing, **get_cache_invalidating_env_vars()}.items())),
    }
