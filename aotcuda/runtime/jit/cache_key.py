"""Name the cache's entry of a request, and decide whether an entry is current.

The key has the digests of the sources, and the versions of installed packages by their folders' names; it uses no
compiler and imports no module of the user. What the key cannot foresee (a helper in a new file, another package, a data
file or a variable that the import read) is in the entry's manifest.
"""

from __future__ import annotations

import json
import sys

from aotcuda import manifest as manifests
from aotcuda import registry
from aotcuda.cache import compilers
from aotcuda.common import stamp
from aotcuda.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.common.jit_build import Request, Result

FORMAT = 3
"""Grows when what is compiled changes though everything below stays the same."""


def key(request: Request) -> str:
    """Return the key of a request: hexadecimal, and equal in every process for which the result is the same."""
    front_end = registry.find(request.frontend)
    found = compilers.installed(front_end.all_distributions if front_end is not None else ())
    package = front_end.package if front_end is not None else ""
    variables = registry.variables([request.frontend])
    parts = {
        "format": FORMAT,
        "aotcuda": __version__,
        "python": [sys.implementation.cache_tag, sys.prefix],
        "frontend": [request.frontend, found.get(package)],
        "compilers": found,
        "toolkit": compilers.toolkit(),
        "module": request.module,
        "kernel": request.kernel,
        "signature": request.signature,
        "target": request.target,
        "where": request.package_root,
        "table": request.table,
        "sources": [[path, compilers.digest(path)] for path in request.files],
        "variables": [stamp.variable(name) for name in (stamp.CACHE_KEY, *variables.kept)],
    }
    return manifests.digest(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode())


def is_current(result: Result, request: Request) -> bool:
    """Return True if a cached result is what the request would build now, and the driver loads it.

    A process with a newer driver may have made it, and its inputs may have changed since.
    """
    general = result.manifest["toolchain"].get("cuda", "0.0")
    newest = max(int(image.get("cuda", general).partition(".")[0]) for image in result.manifest["images"])
    return newest <= request.driver[0] and stamp.of_manifest(result.manifest, request.package_root).changed() is None
