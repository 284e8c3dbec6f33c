"""Names of the files in a module's data folder."""

from __future__ import annotations

FILE_NAME = "manifest.json"
FOLDER_SUFFIX = ".aotcuda"

IN_PLACE = "in-place"
"""The mark in the data folder of a source that is packaged in place: the digests of the manifests with its kernels.

Where a module is generated, that holds the digest; here nothing but data is. Packages have a mark too, in
`__init__.aotcuda`, which says that the build imported sources of theirs.
"""

WHEEL, EDITABLE = "aotcuda in-place 1 wheel", "aotcuda in-place 1 editable"
"""The first line of a mark; each of the others is the name of a module and the SHA-256 of its manifest.

Text, and not JSON: it is read whenever the source is imported, and `json` costs that import 7 ms.
"""
