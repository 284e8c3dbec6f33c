"""Which compilers are installed, as far as it shows without importing one: what caches depend on beside sources."""

from __future__ import annotations

import os
import sys

from aotcuda import manifest as manifests
from aotcuda import registry
from aotcuda.common import foreign

_TOOLCHAIN = ("cuda_", "nvidia_cuda_", "nvidia_nvjitlink", "nvidia_nvvm", "nvidia_nvfatbin")
_TOOLKITS = ("CUDA_PATH", "CUDA_HOME")


def installed(distributions: tuple[str, ...] = ()) -> dict[str, str]:
    """The versions of installed packages that take part in compiling, as their folders' names give them.

    Args:
        distributions: How the names of those begin that a front end from outside has.
    """
    found: dict[str, str] = {}
    own = [name for item in registry.BUILT_IN.values() for name in item.distributions]
    taken = (*_TOOLCHAIN, *own, *distributions)
    for entry in sys.path:
        try:
            names = os.listdir(entry or ".")
        except OSError:
            continue
        for name in names:
            if name.endswith(".dist-info") and name.lower().startswith(taken):
                package, _, version = name.removesuffix(".dist-info").partition("-")
                found.setdefault(package.lower(), version)
    return found


def toolkit() -> list[object]:
    """A toolkit that is no Python package: where it is looked for, and what its own file of versions is."""
    return [[path, digest(os.path.join(path, "version.json")) if path else None] for path in _toolkit_folders()]


def machine_toolkits() -> list[str]:
    """The folders of toolkits that are no Python packages, as far as they are there."""
    return [path for path in dict.fromkeys(_toolkit_folders()) if os.path.isdir(path)]


def _toolkit_folders() -> list[str]:
    """Where a toolkit that is no Python package is looked for; empty for a variable that is not set."""
    folders = (*(os.environ.get(name, "") for name in _TOOLKITS), "/usr/local/cuda")
    return [os.path.realpath(folder) if folder else "" for folder in folders]


def digest(path: str) -> str | None:
    """Return the digest of a regular file; None if it cannot be read."""
    try:
        if foreign.irregular(os.stat(path)):  # a pipe would be waited for, and some devices never end
            return None
        with open(path, "rb") as file:
            return manifests.digest(file.read())
    except (OSError, ValueError):  # ValueError: a name with a NUL
        return None
