"""List files with CUDA C++ kernels, for which `aotcuda init` writes no tables, with the remaining steps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aotcuda import registry
from aotcuda.common import project_file, uninstalled_hook
from aotcuda.tools.record import source_files
from aotcuda.tools.record.project import sources_of

if TYPE_CHECKING:
    from aotcuda.tools.record.project import Project

_FRONT_END = registry.BUILT_IN["cuda-cpp"]
_EXTRAS = re.compile(r"\s*aotcuda\s*\[([^\]]*)\]", re.IGNORECASE)


def report(project: Project) -> list[str]:
    """Return lines on `.cu` files whose kernels no table names, with the remaining steps."""
    packaged = {source for module in project.modules.values() for source in sources_of(module)}
    files = [file for file in project.cuda_files() if file not in packaged]
    if not files:
        return []
    count = f"{len(files)} file{'s' * (len(files) > 1)}"
    lines = [f"{count} with kernels in CUDA C++, for a table:", *(f"  {file}" for file in files)]
    system = project_file.table(project.data, "build-system")
    if not any(map(_includes_compilers, project_file.strings(system.get("requires")))):
        lines.append(f'to do: their compiler: add "{_FRONT_END.requirement()}" to build-system.requires')
    metadata = project_file.table(project.data, "project")
    is_static = bool(metadata) and "dependencies" not in project_file.strings(metadata.get("dynamic"))
    dependencies = map(source_files.distribution, project_file.strings(metadata.get("dependencies")))
    if is_static and "aotcuda" not in dependencies:
        lines.append('to do: the run time: add "aotcuda" to project.dependencies')
    folder = str(project.root)
    if (
        str(system.get("build-backend", "")).startswith("hatchling")
        and uninstalled_hook.enabled_table(folder) is None
        and not project.aotcuda
    ):
        lines.append(f"to do: the hook: add an empty table {uninstalled_hook.table_to_add(folder)}")
    return lines


def _includes_compilers(requirement: str) -> bool:
    """Return True if a requirement is for aotcuda with the compilers of any toolkit for these files."""
    match = _EXTRAS.match(requirement)
    extras = re.split(r"[\s,]+", match[1].lower().replace("_", "-")) if match else []
    including = {
        item.requirement_for_extra(toolkit)
        for item in registry.BUILT_IN.values()
        for toolkit in registry.TOOLKITS
        if item.requirement_for_extra(toolkit) != item.requires
    }
    return any(f"aotcuda[{extra}]" in including for extra in extras)
