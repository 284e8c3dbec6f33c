"""Find the fault of a package without built modules: its project did not enable the build hook.

Without the table of the hook, hatchling builds a project successfully and does not load aotcuda, so only a later check
of the project or the package can find the fault. setuptools does the same without aotcuda in the build's requirements.
"""

from __future__ import annotations

import os
import sys

from . import project_file
from .project_file import table as _table

TABLE = "[tool.hatch.build.targets.wheel.hooks.aotcuda]"
_HATCH_FILE = "hatch.toml"
"""The other file with settings of hatchling."""

ADVICE = (
    f"add the table {TABLE} to its pyproject.toml, which enables the hook of hatchling, or for setuptools aotcuda to "
    "build-system.requires, and build it again"
)


def project_fault(folder: str) -> str | None:
    """Return the fault of a project that configures aotcuda and is built without the hook, or None."""
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
            f"{path} has [tool.aotcuda], and setuptools builds the project without aotcuda; add "
            '"aotcuda[cu13]" to build-system.requires'
        )
    if not back_end.startswith("hatchling."):
        return None
    hooks = _hooks(project, folder)
    if "aotcuda" in hooks:
        return None
    misspelt = [name for name in hooks if name.lower().replace("-", "").replace("_", "") == "aotcuda"]
    remedy = f"its table for a hook {misspelt[0]} is misspelt; write" if misspelt else "add the table"
    return f"{path} has [tool.aotcuda], and does not enable the build hook: {remedy} {table_to_add(folder)}"


def state(folder: str) -> str | None:
    """Return in one line if builds of a project run aotcuda; None for a project that does not configure it."""
    project = project_file.content(os.path.join(folder, project_file.FILE_NAME))
    if not _table(_table(project, "tool"), "aotcuda"):
        return None
    fault = project_fault(folder)
    if fault is not None:
        return f"the build hook is off, so wheels will have no kernels: {fault}"
    back_end = str(_table(project, "build-system").get("build-backend", "setuptools.build_meta:__legacy__"))
    if back_end.startswith("hatchling."):
        return f"the build hook is on: {enabled_table(folder)}"
    if back_end.startswith("setuptools."):
        return "the build hook is on: setuptools runs aotcuda, since build-system.requires has it"
    return f"{back_end} has no build hook of aotcuda: let it run aotcuda build, or wheels will have no kernels"


def enabled_table(folder: str) -> str | None:
    """Return the table, in brackets, that enables the hook of hatchling in a project; None if it has none."""
    return _hooks(project_file.content(os.path.join(folder, project_file.FILE_NAME)), folder).get("aotcuda")


def table_to_add(folder: str) -> str:
    """Return the table that would enable the hook in a project, with the file if it is not pyproject.toml."""
    # A table `build` in hatch.toml replaces the one in pyproject.toml.
    if "build" in project_file.content(os.path.join(folder, _HATCH_FILE)):
        return f"{TABLE.replace('tool.hatch.', '')} to {_HATCH_FILE}"
    return TABLE


def _hooks(project: dict[str, object], folder: str) -> dict[str, str]:
    """Return the hooks that a project enables for wheels, each with its table."""
    # Keys of hatch.toml take precedence.
    hatch = _table(project, "tool", "hatch") | project_file.content(os.path.join(folder, _HATCH_FILE))
    build = _table(hatch, "build")
    wheel = _table(_table(_table(build, "targets"), "wheel"), "hooks")
    return {name: f"[tool.hatch.build.hooks.{name}]" for name in _table(build, "hooks")} | {
        name: f"[tool.hatch.build.targets.wheel.hooks.{name}]" for name in wheel
    }


def find_project_fault(folder: str) -> str | None:
    """Return the fault of the project above a package in `folder`; stop at a folder of installed packages."""
    while os.path.basename(folder) not in {"site-packages", "dist-packages"}:
        if os.path.isfile(os.path.join(folder, project_file.FILE_NAME)):
            return project_fault(folder)
        folder, child = os.path.dirname(folder), folder
        if folder == child:
            break
    return None


def fault_of_package(package: str) -> str | None:
    """Return the fault of the project of an imported package, or the probable fault of its distribution, or None."""
    module = sys.modules.get(package)
    folders = list(getattr(module, "__path__", ())) or [os.path.dirname(getattr(module, "__file__", None) or "")]
    found = (find_project_fault(os.path.abspath(folder)) for folder in folders if folder)
    return next(filter(None, found), None) or distribution_fault(package)


def metadata_fault(text: str) -> str | None:
    """Return the probable fault of a distribution without a built module, from its METADATA."""
    for line in text.partition("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        if key.lower() == "requires-dist" and _is_aotcuda(value):
            return (
                "it depends on aotcuda, so it may have been built before `aotcuda record --write` wrote its variants, "
                f"or without the hook: {ADVICE}"
            )
    return None


def distribution_fault(package: str) -> str | None:
    """Return the probable fault of the distribution of a top-level package."""
    from importlib import metadata  # noqa: PLC0415 (only failed imports call this)

    for name in metadata.packages_distributions().get(package, ()):
        if hint := metadata_fault(metadata.distribution(name).read_text("METADATA") or ""):
            return hint
    return None


def _is_aotcuda(requirement: str) -> bool:
    name = requirement.strip()
    rest = name.removeprefix("aotcuda")
    return rest != name and not (rest[:1].isalnum() or rest[:1] in {"-", "_", "."}) and "extra ==" not in rest
