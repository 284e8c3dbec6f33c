"""What a JIT build builds from: the installed package, or the project that an editable install points to."""

from __future__ import annotations

import os

from aotcuda import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.manifest import Manifest

PYPROJECT = "pyproject.toml"


class Recipe:
    """What to build a module from.

    Attributes:
        module: The module's name.
        table: `[tool.aotcuda]`, as TOML has it.
        root: The folder that paths in the table are relative to.
        package_root: The folder that holds the package.
        names: Every module that the project's wheel gains, with its names; None to take them from the table.
        files: Paths of the files that the packaged images were built from; of a wheel not all of them are here.
    """

    __slots__ = ("files", "module", "names", "package_root", "root", "table")

    def __init__(
        self,
        module: str,
        table: dict[str, object],
        root: str,
        package_root: str,
        *,
        names: dict[str, list[str]] | None = None,
        files: tuple[str, ...] = (),
    ) -> None:
        self.module = module
        self.table = table
        self.root = os.path.normpath(root)
        self.package_root = package_root
        self.names = names
        self.files = files

    @property
    def frontend(self) -> str:
        """The front end that the module is built with: its own, or the project's; as the table says, right or wrong."""
        modules = self.table.get("modules")
        own = modules.get(self.module) if isinstance(modules, dict) else None
        named = own.get("frontend") if isinstance(own, dict) else None
        return str(named or self.table.get("frontend") or registry.DEFAULT)


def packaged(manifest: Manifest, package_root: str) -> Recipe | None:
    """The recipe of a packaged module; None if it carries none, as with `fallback = "error"`."""
    rebuild = manifest.get("rebuild")
    if rebuild is None:
        return None
    root = os.path.join(package_root, *rebuild["root"].split("/"))
    listed = [os.path.join(package_root, source["path"]) for source in manifest["sources"]]
    listed += [os.path.join(root, file["path"]) for file in rebuild["files"]]
    return Recipe(
        manifest["module"],
        rebuild["table"],
        root,
        package_root,
        names=rebuild["names"],
        files=tuple([os.path.normpath(path) for path in listed]),
    )


def project(module: str, package_root: str, files: tuple[str, ...] = ()) -> Recipe | None:
    """The recipe in the pyproject.toml of the project that a package lies in; None if there is none for `module`.

    It is looked for in the package's own folder first, then upwards, and not beyond a folder of installed packages.
    """
    folder = os.path.join(package_root, *module.split(".")[:-1])
    while True:
        table = table_of(os.path.join(folder, PYPROJECT))
        if table is not None:
            modules = table.get("modules")
            listed = isinstance(modules, dict) and module in modules
            return Recipe(module, table, folder, package_root, files=files) if listed else None
        above = os.path.dirname(folder)
        if above == folder or os.path.basename(folder) in {"site-packages", "dist-packages"}:
            return None
        folder = above


def table_of(path: str) -> dict[str, object] | None:
    """`[tool.aotcuda]` of a pyproject.toml; None if there is no such file or no such table."""
    from aotcuda.common import project_file  # noqa: PLC0415 (only source trees come here)

    table = project_file.table(project_file.content(path), "tool").get("aotcuda")
    return table if isinstance(table, dict) else None
