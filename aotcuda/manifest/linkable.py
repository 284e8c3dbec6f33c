"""The kinds of link items, with the suffixes of their files and the names of their classes in Numba."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from . import File, Manifest

    Kind = Literal["ltoir", "ptx", "cubin", "fatbin", "object", "library", "cu"]

_TABLE: tuple[tuple[Kind, str, str], ...] = (
    ("cu", ".cu", "CUSource"),
    ("ptx", ".ptx", "PTXSource"),
    ("cubin", ".cubin", "Cubin"),
    ("fatbin", ".fatbin", "Fatbin"),
    ("ltoir", ".ltoir", "LTOIR"),
    ("object", ".o", "Object"),
    ("library", ".a", "Archive"),
)

KINDS: dict[str, Kind] = {suffix: kind for kind, suffix, _ in _TABLE}
"""The kind of a file, by its suffix."""

SUFFIXES: dict[str, str] = {kind: suffix for kind, suffix, _ in _TABLE}

CLASSES: dict[str, Kind] = {name: kind for kind, _, name in _TABLE}
"""The kind of a link item of Numba, by the name of its class (`numba.cuda.cudadrv.linkable_code`)."""

CLASS_NAMES: dict[str, str] = {suffix: name for _, suffix, name in _TABLE}
"""The class of a link item, by the suffix of its file."""


def files_to_link(manifest: Manifest, cuda: int) -> list[File]:
    """Return the files to link for a module's device functions: the functions, then their callees.

    LTOIR is for linkers of the major version of CUDA that wrote it. If the module has no LTOIR for this version, return
    its other files: the linker may accept them, or report an error.

    Args:
        manifest: The module's manifest.
        cuda: The major version of CUDA of the linker.
    """
    for other in manifest.get("toolchains", ()):
        if other["versions"]["cuda"].startswith(f"{cuda}.") and "functions" in other:
            return [other["functions"], *other["function_links"]]
    functions = manifest["files"].get("functions")
    return [functions, *manifest["function_links"]] if functions is not None else []
