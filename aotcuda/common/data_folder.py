"""Names of the files in a module's data folder, and the format of in-place marks."""

# The import of a source that is packaged in place reads a mark and no manifest. So it imports this module, and not
# `aotcuda.manifest`, which imports `json` and `hashlib`.

from __future__ import annotations

import os
import sys

FILE_NAME = "manifest.json"
FOLDER_SUFFIX = ".aotcuda"

IN_PLACE = "in-place"
"""The mark in the data folder of a source that is packaged in place.

It has the digests of the manifests with kernels of the source. A package has a mark in `__init__.aotcuda` if the build
imported sources of the package.
"""

PACK = "pack.json"
"""The file in the data folder of a pack: it lists the kernels of other packages that the pack's modules have."""

PARTS = "parts.json"
"""The file in the data folder of a module whose wheel was split (`aotcuda.runtime.images.parts`)."""

WHEEL, EDITABLE = "aotcuda in-place 1 wheel", "aotcuda in-place 1 editable"
"""The first line of a mark. Each following line is the name of a module and the SHA-256 of its manifest.

A mark is text, since `json` costs 7 ms at the import of the source.
"""


def linked_file(path: str) -> str:
    """Return the file of the source tree that a symbolic link of an editable install leads to.

    Some editable installs have links to files, in folders without the data files. Links to folders are not resolved,
    since a package in the source tree may be one.
    """
    while os.path.islink(path):
        path = os.path.normpath(os.path.join(os.path.realpath(os.path.dirname(path)), os.readlink(path)))
    return path


def frozen_remedy(package: str) -> str | None:
    """Return the option that adds a package's data folders to a frozen application; None if Python is not frozen."""
    if not getattr(sys, "frozen", False) and not hasattr(sys.modules.get("__main__"), "__compiled__"):
        return None
    return (
        f"this application was frozen without the package's data: add --collect-data {package} to PyInstaller's "
        f"command, or --include-package-data={package} to Nuitka's"
    )
