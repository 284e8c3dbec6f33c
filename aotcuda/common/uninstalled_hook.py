"""Explain packages that need aotcuda and have no module that it built, since the build hook was not enabled.

Hatchling builds a project without the hook's table successfully, and does not load aotcuda, so only a later check of
the project or the package can find this. setuptools does the same if aotcuda is not among the build's requirements.
"""

from __future__ import annotations

import os

from aotcuda.common import project_file
from aotcuda.common.project_file import table as _table

TABLE = "[tool.hatch.build.targets.wheel.hooks.aotcuda]"
_OWN = "hatch.toml"
"""The other file for hatchling's settings."""

ADVICE = (
    f"add the table {TABLE} to its pyproject.toml, which turns hatchling's hook on, or for setuptools aotcuda to "
    "build-system.requires, and build it again"
)


def in_project(folder: str) -> str | None:
    """Return the fault of a project that configures aotcuda and is built without its hook, or None."""
    path = os.path.join(folder, project_file.FILE_NAME)
    project = project_file.content(path)
    tool = _table(project, "tool")
    if not _table(tool, "aotcuda"):
        return None
    system = _table(project, "build-system")
    back_end, requires = str(system.get("build-backend", "")), system.get("requires")
    if back_end.startswith("setuptools."):
        if any(_is_aotcuda(str(item)) for item in (requires if isinstance(requires, list) else ())):
            return None
        return (
            f'{path} has [tool.aotcuda], and setuptools builds it without: add "aotcuda[cu13]" to build-system.requires'
        )
    if not back_end.startswith("hatchling."):
        return None
    hooks = _hooks(project, folder)
    if "aotcuda" in hooks:
        return None
    meant = [name for name in hooks if name.lower().replace("-", "").replace("_", "") == "aotcuda"]
    what = f"its table for a hook {meant[0]} is misspelt, write" if meant else "add the table"
    return f"{path} has [tool.aotcuda], and does not turn the build hook on: {what} {to_add(folder)}"


def table(folder: str) -> str | None:
    """Return the table that enables hatchling's hook in a project, in brackets; None without one."""
    return _hooks(project_file.content(os.path.join(folder, project_file.FILE_NAME)), folder).get("aotcuda")


def to_add(folder: str) -> str:
    """Return the table that would enable the hook in a project, with the file if it is not pyproject.toml."""
    if "build" in project_file.content(os.path.join(folder, _OWN)):  # the key in pyproject.toml has no effect any more
        return f"{TABLE.replace('tool.hatch.', '')} to {_OWN}"
    return TABLE


def _hooks(project: dict[str, object], folder: str) -> dict[str, str]:
    """Return the hooks that a project enables for wheels, each with its table."""
    own = project_file.content(os.path.join(folder, _OWN))
    hatch = _table(project, "tool", "hatch") | own  # its keys take precedence
    build = _table(hatch, "build")
    wheel = _table(_table(_table(build, "targets"), "wheel"), "hooks")
    return {name: f"[tool.hatch.build.hooks.{name}]" for name in _table(build, "hooks")} | {
        name: f"[tool.hatch.build.targets.wheel.hooks.{name}]" for name in wheel
    }


def find_in_project(folder: str) -> str | None:
    """Find the project of a package in `folder`, up to a folder of installed packages, and return its fault."""
    while os.path.basename(folder) not in {"site-packages", "dist-packages"}:
        if os.path.isfile(os.path.join(folder, project_file.FILE_NAME)):
            return in_project(folder)
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            break
    return None


def in_metadata(text: str) -> str | None:
    """Return the probable fault of a distribution without a built module, by its METADATA."""
    for line in text.partition("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        if key.lower() == "requires-dist" and _is_aotcuda(value):
            return f"it depends on aotcuda, so it may have been built without the hook: {ADVICE}"
    return None


def find_in_distribution(package: str) -> str | None:
    """Return the probable fault of the distribution of a top-level package."""
    from importlib import metadata  # noqa: PLC0415 (only failed imports call this)

    for name in metadata.packages_distributions().get(package, ()):
        if hint := in_metadata(metadata.distribution(name).read_text("METADATA") or ""):
            return hint
    return None


def _is_aotcuda(requirement: str) -> bool:
    name = requirement.strip()
    rest = name.removeprefix("aotcuda")
    return rest != name and not (rest[:1].isalnum() or rest[:1] in {"-", "_", "."}) and "extra ==" not in rest
