"""Read, check and write manifests: the JSON files that describe packaged modules to the run time."""

# A build writes the manifest; the run time and `aotcuda inspect` read it. Builder and run time do not import each
# other. A manifest is one JSON object in `manifest.json`, in the data folder of the generated module:
#
#     mypkg/kernels.py            the generated module: the manifest's path and SHA-256
#     mypkg/kernels.pyi           its stub for type checkers
#     mypkg/kernels.aotcuda/
#         manifest.json
#         in-place                only for a module in place: the manifest's SHA-256
#         pack.json               only for a pack: the kernels of other packages that it has
#         kernels.fatbin          the images of the kernels; absent without kernels
#         kernels-1.fatbin ...    images of kernels that were linked separately
#         functions.fatbin        the exported device functions: LTOIR for each compute capability, and PTX for the
#                                 lowest, for links without link-time optimisation; absent without functions
#         link0_name.fatbin ...   foreign code that the functions call
#         functions_cu13.fatbin   with several toolkits: the functions for linkers of CUDA 13
#         link0_name_cu13.fatbin  with several toolkits: foreign code for linkers of CUDA 13
#         tuning.json             for Triton in place: the configs that the autotuners of the source chose
#         mypkg_kernels.h         C prototypes of the exported functions, parameter blocks of the kernels
#         parts.json              of a split wheel: its images, and the packages with the others
#         sources/                linked files and their headers, for the JIT fallback
#
# An entry of the JIT cache is a data folder with a single cubin, `kernels.cubin`, instead of the fatbins.
# `aotcuda.manifest.schema` declares the keys.

from __future__ import annotations

import hashlib
import json
import os
import sys

from ..common import foreign
from ..common.data_folder import EDITABLE as EDITABLE
from ..common.data_folder import FILE_NAME as FILE_NAME
from ..common.data_folder import FOLDER_SUFFIX as FOLDER_SUFFIX
from ..common.data_folder import IN_PLACE as IN_PLACE
from ..common.data_folder import PACK as PACK
from ..common.data_folder import PARTS as PARTS
from ..common.data_folder import WHEEL as WHEEL
from ..common.data_folder import frozen_remedy
from ..version import __version__, is_older
from . import shared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeGuard

    from ..errors import ManifestError
    from .schema import Argument as Argument
    from .schema import Callbacks as Callbacks
    from .schema import Fatbin as Fatbin
    from .schema import File as File
    from .schema import FixedLaunch as FixedLaunch
    from .schema import Function as Function
    from .schema import Image as Image
    from .schema import Kernel as Kernel
    from .schema import LeftOut as LeftOut
    from .schema import Linked as Linked
    from .schema import Manifest as Manifest
    from .schema import Overload as Overload
    from .schema import Pack as Pack
    from .schema import Parameter as Parameter
    from .schema import Raised as Raised
    from .schema import Read as Read
    from .schema import Rebuild as Rebuild
    from .schema import Resources as Resources
    from .schema import Size as Size
    from .schema import Source as Source
    from .schema import Toolchain as Toolchain
    from .schema import Variable as Variable

FORMAT = 3
"""The version of the manifest's format. A reader accepts only this version.

Raise it when older readers would misread a manifest. Do not raise it for keys that older readers may ignore.
"""

FLOOR = "0.1.0"
"""The oldest aotcuda whose run time launches the builds of this version; manifests have it as `floor`.

Raise it with `FORMAT`, and when older run times cannot launch some builds, for example with a new kind of parameter.
`tests/unit/test_manifest.py` compares it with the kinds that exist.
"""

SOURCES = "sources"


def kernel_images(manifest: Manifest) -> list[Image]:
    """Return the images of all fatbins, fatbin by fatbin."""
    return [image for fatbin in manifest["fatbins"] for image in fatbin["images"]]


def kernel_targets(manifest: Manifest) -> list[str]:
    """Return the targets of the kernels, each once, in order."""
    return list(dict.fromkeys(image["arch"] for image in kernel_images(manifest)))


def fatbin_name(index: int) -> str:
    """Return the name of the file that builds give a fatbin."""
    return f"kernels-{index}.fatbin" if index else "kernels.fatbin"


def overload_groups(manifest: Manifest) -> dict[str, list[Function]]:
    """Group the device functions of each Python function by its name, unless an export has that name."""
    exports = {item["name"] for item in (*manifest["functions"], *manifest["kernels"])}
    groups: dict[str, list[Function]] = {}
    for function in manifest["functions"]:
        groups.setdefault(function["origin"].rpartition(":")[2], []).append(function)
    return {name: records for name, records in groups.items() if len(records) > 1 and name not in exports}


def dump(manifest: Manifest) -> bytes:
    """Return the content of the manifest's file; equal manifests give equal bytes."""
    return (json.dumps(shared.compact(manifest), indent=1, sort_keys=True, ensure_ascii=True) + "\n").encode()


def parse(data: bytes, where: str, *, sha256: str | None = None) -> Manifest:
    """Read and check a manifest.

    Without a digest the content is untrusted, so it is compared with the schema too.

    Args:
        data: The file's content.
        where: The file's name for errors.
        sha256: The digest that the content must have, if it is known.

    Raises:
        ManifestError: The content was altered, is no manifest, or is for another version of aotcuda.
    """
    if len(data) > LARGEST or (sha256 is None and _has_too_many_values(data)):
        message = f"{where} is no manifest: {len(data):,} bytes are more than it may have, or hold too many values"
        raise _error(message)
    try:
        manifest = json.loads(data)
        version = manifest["format"]
        if version == FORMAT:
            shared.expand(manifest)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        message = f"{where} is not a readable manifest; it was truncated or altered. Install the package again."
        raise _error(message) from None
    _check_version(manifest, version, where)
    if sha256 is not None and digest(data) != sha256:
        message = (
            f"{where} does not match the digest in the module that was generated with it; install the package again"
        )
        raise _error(message)
    if sha256 is None:
        _check_shape(manifest, where)
    result: Manifest = manifest
    return result


def _error(message: str) -> ManifestError:
    from ..errors import ManifestError  # noqa: PLC0415 (most launches need no errors)

    return ManifestError(message)


def _has_too_many_values(data: bytes) -> bool:
    """Return True for content that would take too much memory; builds write far fewer values."""
    return data.count(b"{") + data.count(b"[") > _MOST_NESTED or data.count(b",") > _MOST_ITEMS


def _check_version(manifest: dict[str, Any], version: object, where: str) -> None:
    """Raise ManifestError for a manifest of another format, or one that needs a newer aotcuda."""
    floor = manifest.get("floor")
    if _is_version(floor) and floor != FLOOR and is_older(__version__, floor):
        message = (
            f"{where} needs aotcuda {floor[:40]} or later, and this is {__version__}; upgrade it: "
            f"pip install --upgrade 'aotcuda>={floor[:40]}'"
        )
        raise _error(message)
    if type(version) is not int or version == FORMAT:
        return  # the schema refuses other types
    number = str(version) if 0 <= version < 1000 else "1000 or later"
    if version > FORMAT:
        message = (
            f"{where} has manifest format {number}, newer than this aotcuda reads ({FORMAT}); upgrade it: "
            "pip install --upgrade aotcuda"
        )
    else:
        message = (
            f"{where} has manifest format {number}, and this aotcuda reads format {FORMAT}; build the package again "
            f"with aotcuda {FLOOR} or later"
        )
    raise _error(message)


def _is_version(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and text.isascii() and text.replace(".", "").isdecimal()


def _check_shape(manifest: object, where: str) -> None:
    """Raise ManifestError unless an object has the keys that `aotcuda.manifest.schema` declares."""
    from . import schema  # noqa: PLC0415 (launches trust the digest)

    try:
        problem = schema.problem(manifest)
    except RecursionError:
        problem = "it is nested too deeply"
    if problem is not None:
        message = f"{where} was altered: {problem}. Install the package again."
        raise _error(message)


def read(path: str, *, sha256: str | None = None) -> Manifest:
    """Read and check the manifest in a file.

    Raises:
        ManifestError: The file cannot be read, or `parse` raises the error.
    """
    return parse(content(path, LARGEST), path, sha256=sha256)


def read_file(folder: str, file: File) -> bytes:
    """Read a file that the manifest names, and check its size and digest.

    Raises:
        ManifestError: It is missing, truncated or altered.
    """
    path = os.path.join(folder, file["path"])  # noqa: PTH118 (pathlib costs 10 ms at import)
    data = content(path, file["bytes"])
    check_file(data, file, path)
    return data


def content(path: str, size: int) -> bytes:
    """Read at most `size` bytes of a regular file, and one more byte if the file is longer.

    Raises:
        ManifestError: The file cannot be read, or is no regular file.
    """
    try:
        with open(foreign.open_regular(path), "rb") as file:  # noqa: PTH123 (a descriptor)
            return file.read(min(os.fstat(file.fileno()).st_size, size) + 1)
    except foreign.UnreadableError as error:
        reason = str(error)
    raise _unreadable(path, reason)


def _unreadable(path: str, reason: str) -> ManifestError:
    archive = _file_above(path)
    if archive is not None:
        message = (
            f"{path} cannot be read, since {archive} is a file: packages with GPU code cannot run from a zip archive; "
            "install the package, or unpack the archive"
        )
        return _error(message)
    above = os.path.join(os.path.dirname(path), "..", "..")  # noqa: PTH118, PTH120 (as in read_file)
    package = os.path.relpath(path, getattr(sys, "_MEIPASS", above)).partition(os.sep)[0]
    return _error(f"{path} {reason}; {frozen_remedy(package) or 'install the package again'}")


def _file_above(path: str) -> str | None:
    """Return the file that a path treats as a folder, or None."""
    child, folder = path, os.path.dirname(path)  # noqa: PTH120 (as in read_file)
    while folder not in ("", child):
        if os.path.isfile(folder):  # noqa: PTH113 (as above)
            return folder
        child, folder = folder, os.path.dirname(folder)  # noqa: PTH120 (as above)
    return None


def check_file(data: bytes, file: File, where: str) -> None:
    """Check the content of a file that the manifest names; errors begin with `where`.

    Raises:
        ManifestError: It is truncated or altered.
    """
    if len(data) != file["bytes"]:
        size = len(data) if len(data) < file["bytes"] else "more"  # `content` does not read the rest of a longer file
        message = f"{where} has {size} bytes where the manifest says {file['bytes']}; install the package again"
        raise _error(message)
    if digest(data) != file["sha256"]:
        message = f"{where} was altered: its SHA-256 is not the manifest's; install the package again"
        raise _error(message)


def digest(data: bytes) -> str:
    """Return the SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


LARGEST = 16 << 20
"""The most bytes that a manifest may have; 200 kernels for five targets take 350,000."""

_MOST_NESTED = 1_000_000
_MOST_ITEMS = 2_000_000
