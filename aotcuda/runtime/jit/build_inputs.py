"""Find the inputs of a JIT build: the installed package, or the project of an editable install."""

from __future__ import annotations

import os

from ...common.jit_build import Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...manifest import Manifest

PYPROJECT = "pyproject.toml"


def packaged(manifest: Manifest, package_root: str) -> Request | None:
    """Return the request for a packaged module; None if it has no sources, as with `fallback = "error"`."""
    rebuild = manifest.get("rebuild")
    if rebuild is None:
        return None
    root = os.path.normpath(os.path.join(package_root, *rebuild["root"].split("/")))
    listed = [os.path.join(package_root, source["path"]) for source in manifest["sources"]]
    listed += [os.path.join(root, file["path"]) for file in rebuild["files"]]
    return Request(
        manifest["module"],
        rebuild["table"],
        root,
        package_root,
        names=rebuild["names"],
        files=tuple([os.path.normpath(path) for path in listed]),
        carried=tuple(rebuild["files"]),
    )


def project(module: str, package_root: str, files: tuple[str, ...] = ()) -> Request | None:
    """Return the request for a module of the project that contains its package; None if no pyproject.toml names it.

    Search the package's folder and those above it, up to a folder of installed packages.
    """
    folder = os.path.normpath(os.path.join(package_root, *module.split(".")[:-1]))
    while True:
        table = table_of(os.path.join(folder, PYPROJECT))
        if table is not None:
            modules = table.get("modules")
            listed = isinstance(modules, dict) and module in modules
            return Request(module, table, folder, package_root, files=files) if listed else None
        above = os.path.dirname(folder)
        if above == folder or os.path.basename(folder) in {"site-packages", "dist-packages"}:
            return None
        folder = above


def table_of(path: str) -> dict[str, object] | None:
    """Return `[tool.aotcuda]` of a pyproject.toml; None if there is no such file or table."""
    from ...common import project_file  # noqa: PLC0415 (only source trees come here)

    table = project_file.table(project_file.content(path), "tool").get("aotcuda")
    return table if isinstance(table, dict) else None
