"""Find the folders of a project's packages, and refuse modules that do not fit into them."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from aotcuda.builder.link import inputs
from aotcuda.builder.project import output_conflicts
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from aotcuda.builder.plan.plan import ModulePlan


def import_roots(root: Path, folders: Sequence[Path]) -> list[Path]:
    """Return the existing folders from which a project's packages are imported: `folders`, `src` and the root."""
    candidates = [*(path.resolve() for path in folders), root / "src", root]
    return list(dict.fromkeys(path for path in candidates if path.is_dir()))


def package_root(module: str, roots: Sequence[Path]) -> Path:
    """Return the folder that holds the package of a module."""
    top = module.partition(".")[0]
    return next((path for path in roots if (path / top).is_dir()), roots[0] if "." in module else roots[-1])


def check(plans: Sequence[ModulePlan], roots: Sequence[Path], root: Path, extensions: Collection[str]) -> None:
    """Refuse modules without a package or with a name in use, and include folders that do not exist."""
    for item in plans:
        module = item.config
        _check_package_exists(module.name, module.key, roots, root)
        if not item.in_place:
            output_conflicts.check_module(module.name, module.key, roots, root, extensions)
        for folder in module.options.include_dirs:
            if not (root / folder).is_dir():
                remedy = inputs.remedy_for(root / folder, root)
                message = f"{module.key}.options.include-dirs: {root / folder} is no folder; {remedy}"
                raise ConfigError(message)


def _check_package_exists(module: str, key: str, roots: Sequence[Path], root: Path) -> None:
    """Refuse a name that would add a new package to the wheel: most likely it is misspelt."""
    *parents, _ = module.split(".")
    for depth, part in enumerate(parents, 1):
        above = [folder.joinpath(*parents[: depth - 1]) for folder in roots]
        if any((folder / part).is_dir() for folder in above):
            continue
        names = [path.name for folder in above if folder.is_dir() for path in folder.iterdir() if _is_package(path)]
        matches = difflib.get_close_matches(part, names, n=1)
        package = ".".join(parents[:depth])
        suggestion = ".".join([*parents[: depth - 1], matches[0], *module.split(".")[depth:]]) if matches else ""
        hint = f"did you mean {suggestion}?" if suggestion else "name a module in a package of the project"
        message = f"{key}: there is no package {package} in {root}, which must contain the module; {hint}"
        raise ConfigError(message)


def _is_package(path: Path) -> bool:
    return path.name.isidentifier() and path.is_dir() and any(path.glob("*.py"))
