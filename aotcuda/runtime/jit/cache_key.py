"""What a JIT build's result depends on: the key of its entry in the cache, and whether an entry is still good.

Neither asks a compiler, nor imports the user's module: the key has the digests of the sources as they are on disk now,
and versions are read from the names of installed packages' folders. What the key cannot foresee (a helper in a file
that was added since, another package, a data file or a variable that the import asked for) the entry's own manifest
lists, and it is good only while all of that is unchanged.
"""

from __future__ import annotations

import json
import os
import sys

from aotcuda import dependencies, frontends
from aotcuda import manifest as manifests
from aotcuda.runtime.jit.sources import Sources
from aotcuda.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.runtime.jit.cache_files import Artifact
    from aotcuda.runtime.jit.recipe import Recipe

FORMAT = 2
"""Grows when what is compiled changes though everything below stays the same."""

_TOOLCHAIN = ("cuda_", "nvidia_cuda_", "nvidia_nvjitlink", "nvidia_nvvm")
_TOOLKITS = ("CUDA_PATH", "CUDA_HOME")


def key(recipe: Recipe, kernel: str | None, signature: str | None, target: str) -> str:
    """The key of a case: hexadecimal, equal in every process for which the result is the same."""
    front_end = frontends.find(recipe.frontend)
    compilers = installed(front_end.distributions if front_end is not None else ())
    package = front_end.package if front_end is not None else ""
    variables = frontends.variables([recipe.frontend])
    parts = {
        "format": FORMAT,
        "aotcuda": __version__,
        "python": [sys.implementation.cache_tag, sys.prefix],
        "frontend": [recipe.frontend, compilers.get(package)],
        "compilers": compilers,
        "toolkit": _toolkit(),
        "module": recipe.module,
        "kernel": kernel,
        "signature": signature,
        "target": target,
        "where": recipe.package_root,
        "table": recipe.table,
        "sources": [[path, _digest(path)] for path in recipe.files],
        "variables": [dependencies.variable(name) for name in (dependencies.CACHE_KEY, *variables.kept)],
    }
    return manifests.digest(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode())


def is_good(artifact: Artifact, recipe: Recipe) -> bool:
    """Whether everything that an entry was built from is as it was."""
    return Sources(recipe.package_root, artifact.manifest).changed() is None


def installed(distributions: tuple[str, ...] = ()) -> dict[str, str]:
    """The versions of installed packages that take part in compiling, as their folders' names give them.

    Args:
        distributions: How the names of those begin that a front end from outside has.
    """
    found: dict[str, str] = {}
    own = [name for item in frontends.BUILT_IN.values() for name in item.distributions]
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


def _toolkit() -> list[object]:
    """A toolkit that is no Python package: where it is looked for, and what its own file of versions is."""
    found: list[object] = []
    for folder in (*(os.environ.get(name, "") for name in _TOOLKITS), "/usr/local/cuda"):
        path = os.path.realpath(folder) if folder else ""
        found.append([path, _digest(os.path.join(path, "version.json")) if path else None])
    return found


def _digest(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return manifests.digest(file.read())
    except OSError:
        return None
