"""Place recorded kernels of installed packages in a pack: the project's package, and a module for each source."""

from __future__ import annotations

import re
from importlib import metadata
from typing import TYPE_CHECKING

from aotcuda.common.project_file import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from aotcuda.tools.record.project import Project
    from aotcuda.tools.record.records import Record

_INIT = '''"""Compiled Triton kernels of other packages, which use them once this package is imported."""

from aotcuda import packs

packs.use(__name__)
'''


def is_packed(record: Record, owner: Project) -> bool:
    """Return True if a kernel belongs to a package whose kernels go into a pack."""
    return record.frontend == "triton" and record.module.partition(".")[0] in owner.packages


def module_name(source: str, owner: Project) -> str:
    """Return the name of a new module of the pack for a source: `fla_pack.fla_ops_gla_chunk`."""
    return f"{package_name(owner)}.{source.replace('.', '_')}"


def package_name(owner: Project) -> str:
    """Return the name of the project's pack: from its tables, or else from the project's name."""
    for name, module in table(owner.aotcuda, "modules").items():
        if isinstance(module, dict) and module.get("pack") is True:
            return str(name.rpartition(".")[0])
    return re.sub(r"\W+", "_", str(table(owner.data, "project").get("name", "pack"))).lower()


def file_of(module: str, owner: Project) -> Path:
    """Return the path that the file of a pack's module would have."""
    parts = module.split(".")
    roots = owner.import_roots()
    root = next((root for root in roots if (root / parts[0]).is_dir()), roots[0])
    return root.joinpath(*parts).with_suffix(".py")


def write_package(owner: Project) -> Path | None:
    """Write the pack's `__init__.py` if there is none; return its path."""
    path = file_of(f"{package_name(owner)}.__init__", owner)
    if path.exists():
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_INIT, encoding="utf-8")
    return path


def requirements(sources: Iterable[str], owner: Project, installed: Mapping[str, str]) -> list[str]:
    """Return the build requirements of a pack: its packages and Triton, in the versions of this environment."""
    tops = {source.partition(".")[0] for source in sources} & {*owner.packages}
    found = []
    for name in sorted({installed.get(top, top) for top in tops} | ({"triton"} if tops else set())):
        try:
            found.append(f"{name}=={metadata.version(name).partition('+')[0]}")
        except metadata.PackageNotFoundError:
            found.append(name)
    return found
