"""Name the cache's entry of a request, and decide whether an entry is current.

The key has the digests of the sources, and the versions of installed packages from their folders' names. It needs no
compiler and no import of the user's modules. Inputs that only the build finds (helpers in other files, other packages,
data files and variables that the import read) are in the entry's manifest.
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
"""The version of the compiled code. Raise it if results change and nothing below does."""


def key(request: Request) -> str:
    """Return the hexadecimal key of a request; it is equal in all processes with the same result."""
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
    """Return True if the request would build the cached result now, and the driver loads it.

    The inputs may have changed, and a process with a newer driver may have made the result.
    """
    general = result.manifest["toolchain"].get("cuda", "0.0")
    newest = max(int(image.get("cuda", general).partition(".")[0]) for image in result.manifest["images"])
    return newest <= request.driver[0] and stamp.of_manifest(result.manifest, request.package_root).changed() is None
