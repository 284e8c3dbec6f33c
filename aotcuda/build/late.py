"""The late build: one module, or one kernel of it for one more signature, for one GPU of this very machine.

It is the ahead-of-time build with another end: the same worker compiles, checks and links, and what comes out is a
manifest with one bare cubin instead of the files of a wheel. Nothing is packed, so nvFatbin need not be installed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import aotcuda
from aotcuda import manifest
from aotcuda.build import api, artifacts, clashes, config, plan, process, stages
from aotcuda.build.job import Job

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aotcuda.build.job import Result

CUBIN = "kernels.cubin"

# The user's modules may import this very package, or others that aotcuda built: they are not to start a driver, or a
# late build of their own.
_ENVIRONMENT = {"AOTCUDA_LOAD": "first-use", "AOTCUDA_FALLBACK": "error"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to build.

    Attributes:
        table: `[tool.aotcuda]`.
        module: Which of its modules.
        kernel: Which of its kernels; None for all of them.
        signature: That kernel's types; None for those in the table.
        target: `sm_XY`, the GPU.
        root: The folder that paths in the table are relative to.
        package_root: The folder that holds the package.
        names: Every module that the project's wheel gains, with its names; None to take them from the table.
        project: The table is that of the pyproject.toml in `root`, and the result depends on it.
    """

    table: Mapping[str, object]
    module: str
    kernel: str | None
    signature: str | None
    target: str
    root: str
    package_root: str
    names: Mapping[str, tuple[str, ...]] | None = None
    project: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What came out.

    Attributes:
        manifest: The manifest; its `sources` are the project's own files.
        image: The cubin.
        foreign: What else the result depends on: size and time of change (ns) of other packages' files, and of data
            files that were read.
        variables: SHA-256 of each environment variable that was asked for, None for one that was not set.
    """

    manifest: manifest.Manifest
    image: bytes
    foreign: dict[str, tuple[int, int]]
    variables: dict[str, str | None]


def build(request: Request) -> Built:
    """Build it.

    Raises:
        AotcudaError: As for every build.
    """
    table = {**request.table, "arch": [request.target]}
    settings = config.parse(table, environ={})
    whole = plan.make(settings)
    settings = replace(settings, modules=_wanted(settings.modules, request))
    root = Path(request.root if Path(request.root).is_dir() else request.package_root).resolve()
    package_root = Path(request.package_root).resolve()
    roots = [package_root] if root.is_relative_to(package_root) else [package_root, root]
    results = stages.run(
        Job(
            root=str(root),
            import_roots=tuple(map(str, roots)),
            arch_key="this machine's GPU",
            plans=plan.make(settings),
            names=dict(request.names or plan.names(whole)),
            jobs=len(os.sched_getaffinity(0)),
            late=True,
        ),
        _ENVIRONMENT,
    )
    (result, built), *_ = [
        (result, built) for result in results for built in result.modules if built.plan.config.name == request.module
    ]
    ((_, image),) = built.images
    described = artifacts.describe(settings, built, result, version=aotcuda.__version__)
    described["files"] = {"kernels": {"path": CUBIN, "bytes": len(image), "sha256": manifest.digest(image)}}
    own, foreign = _dependencies(result, package_root, root, _tops(settings))
    if request.project:
        pyproject = Path(os.path.relpath(root / "pyproject.toml", package_root)).as_posix()
        own.append({"path": f"{pyproject}#tool.aotcuda", "sha256": api.table_digest(request.table)})
    described["sources"] = own
    return Built(manifest=described, image=image, foreign=foreign, variables=_variables(result))


def _wanted(modules: Sequence[config.Module], request: Request) -> tuple[config.Module, ...]:
    """What has to be built: the module with what is wanted of it, and the functions of those of the project it links.

    A wheel has the modules that it links beside it, as they were built; the project's own may have been edited since.
    """
    (module,) = [item for item in modules if item.name == request.module]
    linked = clashes.all_linked(module, modules) if request.project else []
    if request.kernel is not None:
        kernels = tuple(
            replace(kernel, signatures=(request.signature,) if request.signature else kernel.signatures)
            for kernel in module.kernels
            if kernel.name == request.kernel
        )
        module = replace(module, kernels=kernels)
    return (module, *(replace(item, kernels=()) for item in linked))


def _tops(settings: config.Config) -> set[str]:
    return {name.partition(".")[0] for module in settings.modules for name in (module.name, module.source)}


def _dependencies(
    result: Result, package_root: Path, root: Path, tops: set[str]
) -> tuple[list[manifest.Source], dict[str, tuple[int, int]]]:
    """The project's own files with their digests, and all others with size and time of change.

    What is the project's own: in its folder, or in its packages where they are installed. The rest may be many and
    large, and comes from installers, which set the time of change.
    """
    own = {source["path"]: source["sha256"] for source in result.sources}
    foreign: dict[str, tuple[int, int]] = {}
    seen = result.witness
    for name in sorted(seen.modules | seen.files) if seen is not None else ():
        path = Path(name)
        below = path.relative_to(package_root).parts if path.is_relative_to(package_root) else ()
        installed = "site-packages" in path.parts or "dist-packages" in path.parts
        if (below and below[0].removesuffix(".py") in tops) or (path.is_relative_to(root) and not installed):
            own[name] = manifest.digest(path.read_bytes())
        else:
            status = path.stat()
            foreign[name] = (status.st_size, status.st_mtime_ns)
    listed: list[manifest.Source] = [
        {"path": Path(os.path.relpath(path, package_root)).as_posix(), "sha256": own[path]} for path in sorted(own)
    ]
    return listed, foreign


def _variables(result: Result) -> dict[str, str | None]:
    """The variables that were asked for, less those that the worker's environment has values of its own for."""
    seen = result.witness.variables if result.witness is not None else {}
    own = process.environment({}).keys() | _ENVIRONMENT.keys() | {"LD_LIBRARY_PATH", "CUDA_PATH"}
    return {name: seen[name] for name in sorted(seen) if name not in own and not name.startswith("NUMBA_")}
