"""What a JIT build's result depends on: the key of its entry in the cache, and whether an entry is still good.

Neither asks a compiler, nor imports the user's module: the key has the digests of the sources as they are on disk now,
and versions are read from the names of installed packages' folders. What the key cannot foresee (a helper in a file
that was added since, another package, a data file or a variable that the import asked for) the entry's own manifest
lists, and it is good only while all of that is unchanged.
"""

from __future__ import annotations

import json
import sys

from aotcuda import manifest as manifests
from aotcuda import registry
from aotcuda.cache import compilers
from aotcuda.common import dependencies
from aotcuda.runtime.jit.sources import Sources
from aotcuda.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.runtime.jit.cache_files import Artifact
    from aotcuda.runtime.jit.recipe import Recipe

FORMAT = 2
"""Grows when what is compiled changes though everything below stays the same."""


def key(recipe: Recipe, kernel: str | None, signature: str | None, target: str) -> str:
    """The key of a case: hexadecimal, equal in every process for which the result is the same."""
    front_end = registry.find(recipe.frontend)
    found = compilers.installed(front_end.distributions if front_end is not None else ())
    package = front_end.package if front_end is not None else ""
    variables = registry.variables([recipe.frontend])
    parts = {
        "format": FORMAT,
        "aotcuda": __version__,
        "python": [sys.implementation.cache_tag, sys.prefix],
        "frontend": [recipe.frontend, found.get(package)],
        "compilers": found,
        "toolkit": compilers.toolkit(),
        "module": recipe.module,
        "kernel": kernel,
        "signature": signature,
        "target": target,
        "where": recipe.package_root,
        "table": recipe.table,
        "sources": [[path, compilers.digest(path)] for path in recipe.files],
        "variables": [dependencies.variable(name) for name in (dependencies.CACHE_KEY, *variables.kept)],
    }
    return manifests.digest(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode())


def is_good(artifact: Artifact, recipe: Recipe) -> bool:
    """Whether everything that an entry was built from is as it was."""
    return Sources(recipe.package_root, artifact.manifest).changed() is None
