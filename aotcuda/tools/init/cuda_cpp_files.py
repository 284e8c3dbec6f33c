"""Files with kernels in CUDA C++, of which `aotcuda init` tells what is to be done: it writes no tables for them."""

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
    """Lines on the `.cu` files in a project whose kernels no table names, and on what is still to be done for them.

    Raises:
        ConfigError: The pyproject.toml cannot be read.
    """
    owner = project.read(Path(os.path.realpath(folder)))
    named = {source for table in _tables(owner) for source in _sources(table)}
    files = [file for file in _files(owner) if file not in named]
    if not files:
        return []
    count = f"{len(files)} file{'s' * (len(files) > 1)}"
    lines = [f"{count} with kernels in CUDA C++, for a table (docs/cuda-cpp.md):", *(f"  {file}" for file in files)]
    system = project_file.table(owner.data, "build-system")
    if not any(map(_brings_compilers, project_file.strings(system.get("requires")))):
        lines.append(f'to do: their compiler: add "{_FRONT_END.requirement()}" to build-system.requires')
    metadata = project_file.table(owner.data, "project")
    is_static = bool(metadata) and "dependencies" not in project_file.strings(metadata.get("dynamic"))
    if is_static and not any(map(_RUN_TIME.match, project_file.strings(metadata.get("dependencies")))):
        lines.append('to do: the run time: add "aotcuda" to project.dependencies')
    if str(system.get("build-backend", "")).startswith("hatchling") and uninstalled_hook.table(str(owner.root)) is None:
        lines.append(f"to do: the hook: add an empty table {uninstalled_hook.to_add(str(owner.root))}")
    return lines


def _brings_compilers(requirement: str) -> bool:
    """Whether a requirement is of aotcuda with the compilers for these files, of whichever toolkit."""
    found = _EXTRAS.match(requirement)
    extras = re.split(r"[\s,]+", found[1].lower().replace("_", "-")) if found else []
    return any(_FRONT_END.bringing(toolkit) == f"aotcuda[{extra}]" for toolkit in registry.TOOLKITS for extra in extras)


def _tables(owner: Project) -> list[dict[str, object]]:
    modules = owner.aotcuda.get("modules")
    return [table for table in modules.values() if isinstance(table, dict)] if isinstance(modules, dict) else []


def _sources(table: dict[str, object]) -> list[str]:
    source = table.get("source")
    return project_file.strings(source) if isinstance(source, list) else [str(source)]


def _files(owner: Project) -> Iterator[str]:
    """The `.cu` files with kernels, apart from what builds and environments have left."""
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
