"""Compile packaged modules again for a JIT build that links them, if their code is for newer GPUs only.

A packaged module's functions are LTOIR, which links for the GPUs that it was compiled for and for later ones. For an
older GPU, the module's own front end compiles them again from the sources in its wheel.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda import arch, manifest
from aotcuda.binary import files as files_of_wheels
from aotcuda.binary import targets
from aotcuda.builder.cache import stamps
from aotcuda.builder.compile.job import Job, Others, Product, Sources
from aotcuda.builder.config import parser
from aotcuda.builder.plan import capacity, plan, stages
from aotcuda.common import foreign
from aotcuda.common.stamp import Stamp
from aotcuda.errors import AotcudaError, LinkError, ManifestError, TargetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aotcuda.arch import Target
    from aotcuda.builder.cache.settings import Settings
    from aotcuda.builder.compile.job import Result
    from aotcuda.builder.config.model import Config, Module
    from aotcuda.builder.plan.toolkits import Toolkit


def working_folder(root: str | Path, package_root: str | Path) -> Path:
    """Return the folder that a JIT build works in, as an absolute path."""
    return Path(root if Path(root).is_dir() else package_root).resolve()


def check_carried(files: Iterable[manifest.File], root: str | Path) -> None:
    """Compare the files that a wheel holds for builds, in the folder `root`, with its manifest.

    Raises:
        ManifestError: One is missing or altered.
    """
    for file in files:
        path = Path(root, file["path"])
        data = foreign.read(path, files_of_wheels.LARGEST, remedy="install the package again", error=ManifestError)
        manifest.check_file(data, file, str(path))


def job(
    settings: Config,
    project: stamps.Project,
    *,
    names: Mapping[str, tuple[str, ...]],
    toolkit: Toolkit | None,
    linked_results: Iterable[Result],
    watched: tuple[str, ...] = (),
    wanted: tuple[str, ...] = (),
    cache: Settings | None = None,
) -> Job:
    """Return the job of a JIT build, which links the results `linked_results`; for others see `Job`."""
    root, package_root = project.root, project.package_root
    # The prelude of a wheel's package imports files that the wheel carries in `root`.
    needs_root = settings.prelude is not None or not root.is_relative_to(package_root)
    roots = dict.fromkeys([package_root, root] if needs_root else [package_root])
    ((_, plans),) = plan.share(plan.make(settings, root), (toolkit,) if toolkit is not None else ())
    return Job(
        root=str(root),
        arch_key="this machine's GPU",
        plans=plans,
        toolkit=toolkit,
        names=dict(names),
        jobs=capacity.processes(),
        sources=Sources(
            import_roots=tuple(map(str, roots)),
            prelude=settings.prelude,
            own=project.prefixes,
            watched=watched,
            watched_variables=settings.watch_env,
        ),
        product=Product(kind="jit", known_faults=settings.known_faults, incomplete=settings.incomplete),
        others=Others(
            linkable={name: item for result in linked_results for name, item in result.linkable.items()},
            wanted=wanted,
        ),
        cache=cache,
    )


def compile_linked(
    modules: Iterable[Module], target: Target, package_root: Path, toolkit: Toolkit | None
) -> list[Result]:
    """Compile functions of packaged modules that `modules` link and that have no code for `target`.

    Raises:
        LinkError: One of them carries nothing that it could be compiled from.
        AotcudaError: One of them cannot be compiled.
    """
    modules = list(modules)
    names = {module.name for module in modules}
    results: list[Result] = []
    for module in modules:
        for item in module.link:
            if item.module is not None and item.module not in names:
                names.add(item.module)
                results += _compile_again(item.module, module.name, target, package_root, toolkit)
    return results


def _compile_again(
    name: str, linking_module: str, target: Target, package_root: Path, toolkit: Toolkit | None
) -> list[Result]:
    """Compile one packaged module again, unless its code can be linked as it is, or it is not there."""
    folder = _folder(name, package_root)
    if folder is None:
        return []  # the build reports it
    path = folder / manifest.FILE_NAME
    document = manifest.read(str(path))
    if not document["ltoir"] or any(_can_link(image["arch"], target) for image in document["ltoir"]):
        return []  # the build reports a module without functions
    lowest = document["ltoir"][0]["arch"]
    context = f"{linking_module} links {name}, whose packaged code is for {lowest} and later GPUs"
    rebuild = document.get("rebuild")
    if rebuild is None:
        message = (
            f'{context}; it carries no sources to compile for {target} (it was built with fallback = "error"): '
            f"install a version of it that was built for {target} too"
        )
        raise LinkError(message)
    settings = parser.parse({**rebuild["table"], "arch": [str(target)]}, environ={})
    (module,) = settings.modules
    settings = replace(settings, modules=(replace(module, kernels=()),))
    own_root = folder.parents[name.count(".")]
    root = working_folder(Path(own_root, rebuild["root"]), own_root)
    if "reads" not in document:  # an editable install has no files of its own
        check_carried(rebuild["files"], own_root / rebuild["root"])
    tops = stamps.top_packages(settings)
    project = stamps.Project(root=root, package_root=own_root, names=(), tops=tops, is_installed=True)
    names = {module: tuple(names_of_module) for module, names_of_module in rebuild["names"].items()}
    try:
        linked_results = compile_linked(settings.modules, target, own_root, toolkit)
        linked_job = job(settings, project, names=names, toolkit=toolkit, linked_results=linked_results, wanted=(name,))
        results = stages.run(linked_job)
    except AotcudaError as error:
        message = f"{context}; compiling it for {target} failed: {error}"
        raise type(error)(message) from error
    reads = Stamp()
    reads.add_question("file", str(path))
    return [*linked_results, *(replace(item, seen=Stamp().add([reads, item.seen])) for item in results)]


def _folder(name: str, package_root: Path) -> Path | None:
    """Return the data folder of a packaged module, of the same wheel or of another one that is installed."""
    *packages, stem = name.split(".")
    folder = package_root.joinpath(*packages, stem + manifest.FOLDER_SUFFIX)
    if (folder / manifest.FILE_NAME).is_file():
        return folder
    try:
        installed = targets.find_module(name).path
    except (TargetError, ManifestError):
        return None
    return installed.resolve() if installed is not None else None


def _can_link(text: str, target: Target) -> bool:
    """Return True if LTOIR or PTX of an architecture can be linked for `target`."""
    code = arch.parse(text)
    return arch.Target("ptx", code.major, code.minor, code.suffix).runs_on(target.capability)
