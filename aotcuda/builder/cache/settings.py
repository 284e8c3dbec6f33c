"""Read the settings of the build cache: its place, its access, and the digest of the inputs of all entries."""

from __future__ import annotations

import functools
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda import registry
from aotcuda.builder.cache import hashing
from aotcuda.cache import compilers, entries, folder
from aotcuda.common import removed
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aotcuda.builder.plan.toolkits import Toolkit

FORMAT = 3
"""Grows when the format of entries changes; the digest of aotcuda's own files covers changes of their content."""

WHERE, ACCESS = "AOTCUDA_BUILD_CACHE", "AOTCUDA_BUILD_CACHE_ACCESS"
READ, READ_WRITE = "read", "read-write"

_IGNORED = (
    WHERE,
    ACCESS,
    "AOTCUDA_CACHE_DIR",
    "AOTCUDA_CACHE_SIZE",
    "AOTCUDA_DEBUG",
    "AOTCUDA_EXECUTOR",
    "AOTCUDA_EXTENSION",
    "AOTCUDA_FROM_CACHE_ONLY",
    "AOTCUDA_PROGRESS",
    "AOTCUDA_VERBOSE",
    "AOTCUDA_ARCH",
)
_NOT_FOLDERS = ("true", "false", "yes", "no", "on", "off", "none", "read", "read-write")
_ISOLATED_BUILD = "pip-build-env-"
_INSTALLER_VARIABLES = (
    *("PYTHONPATH", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "PYTHONNOUSERSITE", "PYTHONUNBUFFERED"),
    *("PYTHONIOENCODING", "PYTHONFAULTHANDLER", "PYTHONPYCACHEPREFIX", "PYTHONSTARTUP", "PYTHON_COLORS"),
)
"""Variables of build tools and containers that do not change the code: workers do not read them, or set their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The place of the cache; travels in jobs.

    Attributes:
        folder: The folder of the cache.
        writes: True if results are stored in the folder.
        facts: The digest of the inputs of all entries.
    """

    folder: str
    writes: bool
    facts: str


def find(front_ends: Iterable[str], toolkits: Sequence[Toolkit], root: Path) -> Settings | None:
    """Return the cache of a build with these front ends and toolkits, of the project in `root`.

    It is None if `AOTCUDA_BUILD_CACHE` is 0, or if the user has no home.

    Raises:
        ConfigError: A variable that locates the cache has an unusable value.
    """
    place = _read_place()
    access = os.environ.get(ACCESS, "").strip()
    front_ends = sorted({*front_ends})
    if place == "0":
        return None
    if access not in ("", READ, READ_WRITE):
        message = f"{ACCESS} is {access!r}; write {READ!r} or {READ_WRITE!r}"
        raise ConfigError(message)
    entries.size_cap()  # a wrong value is reported before anything is compiled
    base = folder.expand(place) if place else default_folder()
    if base is None:
        return None
    return Settings(folder=base, writes=access != READ, facts=_facts(front_ends, toolkits, root))


def in_folder(folder: Path, front_ends: Iterable[str], toolkits: Sequence[Toolkit], root: Path) -> Settings:
    """Return a cache in a folder, independent of the environment; for the other arguments see `find`."""
    facts = _facts(sorted({*front_ends}), toolkits, root)
    return Settings(folder=str(folder), writes=True, facts=facts)


def default_folder() -> str | None:
    """Return the builds' folder in the user's cache folder; None if the user has no home."""
    base = folder.folder()
    return os.path.join(base, "builds") if base is not None else None


def search_folders() -> list[str]:
    """Return the folders of PYTHONPATH, where sources find modules that are not installed.

    Folders that isolated builds make each time, with the requirements of the build, are left out.
    """
    folders = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return [os.path.abspath(path) for path in folders if _ISOLATED_BUILD not in path]


def configured_folder() -> str | None:
    """Return the folder of the cache on this machine, as the environment sets it; None if there is none."""
    place = _read_place()
    if place == "0":
        return None
    return folder.expand(place) if place else default_folder()


def _read_place() -> str:
    """Return `AOTCUDA_BUILD_CACHE`: a folder, 0, or nothing."""
    place = os.environ.get(WHERE, "").strip()
    if place != "0" and (place.isdigit() or place.lower() in _NOT_FOLDERS):
        message = f"{WHERE} is {place!r}; write a folder (./{place} for one of that name), or 0 for no cache"
        raise ConfigError(message)
    if (problem := removed.value_problem(WHERE, place)) is not None:
        raise ConfigError(problem)
    return place


def _facts(front_ends: Sequence[str], toolkits: Sequence[Toolkit], root: Path) -> str:
    """Return the digest of all inputs except the project's files."""
    registered = [registration for name in front_ends if (registration := registry.find(name)) is not None]
    variables = registry.variables(front_ends)
    distributions = tuple(name for item in registered for name in item.all_distributions)
    return hashing.digest(
        FORMAT,
        [_digests(_folder_of(item.tables)) for item in registered if item.name not in registry.BUILT_IN],
        sorted(tools(distributions, toolkits).items()),
        sorted((name, value) for name, value in os.environ.items() if changes_entries(name) or name in variables.kept),
        [(name, compilers.digest(str(root / name))) for name in variables.files],
    )


def tools(distributions: Iterable[str], toolkits: Sequence[Toolkit]) -> dict[str, object]:
    """Return the versions and digests of the tools of these front ends, by name."""
    return {
        "aotcuda with the files of digest": hashing.digest(_own_files()),
        "Python": [sys.implementation.cache_tag, sys.version],
        "system": [platform.system(), platform.machine()],
        **compilers.installed(tuple(distributions)),
        "toolkits": [[item.cuda, item.linker] for item in toolkits],
        "toolkit": compilers.toolkit(),
    }


def changes_entries(name: str) -> bool:
    """Return True for a variable that all entries depend on."""
    if name.startswith("AOTCUDA_"):
        return name not in _IGNORED
    return name.startswith("PYTHON") and name not in _INSTALLER_VARIABLES


@functools.cache
def _own_files() -> Mapping[str, str | None]:
    """Return the digests of aotcuda's own files, because a checkout changes without a new version."""
    return _digests(Path(registry.__file__).parent)


def _folder_of(module: str) -> Path:
    file = sys.modules[module].__file__  # the plan has imported it
    return Path(file or "").parent


def _digests(base: Path) -> Mapping[str, str | None]:
    paths = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(base)
        for name in names
        if name.endswith((".py", ".toml", ".json"))
    ]
    return {os.path.relpath(path, base): compilers.digest(path) for path in sorted(paths)}
