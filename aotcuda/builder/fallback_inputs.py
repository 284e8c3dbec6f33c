"""Describe the inputs from which the JIT fallback builds a module of a wheel again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from aotcuda import manifest
from aotcuda.builder import plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aotcuda.builder.plan import ModulePlan
    from aotcuda.builder.stamps import Project
    from aotcuda.builder.worker.job import BuiltModule


def describe(
    table: Mapping[str, Any],
    plans: Sequence[ModulePlan],
    built: BuiltModule,
    project: Project,
    *,
    editable: bool,
) -> manifest.Rebuild:
    """Return the `rebuild` object of a module's manifest; `table` is `[tool.aotcuda]`, `plans` those of all modules."""
    name, root, package_root = built.plan.config.name, project.root, project.package_root
    folder = f"{name.replace('.', '/')}{manifest.FOLDER_SUFFIX}/{manifest.SOURCES}"
    return {
        "table": alone(table, name) if editable else _as_installed(alone(table, name), root, package_root),
        "names": {module: list(names) for module, names in plan.names(plans).items()},
        "root": os.path.relpath(root, package_root) if editable else folder,
        "files": [{"path": path, "bytes": len(data), "sha256": manifest.digest(data)} for path, data in built.carried],
    }


def alone(table: Mapping[str, Any], module: str) -> dict[str, object]:
    """Return `table`, which has been parsed before, with `module` as its only module."""
    kept = {**table, "modules": {module: table["modules"][module]}}
    if "arch" in table:  # order and repetition make no difference
        kept["arch"] = sorted(set(table["arch"]))
    return cast("dict[str, object]", kept)


def _as_installed(table: dict[str, object], root: Path, package_root: Path) -> dict[str, object]:
    """Return `table` with the `watch` globs relative to the folder that holds the package.

    Globs that lead out of that folder are left out, since a wheel has no such files.
    """
    globs = cast("list[str]", table.get("watch", []))
    found = [os.path.relpath(root / text, package_root) if not Path(text).is_absolute() else text for text in globs]
    kept = [text for text in found if not text.startswith("..")]
    return {**table, "watch": kept} if globs else table
