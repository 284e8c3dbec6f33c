"""The worker of a build, started before the build's own modules are imported and its configuration is read.

That takes about as long as the worker's own start, a tenth of a second each, and they have a core each. The JIT
fallback's likewise.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from aotcuda import arch, registry
from aotcuda.builder import capacity, toolkits
from aotcuda.builder.worker import process
from aotcuda.common import project_file, system

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FALLBACK = MappingProxyType({"AOTCUDA_LOAD": "first-use", "AOTCUDA_FALLBACK": "error"})
"""More environment variables of a JIT build's workers.

The user's modules may import the very package that is compiled, or others that aotcuda built: they are not to start a
driver, or a JIT build of their own.
"""


@contextmanager
def worker(pyproject: Mapping[str, object], root: Path) -> Iterator[None]:
    """Have a worker get ready for the project that the block builds, as far as a glance tells what kind it needs.

    Nothing depends on the glance: `process.run` holds what was started against what the build wants, and what is wrong
    with the table the configuration's check says.

    Args:
        pyproject: The parsed pyproject.toml.
        root: The project's folder.
    """
    name = _front_end(project_file.table(pyproject, "tool").get("aotcuda"))
    if name is None or not _is_of_use():
        yield
        return
    *_, newest = (None, *toolkits.installed())
    with process.ahead(str(root.resolve()), name, newest):
        yield


@contextmanager
def worker_of(project: Path) -> Iterator[None]:
    """`worker` for the project in a folder, or of a pyproject.toml; none where that cannot be read."""
    path = project if os.path.isfile(project) else project / project_file.FILE_NAME  # noqa: PTH113 (pathlib raises)
    with worker(project_file.content(path), path.parent):
        yield


@contextmanager
def fallback(root: str, package_root: str, front_end: str, target: str, driver: tuple[int, int]) -> Iterator[None]:
    """Have a worker get ready for the JIT build that the block does; nothing depends on it here either.

    Args:
        root: The folder that paths in the table are relative to.
        package_root: The folder that holds the package.
        front_end: The module's front end, which nobody has checked.
        target: `sm_XY`, the GPU.
        driver: The CUDA version that the driver supports.
    """
    if front_end not in registry.BUILT_IN or not _is_of_use():
        yield
        return
    toolkit = toolkits.choose(arch.parse(target), toolkits.loaded_by(driver, toolkits.installed()))
    with process.ahead(str(folder(root, package_root)), front_end, toolkit, FALLBACK, jit=True):
        yield


def folder(root: str | Path, package_root: str | Path) -> Path:
    """The folder that a JIT build works in: an absolute path."""
    return Path(root if Path(root).is_dir() else package_root).resolve()


def _is_of_use() -> bool:
    """Whether a worker can get ready while something else is done."""
    return capacity.processes() >= 2 and system.why_not("builds") is None


def _front_end(table: object) -> str | None:
    """The one front end of aotcuda's own that all modules of a table have, which nobody has checked; else None."""
    modules = table.get("modules") if isinstance(table, dict) else None
    if not isinstance(table, dict) or not isinstance(modules, dict):
        return None
    of_project = table.get("frontend", registry.DEFAULT)
    names = [one.get("frontend", of_project) if isinstance(one, dict) else None for one in modules.values()]
    name = names[0] if names else None
    return name if isinstance(name, str) and name in registry.BUILT_IN and names.count(name) == len(names) else None
