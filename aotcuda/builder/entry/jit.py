"""Build a module, or one kernel for one more signature, for one GPU of this machine.

The same worker compiles, checks and links as for a wheel. The result is a manifest and a single cubin, so nvFatbin
is not needed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda import manifest, registry
from aotcuda.builder.cache import settings as build_settings
from aotcuda.builder.cache import stamps
from aotcuda.builder.cache.store import trim
from aotcuda.builder.compile import process
from aotcuda.builder.config import checks, parser
from aotcuda.builder.emit import wheel_files
from aotcuda.builder.frontends import loading
from aotcuda.builder.plan import plan, stages, toolkits
from aotcuda.builder.project import linked_modules
from aotcuda.common import gpu_facts
from aotcuda.common.jit_build import Result, cubin_name
from aotcuda.common.stamp import Stamp
from aotcuda.errors import ToolchainError

if TYPE_CHECKING:
    from aotcuda.builder.config.model import Config, Module
    from aotcuda.builder.plan.toolkits import Toolkit
    from aotcuda.common.jit_build import Request


def build(request: Request) -> Result:
    """Build the module, or the kernel, of a request.

    Raises:
        ManifestError: A file that the wheel holds for the build is missing or altered.
        AotcudaError: The build failed.
    """
    if not request.is_project:
        linked_modules.check_carried(request.carried, request.root)
    table = {**request.table, "arch": [request.target]}
    settings = parser.parse(table, environ={})
    root = linked_modules.working_folder(request.root, request.package_root)
    plans = plan.make(settings, root)
    settings = replace(settings, modules=_select_modules(settings, request))
    package_root = Path(request.package_root).resolve()
    toolkit = _toolkit(settings, request)
    linked_results = linked_modules.compile_linked(settings.modules, settings.arch[0], package_root, toolkit)
    if request.names is None:
        names = plan.exported_names(plans)
    else:
        names = {module: tuple(exports) for module, exports in request.names.items()}
    project = stamps.Project(
        root=root,
        package_root=package_root,
        names=tuple(names) if request.is_project else (),
        tops=stamps.top_packages(settings),
        is_installed=not request.is_project,
    )
    python = project.files([package_root], plans) if request.is_project else Stamp()
    cache = build_settings.find(map(settings.frontend_of, settings.modules), toolkits.installed(), root)
    watched = stamps.patterns(settings.watch, root if request.is_project else package_root)
    job = linked_modules.job(
        settings, project, names=names, toolkit=toolkit, linked_results=linked_results, watched=watched, cache=cache
    )
    if request.image is not None:
        job = replace(job, image=(request.module, request.image))
    results = stages.run(job)
    if cache is not None and any(result.made for result in results):
        trim(cache)
    (result, built), *_ = [
        (result, built) for result in results for built in result.modules if built.plan.config.name == request.module
    ]
    document = wheel_files.describe(settings, built, result)
    for index, (fatbin, item) in enumerate(zip(document["fatbins"], built.images, strict=True)):
        fatbin["file"] = {
            "path": cubin_name(index),
            "bytes": len(item.data),
            "sha256": manifest.digest(item.data),
        }
    results = [*linked_results, result]
    stamp = stamps.make_stamp(results, project, python, process.JIT_VARIABLES)
    paths = (item["path"] for result in results for item in result.sources)
    dependencies = stamps.make_dependencies(stamp, paths, project, request.table if request.is_project else None)
    document["sources"] = dependencies.sources
    document["reads"] = dependencies.reads
    document["variables"] = dependencies.variables
    return Result(document, b"".join(item.data for item in built.images))


def _toolkit(settings: Config, request: Request) -> Toolkit | None:
    """Return the oldest installed toolkit that supports the GPU and whose machine code the driver loads."""
    installed = toolkits.installed()
    usable = toolkits.supported_by_driver(request.driver, installed)
    if installed and not usable:
        front_end = settings.frontend_of(settings.modules[0])
        major, requirement = installed[0].linker[0], registry.requirement(front_end, jit=True, cuda=request.driver[0])
        message = (
            f"the compilers that are installed are CUDA {major}'s, and the driver supports CUDA "
            f"{gpu_facts.dotted(request.driver)}: install {requirement} in their place, or update the driver"
        )
        raise ToolchainError(message)
    return toolkits.choose(settings.arch[0], usable)


def _select_modules(settings: Config, request: Request) -> tuple[Module, ...]:
    """Return the module with the requested kernels, and the exported functions of the project's modules that it links.

    A wheel contains the linked modules as they were built; modules of a project may have been edited since.
    """
    (module,) = [item for item in settings.modules if item.name == request.module]
    linked_modules = checks.all_linked(module, settings.modules) if request.is_project else []
    if request.kernel is not None:
        tables = loading.tables(settings.frontend_of(module))
        kernels = tuple(
            tables.widened(kernel, request.signature) if request.signature else kernel
            for kernel in module.kernels
            if kernel.name == request.kernel
        )
        module = replace(module, kernels=kernels)
    return (module, *(replace(item, kernels=()) for item in linked_modules))
