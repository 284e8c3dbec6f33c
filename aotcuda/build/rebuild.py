"""What a wheel carries so that the JIT fallback can build one of its modules once more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from aotcuda import manifest
from aotcuda.build import plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aotcuda.build.job import BuiltModule
    from aotcuda.build.plan import ModulePlan


def describe(
    table: Mapping[str, Any], plans: Sequence[ModulePlan], built: BuiltModule, root: str, *, editable: bool
) -> manifest.Rebuild:
    """The `rebuild` object of a module's manifest.

    Args:
        table: `[tool.aotcuda]`.
        plans: What the project builds.
        built: The module.
        root: The project's folder, relative to the one that holds the package; editable installs find files there.
        editable: It is an editable install.
    """
    name = built.plan.config.name
    folder = f"{name.replace('.', '/')}{manifest.FOLDER_SUFFIX}/{manifest.SOURCES}"
    return {
        "table": alone(table, name),
        "names": {module: list(names) for module, names in plan.names(plans).items()},
        "root": root if editable else folder,
        "files": [{"path": path, "bytes": len(data), "sha256": manifest.digest(data)} for path, data in built.carried],
    }


def alone(table: Mapping[str, Any], module: str) -> dict[str, object]:
    """`table` as it would be if `module` were the only one; it has been parsed, so it is well-formed."""
    kept = {**table, "modules": {module: table["modules"][module]}}
    if "arch" in table:  # in which order it lists them, and how often, makes no difference
        kept["arch"] = sorted(set(table["arch"]))
    return cast("dict[str, object]", kept)
