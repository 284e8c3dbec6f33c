"""Name the package, the modules and the build requirements of a pack: a package with kernels of other packages."""

from __future__ import annotations

import re
from importlib import metadata
from typing import TYPE_CHECKING

from aotcuda.common import distributions
from aotcuda.common.project_file import table
from aotcuda.tools.record.project import sources_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from aotcuda.tools.record.project import Project
    from aotcuda.tools.record.records import Record

_INIT = '''"""Compiled Triton kernels of other packages, which use them once this package is imported."""

from aotcuda import packs

packs.use(__name__)
'''


def is_packed(record: Record, project: Project) -> bool:
    """Return True if a kernel belongs to an installed package, so its compiled code goes into the pack."""
    return record.frontend == "triton" and _package(record.module, project) is not None


def _package(module: str, project: Project) -> str | None:
    """Return the package of the pack that has a module, also one in a folder that the package puts onto `sys.path`."""
    packages, top = _packages(project), module.partition(".")[0]
    if top in packages or not packages:
        return top if packages else None
    return next((name for name in distributions.packages_to_import(module) if name in packages), None)


def _packages(project: Project) -> set[str]:
    """Return the packages whose kernels go into the pack: of `--packages`, and of the tables with `pack = true`."""
    modules = [module for module in project.modules.values() if module.get("pack") is True]
    sources = [source for module in modules for source in sources_of(module)]
    owners = [distributions.packages_to_import(source) or [source.partition(".")[0]] for source in sources]
    return {*project.packages, *(package for each in owners for package in each)}


def module_name(source: str, project: Project) -> str:
    """Return the name of the pack's module for a source module: `fla_pack.fla_ops_gla_chunk`."""
    return f"{package_name(project)}.{source.replace('.', '_')}"


def package_name(project: Project) -> str:
    """Return the name of the pack's package: the name in the project's tables, or a name made of the project's name."""
    for name, module in project.modules.items():
        if module.get("pack") is True:
            return name.rpartition(".")[0]
    return re.sub(r"\W+", "_", str(table(project.data, "project").get("name", "pack"))).lower()


def module_path(module: str, project: Project) -> Path:
    """Return the path of a module's file. The file need not exist."""
    parts = module.split(".")
    roots = project.import_roots()
    root = next((root for root in roots if (root / parts[0]).is_dir()), roots[0])
    return root.joinpath(*parts).with_suffix(".py")


def write_package(project: Project) -> Path | None:
    """Write the pack's `__init__.py` and return its path; return None if the file exists."""
    path = module_path(f"{package_name(project)}.__init__", project)
    if path.exists():
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_INIT, encoding="utf-8")
    return path


def requirements(
    sources: Iterable[str], project: Project, installed: Mapping[str, str], *, has_triton: bool = False
) -> list[str]:
    """Return the build requirements of Triton's kernels: Triton, and the packages of a pack, in the installed versions.

    Args:
        sources: The source modules of the kernels.
        project: The project.
        installed: The distribution of each package that a command imported; empty for merged records. Others are
            looked up here, and a package of an unknown distribution is left out.
        has_triton: True if the project itself has kernels of Triton.
    """
    packages = {package for source in sources if (package := _package(source, project)) is not None}
    if not packages and not has_triton:
        return []
    known = {name: found[0] for name, found in metadata.packages_distributions().items()} | dict(installed)
    lines = []
    names = {"triton", *(known[package] for package in packages if package in known)}
    if packages and "torch" in (installed or known):
        names.add("torch")  # the packages' modules import it, also where their metadata does not require it
    for name in sorted(names):
        try:
            lines.append(f"{name}=={metadata.version(name).partition('+')[0]}")
        except metadata.PackageNotFoundError:
            lines.append(name)
    return lines
