"""The manifest: the one thing that the build and the run time share."""

# The build writes it, the run time and `aotcuda inspect` read it, and neither side imports the other. It is one JSON
# object in `manifest.json`, inside the data folder that lies beside the generated module:
#
#     mypkg/kernels.py            the generated module; it names the manifest and holds its SHA-256 and the index's
#     mypkg/kernels.pyi           the same for type checkers
#     mypkg/kernels.aotcuda/
#         manifest.json
#         index.json              of a long manifest: what a launch needs of it, and where in it the kernels are
#         in-place                only where nothing is generated, which would hold it: the manifest's SHA-256
#         kernels.fatbin          every image of the module's kernels (absent when it has none)
#         functions.fatbin        the exported device functions: LTOIR for each compute capability, and PTX for the
#                                 lowest, for links without link-time optimisation (likewise)
#         link0_name.fatbin ...   what those functions call, if they call foreign code
#         functions_cu13.fatbin   where several toolkits built it: the functions for linkers of that major version of
#         link0_name_cu13.fatbin  CUDA, and what those call (those above are for linkers of the other one)
#         mypkg_kernels.h         in C: prototypes of the exported functions, parameter blocks of the kernels
#         sources/                what the module links and the headers of that, for the JIT fallback
#
# An entry of the fallback's cache is such a data folder too, with a bare cubin, `kernels.cubin`, for its one image.
#
# `aotcuda.manifest.schema` declares the object's keys.

from __future__ import annotations

import os
import sys

import aotcuda
from aotcuda.manifest.data_folder import EDITABLE as EDITABLE
from aotcuda.manifest.data_folder import FILE_NAME as FILE_NAME
from aotcuda.manifest.data_folder import FOLDER_SUFFIX as FOLDER_SUFFIX
from aotcuda.manifest.data_folder import IN_PLACE as IN_PLACE
from aotcuda.manifest.data_folder import WHEEL as WHEEL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from aotcuda.errors import ManifestError
    from aotcuda.manifest.schema import Argument as Argument
    from aotcuda.manifest.schema import Callbacks as Callbacks
    from aotcuda.manifest.schema import File as File
    from aotcuda.manifest.schema import FixedLaunch as FixedLaunch
    from aotcuda.manifest.schema import Function as Function
    from aotcuda.manifest.schema import Head as Head
    from aotcuda.manifest.schema import Image as Image
    from aotcuda.manifest.schema import Index as Index
    from aotcuda.manifest.schema import Kernel as Kernel
    from aotcuda.manifest.schema import Linked as Linked
    from aotcuda.manifest.schema import Manifest as Manifest
    from aotcuda.manifest.schema import Overload as Overload
    from aotcuda.manifest.schema import Packed as Packed
    from aotcuda.manifest.schema import Parameter as Parameter
    from aotcuda.manifest.schema import Part as Part
    from aotcuda.manifest.schema import Raised as Raised
    from aotcuda.manifest.schema import Read as Read
    from aotcuda.manifest.schema import Rebuild as Rebuild
    from aotcuda.manifest.schema import Resources as Resources
    from aotcuda.manifest.schema import Size as Size
    from aotcuda.manifest.schema import Source as Source
    from aotcuda.manifest.schema import Toolchain as Toolchain

FORMAT = 1
"""Version of the object's shape. A reader takes its own version and older ones, and refuses newer ones.

It rises when what older readers make of the object would be wrong. Keys that they may ignore leave it as it is, and
what is in `upgrade` tells readers what their absence means.
"""

FLOOR = "0.1.0"
"""The oldest version of aotcuda whose run time reads what this one builds; manifests say it under `floor`.

It rises with `FORMAT`, and with whatever else an older run time cannot launch: another kind of parameter, say. It is
the version that first reads such manifests. `tests/unit/test_manifest.py` holds it against the kinds that there are.
"""

INDEX_NAME = "index.json"
SOURCES = "sources"


def overloaded(manifest: Manifest) -> dict[str, list[Function]]:
    """The functions that can be called by one name: those made from one Python function, if nothing has its name."""
    taken = {item["name"] for item in (*manifest["functions"], *manifest["kernels"])}
    found: dict[str, list[Function]] = {}
    for function in manifest["functions"]:
        found.setdefault(function["origin"].rpartition(":")[2], []).append(function)
    return {name: records for name, records in found.items() if len(records) > 1 and name not in taken}


def upgrade(manifest: dict[str, Any]) -> None:
    """Give a manifest of an older build the keys that have come since, with the values that their absence meant."""
    manifest.setdefault("floor", "0.1.0")
    manifest.setdefault("callbacks", [])
    manifest.setdefault("handle", "cuda.core.ObjectCode")
    manifest.setdefault("linked", [])
    manifest.setdefault("function_links", [])


def dump(manifest: Manifest) -> bytes:
    """The manifest as the bytes of its file; equal objects give equal bytes."""
    import json  # noqa: PLC0415 (only builds write manifests)

    return (json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=True) + "\n").encode()


def parse(data: bytes, where: str, *, sha256: str | None = None) -> Manifest:
    """Read and check a manifest's bytes.

    Args:
        data: The file's content.
        where: What to call the file in errors.
        sha256: The digest that the content must have, if it is known.

    Bytes without a digest can be anything, so those are also held against `aotcuda.manifest.schema`; else the digest
    vouches.

    Raises:
        ManifestError: The bytes were altered, are not a manifest, or need a newer aotcuda.
    """
    manifest = checked(data, where, sha256)
    upgrade(manifest)
    if sha256 is None:
        check_shape(manifest, where)
    result: Manifest = manifest
    return result


def checked(data: bytes, where: str, sha256: str | None) -> Any:
    """The JSON object that `data` is, of a format that can be read, and with the digest if one is given."""
    if len(data) > LARGEST or (sha256 is None and _is_bomb(data)):
        message = f"{where} is no manifest: {len(data):,} bytes are more than it may have, or hold too many values"
        raise aotcuda.errors.ManifestError(message)
    try:
        manifest = decoded(data)
        version = manifest["format"]
    except (ValueError, LookupError, TypeError, RecursionError):
        message = f"{where} is not a readable manifest; it was truncated or altered. Install the package again."
        raise aotcuda.errors.ManifestError(message) from None
    _check_floor(manifest, where)
    if isinstance(version, int) and version > FORMAT:
        number = str(version) if version < 1000 else "1000 or later"
        message = (
            f"{where} is of format {number}, newer than this aotcuda reads ({FORMAT}); upgrade it: "
            "pip install --upgrade aotcuda"
        )
        raise aotcuda.errors.ManifestError(message)
    if sha256 is not None and digest(data) != sha256:
        message = (
            f"{where} does not match the digest in the module that was generated with it; install the package again"
        )
        raise aotcuda.errors.ManifestError(message)
    return manifest


def _is_bomb(data: bytes) -> bool:
    """Whether there are so many values in it that it was made to fill the memory; builds write far fewer."""
    return data.count(b"{") + data.count(b"[") > _MOST_NESTED or data.count(b",") > _MOST_ITEMS


def _check_floor(manifest: dict[str, Any], where: str) -> None:
    floor = manifest.get("floor")
    if not isinstance(floor, str) or not floor.replace(".", "").isdecimal() or not floor.isascii():
        return  # an older build's, or altered
    if floor == FLOOR:
        return  # an import less, for every wheel of this version
    from aotcuda import version as versions  # noqa: PLC0415 (see above)

    if versions.is_older(versions.__version__, floor):
        message = (
            f"{where} needs aotcuda {floor[:40]} or later, and this is {versions.__version__}; upgrade it: "
            f"pip install --upgrade 'aotcuda>={floor[:40]}'"
        )
        raise aotcuda.errors.ManifestError(message)


def check_shape(manifest: object, where: str, *, index: bool = False) -> None:
    """Raise ManifestError unless an object, or an index, has the keys that `aotcuda.manifest.schema` declares."""
    from aotcuda.manifest import schema  # noqa: PLC0415 (what a generated module names by its digest needs none)

    try:
        problem = schema.index_problem(manifest) if index else schema.problem(manifest)
    except RecursionError:
        problem = "it is nested too deeply"
    if problem is not None:
        message = f"{where} was altered: {problem}. Install the package again."
        raise aotcuda.errors.ManifestError(message)


_NAMESPACE: Any = type(sys.implementation)  # types.SimpleNamespace, without that import
_PLAIN = _NAMESPACE(
    strict=True,
    object_hook=None,
    object_pairs_hook=None,
    array_hook=None,  # of Python 3.15
    parse_float=float,
    parse_int=int,
    parse_constant=float,
    memo=None,
)
"""What `_json.make_scanner` asks for: plain JSON, as `json.loads` reads it."""


def decoded(data: bytes) -> Any:
    """The JSON value that `data` is; ValueError or RecursionError if it is none."""
    # The package json imports re, which takes most of 7 ms. Its reader is a C function, and needs neither; where that
    # is not to be had, or says that something is wrong, the package decides.
    try:
        from _json import make_scanner  # noqa: PLC0415 (first-use imports pay for nothing)

        text = data.decode()
        value, end = make_scanner(_PLAIN)(text, 0)
        if not text[end:].strip():
            return value
    except (ImportError, AttributeError, TypeError, StopIteration, SystemError):
        pass  # SystemError: it wants to raise an exception of the package's, which nobody imported yet
    import json  # noqa: PLC0415

    return json.loads(data)


def read(path: str, *, sha256: str | None = None) -> Manifest:
    """Read and check the manifest in file `path`; errors as for `parse`, and ManifestError if it cannot be opened."""
    data = content(path, LARGEST)
    return parse(data, path, sha256=sha256)


class Outline:
    """What describes a module's images: a manifest, or of a long one what is asked for (`aotcuda.manifest.parts`).

    Attributes:
        head: What loading the images takes.
        names: The kernels' names, in the configuration's order.
    """

    __slots__ = ("_manifest", "_records", "head", "names")

    def __init__(self, manifest: Manifest) -> None:
        """Of a whole manifest."""
        self.head: Head = manifest
        self._manifest = manifest
        self._records = {kernel["name"]: kernel for kernel in manifest["kernels"]}
        self.names = [*self._records]

    def kernel(self, name: str) -> Kernel | None:
        """A kernel's record, None if there is no such kernel.

        Raises:
            ManifestError: The bytes that hold it were altered.
        """
        return self._records.get(name)

    def whole(self) -> Manifest:
        """The whole manifest.

        Raises:
            ManifestError: It was altered.
        """
        return self._manifest


def has_parts(head: Head) -> bool:
    """Whether a launch may take some of the fatbin's images, and not the whole, which callbacks are handed."""
    return not head["callbacks"] and all("packed" in image for image in head["images"])


def read_file(folder: str, file: File) -> bytes:
    """The content of a file that the manifest names, checked against its size and digest.

    Raises:
        ManifestError: It is missing, truncated or altered.
    """
    path = os.path.join(folder, file["path"])  # noqa: PTH118 (pathlib costs 10 ms at import)
    data = content(path, file["bytes"])
    check_file(data, file, path)
    return data


def content(path: str, size: int) -> bytes:
    """The content of a regular file, or of a larger one as much of it as shows that: one byte more than `size`."""
    try:
        # A pipe would be waited for until somebody writes to it.
        with open(path, "rb", opener=open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if is_regular(status.st_mode):
                return file.read(min(status.st_size, size) + 1)
        reason = IRREGULAR
    except OSError as error:
        reason = str(error.strerror)
    raise unreadable(path, reason)


def is_regular(mode: int) -> bool:
    """Whether a file of this mode is a regular one."""
    return mode & 0o170000 == 0o100000  # S_IFMT, S_IFREG


def unreadable(path: str, reason: str) -> ManifestError:
    """The error for a file that cannot be read."""
    archive = _file_above(path)
    if archive is not None:
        message = (
            f"{path} cannot be read, since {archive} is a file: packages with GPU code cannot run from a zip archive; "
            "install the package, or unpack the archive"
        )
        return aotcuda.errors.ManifestError(message)
    return aotcuda.errors.ManifestError(f"{path} cannot be read ({reason}); install the package again")


def _file_above(path: str) -> str | None:
    """The file that a path leads into as if it were a folder, None if there is none."""
    before, folder = path, os.path.dirname(path)  # noqa: PTH120 (as in read_file)
    while folder not in ("", before):
        if os.path.isfile(folder):  # noqa: PTH113 (likewise)
            return folder
        before, folder = folder, os.path.dirname(folder)  # noqa: PTH120 (likewise)
    return None


def open_without_waiting(path: str, flags: int) -> int:
    """As `os.open`; of a pipe that nobody writes to, too."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def check_file(data: bytes, file: File, where: str) -> None:
    """Check the content of a file that the manifest names; `where` is what errors call it.

    Raises:
        ManifestError: It is truncated or altered.
    """
    if len(data) != file["bytes"]:
        raise wrong_size(where, len(data), file["bytes"])
    if digest(data) != file["sha256"]:
        message = f"{where} was altered: its SHA-256 is not the manifest's; install the package again"
        raise aotcuda.errors.ManifestError(message)


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    # hashlib loads OpenSSL: 3 ms of an import that may take 5. Python's own implementation is there at once, and has a
    # third of the speed, so what is large goes to OpenSSL all the same, and everything where somebody has loaded it.
    if len(data) < _LARGE and "_hashlib" not in sys.modules:
        try:
            if sys.version_info < (3, 12):
                from _sha256 import sha256  # type: ignore[import-not-found]  # noqa: PLC0415 (paid for when needed)
            else:
                from _sha2 import sha256  # type: ignore[import-not-found]  # noqa: PLC0415 (its later name)
        except ImportError:
            from hashlib import sha256  # noqa: PLC0415
    else:
        from hashlib import sha256  # noqa: PLC0415
    text: str = sha256(data).hexdigest()
    return text


def wrong_size(where: str, found: int, size: int) -> ManifestError:
    """The error for a file of `found` bytes, or so many at least, where the manifest says `size`."""
    said = found if found < size else "more"  # of those no more was read
    message = f"{where} has {said} bytes where the manifest says {size}; install the package again"
    return aotcuda.errors.ManifestError(message)


LARGEST = 16 << 20
"""Bytes that a manifest may have: those of 200 kernels for five architectures have 350,000."""

_MOST_NESTED = 1_000_000
_MOST_ITEMS = 2_000_000
_LARGE = 1 << 20
IRREGULAR = "it is no regular file"
