"""Name the cache's entry of a request, and decide whether an entry is current.

The key depends on the digests of the sources, and on the versions of installed packages, read from the names of their
folders. Making it needs no compiler and no import of the user's modules. The entry's manifest lists the inputs that
only the build finds: helpers in other files, other packages, data files and variables that the import has read.
"""

from __future__ import annotations

import json
import sys

from ... import manifest as manifests
from ... import registry
from ...cache import compilers
from ...common import stamp
from ...version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...common.jit_build import Request, Result

FORMAT = 4
"""The version of the compiled code. Raise it if results change and nothing below does."""


def key(request: Request) -> str:
    """Return the hexadecimal key of a request; it is equal in all processes with the same result."""
    front_end = registry.find(request.frontend)
    versions = compilers.installed(front_end.all_distributions if front_end is not None else ())
    package = front_end.package if front_end is not None else ""
    variables = registry.variables([request.frontend])
    parts = {
        "format": FORMAT,
        "aotcuda": __version__,
        "python": [sys.implementation.cache_tag, sys.prefix],
        "frontend": [request.frontend, versions.get(package)],
        "compilers": versions,
        "toolkit": compilers.toolkit(),
        "module": request.module,
        "kernel": request.kernel,
        "signature": request.signature,
        "image": request.image,
        "target": request.target,
        "where": request.package_root,
        "table": request.table,
        "sources": [[path, compilers.digest(path)] for path in request.files],
        "variables": [stamp.variable(name) for name in (stamp.CACHE_KEY, *variables.kept)],
    }
    return manifests.digest(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode())


def is_current(result: Result, request: Request) -> bool:
    """Return True if the request would build the cached result now, and the driver loads it.

    It would not if inputs have changed. The driver may be too old for a result that a machine with a newer driver made.
    """
    general = result.manifest["toolchain"].get("cuda", "0.0")
    newest = max(
        int(image.get("cuda", general).partition(".")[0]) for image in manifests.kernel_images(result.manifest)
    )
    return newest <= request.driver[0] and stamp.from_manifest(result.manifest, request.package_root).changed() is None
