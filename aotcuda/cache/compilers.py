"""Find the versions of installed compilers without an import; caches depend on them."""

from __future__ import annotations

import os
import sys

from .. import manifest as manifests
from .. import registry
from ..common import foreign

_TOOLCHAIN = ("cuda_", "nvidia_cuda_", "nvidia_nvjitlink", "nvidia_nvvm", "nvidia_nvfatbin")
_TOOLKITS = ("CUDA_PATH", "CUDA_HOME")


def installed(outside: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the versions of installed compilers and their libraries, by the names of their folders.

    Args:
        outside: Prefixes of the names of distributions that a front end outside aotcuda needs.
    """
    built_in = [name for item in registry.BUILT_IN.values() for name in item.all_distributions]
    prefixes = (*_TOOLCHAIN, *built_in, *outside)
    return {name: version for name, version in distributions().items() if name.startswith(prefixes)}


def distributions() -> dict[str, str]:
    """Return the versions of all installed distributions by name; a project's code may use constants of any."""
    versions: dict[str, str] = {}
    for entry in sys.path:
        try:
            names = os.listdir(entry or ".")
        except OSError:
            continue
        for name in names:
            if name.endswith(".dist-info"):
                package, _, version = name.removesuffix(".dist-info").partition("-")
                versions.setdefault(package.lower(), version)
    return versions


def toolkit() -> list[object]:
    """Return the folders of toolkits that are no Python packages, each with the digest of its version file."""
    return [[path, digest(os.path.join(path, "version.json")) if path else None] for path in _toolkit_folders()]


def machine_toolkits() -> list[str]:
    """Return the existing folders of toolkits that are no Python packages."""
    return [path for path in dict.fromkeys(_toolkit_folders()) if os.path.isdir(path)]


def _toolkit_folders() -> list[str]:
    """Return the folders where toolkits that are no Python packages may be; an empty text for an unset variable."""
    folders = (*(os.environ.get(name, "") for name in _TOOLKITS), "/usr/local/cuda")
    return [os.path.realpath(folder) if folder else "" for folder in folders]


def digest(path: str) -> str | None:
    """Return the digest of a regular file; None if it cannot be read."""
    try:
        if foreign.why_irregular(os.stat(path)):  # reading a pipe would wait, and some devices never end
            return None
        with open(path, "rb") as file:
            return manifests.digest(file.read())
    except (OSError, ValueError):  # ValueError: a name with a NUL
        return None
