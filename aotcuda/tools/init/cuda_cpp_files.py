"""List files with CUDA C++ kernels, for which `aotcuda init` writes no tables, with the remaining steps."""

from __future__ import annotations

import os
import re
from pathlib import Path

from aotcuda import registry
from aotcuda.common import foreign, project_file, uninstalled_hook
from aotcuda.tools.record import project

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from aotcuda.tools.record.project import Project

_FRONT_END = next(item for item in registry.BUILT_IN.values() if item.suffix)
_KERNEL = re.compile(rb"\b__global__\b")
_COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)
_OUTPUT = {"build", "dist", "node_modules", "__pycache__"}
_RUN_TIME = re.compile(r"\s*aotcuda(?![\w.-])", re.IGNORECASE)
_EXTRAS = re.compile(r"\s*aotcuda\s*\[([^\]]*)\]", re.IGNORECASE)


def report(folder: Path) -> list[str]:
    """Return lines on `.cu` files whose kernels no table names, with the remaining steps.

    Raises:
        ConfigError: The pyproject.toml cannot be read.
    """
    owner = project.read(Path(os.path.realpath(folder)))
    named = {source for table in _tables(owner) for source in _sources(table)}
    found = [file for file in files(owner) if file not in named]
    if not found:
        return []
    count = f"{len(found)} file{'s' * (len(found) > 1)}"
    lines = [f"{count} with kernels in CUDA C++, for a table (docs/cuda-cpp.md):", *(f"  {file}" for file in found)]
    system = project_file.table(owner.data, "build-system")
    if not any(map(_includes_compilers, project_file.strings(system.get("requires")))):
        lines.append(f'to do: their compiler: add "{_FRONT_END.requirement()}" to build-system.requires')
    metadata = project_file.table(owner.data, "project")
    is_static = bool(metadata) and "dependencies" not in project_file.strings(metadata.get("dynamic"))
    if is_static and not any(map(_RUN_TIME.match, project_file.strings(metadata.get("dependencies")))):
        lines.append('to do: the run time: add "aotcuda" to project.dependencies')
    if (
        str(system.get("build-backend", "")).startswith("hatchling")
        and uninstalled_hook.enabled_table(str(owner.root)) is None
    ):
        lines.append(f"to do: the hook: add an empty table {uninstalled_hook.table_to_add(str(owner.root))}")
    return lines


def _includes_compilers(requirement: str) -> bool:
    """Return True if a requirement is for aotcuda with the compilers of any toolkit for these files."""
    found = _EXTRAS.match(requirement)
    extras = re.split(r"[\s,]+", found[1].lower().replace("_", "-")) if found else []
    including = {
        item.bringing(toolkit)
        for item in registry.BUILT_IN.values()
        for toolkit in registry.TOOLKITS
        if item.bringing(toolkit) != item.requires
    }
    return any(f"aotcuda[{extra}]" in including for extra in extras)


def _tables(owner: Project) -> list[dict[str, object]]:
    modules = owner.aotcuda.get("modules")
    return [table for table in modules.values() if isinstance(table, dict)] if isinstance(modules, dict) else []


def _sources(table: dict[str, object]) -> list[str]:
    source = table.get("source")
    return project_file.strings(source) if isinstance(source, list) else [str(source)]


def files(owner: Project) -> Iterator[str]:
    """Yield the `.cu` files with kernels outside build folders and environments."""
    for where, folders, names in os.walk(owner.root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _OUTPUT)
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        for name in sorted(names):
            path = Path(where, name)
            file = path.relative_to(owner.root).as_posix()
            if name.endswith(_FRONT_END.suffix) and path.is_file() and not project.is_test(file):
                try:
                    text = foreign.content(path)
                except foreign.UnreadableError:
                    continue
                if _KERNEL.search(_COMMENT.sub(b"", text)):
                    yield file
