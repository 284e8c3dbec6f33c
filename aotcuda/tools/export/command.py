"""`aotcuda export triton-cache`: compile what a project's tables and records list into a cache of Triton."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from aotcuda.arch import Target
from aotcuda.builder.config import parser
from aotcuda.builder.entry import build_command
from aotcuda.builder.plan import capacity, plan
from aotcuda.builder.project import layout
from aotcuda.common import project_file
from aotcuda.errors import AotcudaError, BuildError, ConfigError
from aotcuda.tools.export import folder, launchers
from aotcuda.tools.export.job import Job, Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aotcuda.builder.config.model import Config
    from aotcuda.builder.frontends.triton.config import TritonUnit
    from aotcuda.builder.plan.plan import ModulePlan

_START = "import sys; from aotcuda.tools.export import worker; sys.exit(worker.main())"


def run(project: Path, out: Path, *, at: str | None = None, gpu: str | None = None) -> Iterator[str]:
    """Add the variants of a project's Triton kernels to a folder that Triton reads as its cache; yield lines to show.

    Args:
        project: A folder with a pyproject.toml, or that file.
        out: The folder.
        at: The path that the folder will have where Triton reads it; by default its path here.
        gpu: The name of the GPU whose timings of autotuners are exported, as the driver gives it.

    Raises:
        ConfigError: The project, its tables, or the folder cannot be used; nothing was written.
        BuildError: A worker ended without a result; nothing was written.
        AotcudaError: Triton cannot be used; nothing was written.
    """
    path = project if project.is_file() else project / project_file.FILE_NAME
    root = path.parent.resolve()
    config = parser.parse(build_command.read_table(path), environ=os.environ)
    plans = [item for item in plan.make(config, root) if item.frontend == "triton" and item.units]
    if not plans:
        message = f"{path}: no module has variants of Triton's kernels; record them: aotcuda record --write -- COMMAND"
        raise ConfigError(message)
    place = _place(out, at)
    folder.read(out)  # fail before the work
    targets = _targets(config)
    yield from _notes(config, targets)
    problem = launchers.why_not()
    if problem:
        yield f"modules of C are left out, since {problem}: Triton compiles them at the first launch of each signature"
    with tempfile.TemporaryDirectory(prefix="aotcuda-export-") as work:
        cache = Path(work, "cache")
        cache.mkdir()
        results = []
        for number, job in enumerate(_jobs(config, plans, targets, root, gpu or "", stub=not problem)):
            results.append(_work(job, cache, Path(work, str(number))))
        export = _description(path, plans, results, has_launchers=not problem)
        out.mkdir(parents=True, exist_ok=True)
        export["entries"] = folder.add_entries(cache, out, place)
    yield from _report(out, place, export, results)


def _place(out: Path, at: str | None) -> str:
    if out.exists() and not out.is_dir():
        message = f"{out} is no folder; name a folder with --out"
        raise ConfigError(message)
    if at is not None and not os.path.isabs(at):  # noqa: PTH117 (the path need not be of this system)
        message = f"--at {at}: Triton stores absolute paths; write the path from / on"
        raise ConfigError(message)
    return os.path.normpath(at) if at is not None else str(out.resolve())


def _targets(config: Config) -> list[Target]:
    """Return a target for each compute capability of the list; suffixes make no difference for Triton's JIT.

    Raises:
        ConfigError: The list has PTX alone.
    """
    capabilities = sorted({target.capability for target in config.arch if target.kind == "sass"})
    if not capabilities:
        message = f"{config.arch_key}: it has no sm_* target, and a cache of Triton holds machine code alone; add one"
        raise ConfigError(message)
    return [Target("sass", *capability, "a" if capability >= (9, 0) else "") for capability in capabilities]


def _notes(config: Config, targets: Sequence[Target]) -> Iterator[str]:
    exact = ", ".join(f"{target.major}.{target.minor}" for target in targets)
    yield f"entries are for compute capability {exact} exactly: Triton's cache serves no other GPU"
    ptx = [str(target) for target in config.arch if target.kind != "sass"]
    if ptx:
        yield f"{', '.join(ptx)} of {config.arch_key} gets no entry: Triton's cache holds machine code alone"


def _jobs(
    config: Config, plans: Sequence[ModulePlan], targets: Sequence[Target], root: Path, gpu: str, *, stub: bool
) -> Iterator[Job]:
    """Yield a job for each compute capability and each folder of packages (`pack-from`)."""
    roots = [str(path) for path in layout.import_roots(root, ())]
    for pack_from in sorted({item.config.pack_from or "" for item in plans}):
        mine = [item for item in plans if (item.config.pack_from or "") == pack_from]
        tuning = {item.config.name: json.loads(item.tuning)["kernels"] for item in mine if item.tuning}
        units = [unit for item in mine for unit in _units(item)]
        for target in targets:
            code = [
                unit for unit in units if not unit.only or target.capability in {each.capability for each in unit.only}
            ]
            yield Job(
                root=str(root),
                folders=(*([str(root / pack_from)] if pack_from else []), *roots),
                prelude=config.prelude or "",
                target=target,
                units=tuple(code),
                tuning=tuning,
                gpu=gpu,
                stub="" if stub else None,
                processes=capacity.processes(),
            )


def _units(item: ModulePlan) -> Iterable[TritonUnit]:
    """Return the recorded variants of a module; a variant with tensor descriptors counts once for all targets."""
    units = cast("tuple[TritonUnit, ...]", item.kernels)
    return [unit for unit in units if not unit.optional]


def _work(job: Job, cache: Path, place: Path) -> Result:
    """Run a worker, and return its result.

    Raises:
        AotcudaError: The worker raised it, or ended without a result.
    """
    place.mkdir()
    if job.stub is not None:
        stub = place / "stub"
        stub.mkdir()
        job = replace(job, stub=str(stub))
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache), "AOTCUDA_IN_PLACE": "0", "AOTCUDA_BUILDING": "1"}
    environment.pop("TRITON_CACHE_MANAGER", None)
    command = [sys.executable, "-c", _START, str(place / "result")]
    worker = subprocess.run(command, input=pickle.dumps(job), env=environment, check=False)
    try:
        outcome: Result | AotcudaError = pickle.loads((place / "result").read_bytes())  # noqa: S301 (the worker wrote it)
    except (OSError, EOFError, pickle.UnpicklingError):
        message = (
            f"the worker for {job.target} ended with status {worker.returncode} and no result; see its output above"
        )
        raise BuildError(message) from None
    if isinstance(outcome, AotcudaError):
        raise outcome
    return outcome


def _description(
    path: Path, plans: Sequence[ModulePlan], results: Sequence[Result], *, has_launchers: bool
) -> dict[str, Any]:
    """Return the description of an export, without its entries."""
    facts: dict[str, Any] = {}
    for result in results:
        ptxas = {**facts.get("ptxas", {}), **result.facts["ptxas"]}
        facts |= {**result.facts, "ptxas": ptxas}
    name = project_file.table(project_file.content(path), "project").get("name") or path.parent.resolve().name
    return {
        "project": str(name),
        **facts,
        "packages": _packages(plans),
        "has_launchers": has_launchers,
        "kernels": _sorted(item for result in results for item in result.kernels),
        "timings": _sorted(item for result in results for item in result.timings),
        "left_out": sorted({line for result in results for line in result.left_out}),
    }


def _sorted(items: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))


def _packages(plans: Sequence[ModulePlan]) -> dict[str, str]:
    """Return the versions of the installed distributions of the sources."""
    found = {}
    distributions = metadata.packages_distributions()
    for source in sorted({source for item in plans for source in _sources(item)}):
        for name in distributions.get(source.partition(".")[0], ()):
            found[name] = metadata.version(name)
    return dict(sorted(found.items()))


def _sources(item: ModulePlan) -> set[str]:
    return {unit.origin.partition(":")[0] for unit in item.units}


def _report(out: Path, place: str, export: dict[str, Any], results: Sequence[Result]) -> Iterator[str]:
    for line in export["left_out"]:
        yield f"left out: {line}"
    yield from dict.fromkeys(line for result in results for line in result.notes)
    if not folder.describe(out, place, export):
        yield f"{out / folder.README} is another text and stays as it is; {folder.FILE} describes the export"
    kernels = {(item["module"], item["kernel"]) for item in export["kernels"]}
    yield (
        f"{out}: {len(export['kernels'])} variants of {len(kernels)} kernels in {len(export['entries'])} entries; "
        f"set TRITON_CACHE_DIR={place}"
    )
    if export["timings"]:
        yield f"timings of {len(export['timings'])} keys of autotuners: set TRITON_CACHE_AUTOTUNING=1, too"
    if not export["kernels"]:
        message = f"no variant was exported to {out}; the lines above say why"
        raise BuildError(message)
