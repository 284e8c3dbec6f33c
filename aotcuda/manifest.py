"""The manifest: the one thing that the build and the run time share.

The build writes it, the run time and `aotcuda inspect` read it, and neither side imports the other. It is one JSON
object in `manifest.json`, inside the data folder that lies beside the generated module:

    mypkg/kernels.py            the generated module; it names the manifest and holds its SHA-256 and the index's
    mypkg/kernels.pyi           the same for type checkers
    mypkg/kernels.aotcuda/
        manifest.json
        index.json              of a long manifest: what a launch needs of it, and where in it the kernels are
        in-place                only where nothing is generated, which would hold it: the manifest's SHA-256
        kernels.fatbin          every image of the module's kernels (absent when it has none)
        functions.fatbin        the exported device functions: LTOIR for each compute capability, and PTX for the
                                lowest, for links without link-time optimisation (likewise)
        link0_name.fatbin ...   what those functions call, if they call foreign code
        functions_cu13.fatbin   where several toolkits built it: the functions for linkers of that major version of
        link0_name_cu13.fatbin  CUDA, and what those call (those above are for linkers of the other one)
        mypkg_kernels.h         in C: prototypes of the exported functions, parameter blocks of the kernels
        sources/                what the module links and the headers of that, for the JIT fallback

An entry of the fallback's cache is such a data folder too, with a bare cubin, `kernels.cubin`, for its one image.

`aotcuda.manifest_shape` declares the object's keys.
"""

# ruff: noqa: PLC0414 (a name imported `as` itself is one that this module hands on, to mypy)

from __future__ import annotations

import os
import sys

from aotcuda import lazy_errors as errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from aotcuda.data_folder import EDITABLE as EDITABLE
    from aotcuda.data_folder import FILE_NAME as FILE_NAME
    from aotcuda.data_folder import FOLDER_SUFFIX as FOLDER_SUFFIX
    from aotcuda.data_folder import IN_PLACE as IN_PLACE
    from aotcuda.data_folder import WHEEL as WHEEL
    from aotcuda.errors import ManifestError
    from aotcuda.manifest_shape import Argument as Argument
    from aotcuda.manifest_shape import Callbacks as Callbacks
    from aotcuda.manifest_shape import File as File
    from aotcuda.manifest_shape import FixedLaunch as FixedLaunch
    from aotcuda.manifest_shape import Function as Function
    from aotcuda.manifest_shape import Head as Head
    from aotcuda.manifest_shape import Image as Image
    from aotcuda.manifest_shape import Index as Index
    from aotcuda.manifest_shape import Kernel as Kernel
    from aotcuda.manifest_shape import Linked as Linked
    from aotcuda.manifest_shape import Manifest as Manifest
    from aotcuda.manifest_shape import Overload as Overload
    from aotcuda.manifest_shape import Parameter as Parameter
    from aotcuda.manifest_shape import Part as Part
    from aotcuda.manifest_shape import Raised as Raised
    from aotcuda.manifest_shape import Read as Read
    from aotcuda.manifest_shape import Rebuild as Rebuild
    from aotcuda.manifest_shape import Resources as Resources
    from aotcuda.manifest_shape import Size as Size
    from aotcuda.manifest_shape import Source as Source
    from aotcuda.manifest_shape import Toolchain as Toolchain
else:

    def __getattr__(name: str) -> str:  # the names of files are for those who look for manifests; modules name theirs
        from aotcuda import data_folder  # noqa: PLC0415 (see above)

        return getattr(data_folder, name)


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

    Bytes without a digest can be anything, so those are also held against `aotcuda.manifest_shape`; else the digest
    vouches.

    Raises:
        ManifestError: The bytes were altered, are not a manifest, or need a newer aotcuda.
    """
    manifest = _checked(data, where, sha256)
    upgrade(manifest)
    if sha256 is None:
        _check_shape(manifest, where)
    result: Manifest = manifest
    return result


def parse_index(data: bytes, where: str, *, sha256: str | None = None) -> Index:
    """Read and check an index's bytes; arguments and errors as for `parse`."""
    index = _checked(data, where, sha256)
    if sha256 is None:
        _check_shape(index, where, index=True)
    result: Index = index
    return result


def _checked(data: bytes, where: str, sha256: str | None) -> Any:
    """The JSON object that `data` is, of a format that can be read, and with the digest if one is given."""
    if len(data) > LARGEST or (sha256 is None and _is_bomb(data)):
        message = f"{where} is no manifest: {len(data):,} bytes are more than it may have, or hold too many values"
        raise errors.ManifestError(message)
    try:
        manifest = _decoded(data)
        version = manifest["format"]
    except (ValueError, LookupError, TypeError, RecursionError):
        message = f"{where} is not a readable manifest; it was truncated or altered. Install the package again."
        raise errors.ManifestError(message) from None
    _check_floor(manifest, where)
    if isinstance(version, int) and version > FORMAT:
        number = str(version) if version < 1000 else "1000 or later"
        message = (
            f"{where} is of format {number}, newer than this aotcuda reads ({FORMAT}); upgrade it: "
            "pip install --upgrade aotcuda"
        )
        raise errors.ManifestError(message)
    if sha256 is not None and digest(data) != sha256:
        message = (
            f"{where} does not match the digest in the module that was generated with it; install the package again"
        )
        raise errors.ManifestError(message)
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
        raise errors.ManifestError(message)


def _check_shape(manifest: object, where: str, *, index: bool = False) -> None:
    from aotcuda import manifest_shape  # noqa: PLC0415 (what a generated module names by its digest needs none)

    try:
        problem = manifest_shape.index_problem(manifest) if index else manifest_shape.problem(manifest)
    except RecursionError:
        problem = "it is nested too deeply"
    if problem is not None:
        message = f"{where} was altered: {problem}. Install the package again."
        raise errors.ManifestError(message)


_NAMESPACE: Any = type(sys.implementation)  # types.SimpleNamespace, without that import
_PLAIN = _NAMESPACE(
    strict=True,
    object_hook=None,
    object_pairs_hook=None,
    parse_float=float,
    parse_int=int,
    parse_constant=float,
    memo=None,
)
"""What `_json.make_scanner` asks for: plain JSON, as `json.loads` reads it."""


def _decoded(data: bytes) -> Any:
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
    data = _content(path, LARGEST)
    return parse(data, path, sha256=sha256)


class Outline:
    """What describes a module's images, of which no more is taken apart than what is asked for.

    A launch needs `head` and the record of its kernel. Where the manifest has an index, `head` is the index's, and a
    kernel's record is read with the few that lie beside it. Nothing is taken that a digest does not vouch for: the
    generated module has the index's, and the index those of the parts.

    Attributes:
        head: What loading the images takes.
        names: The kernels' names, in the configuration's order.
    """

    __slots__ = ("_data", "_parts", "_records", "_sha256", "_where", "_whole", "head", "names")

    def __init__(self, index: Index, data: bytes | Kept, where: str, *, sha256: str | None = None) -> None:
        """Of a manifest's bytes, by its index.

        Args:
            index: The index.
            data: The content of the manifest's file, or the file.
            where: What to call it in errors.
            sha256: The digest of the content, if it is known; it is held against it where all of it is read.

        Raises:
            ManifestError: The content is not of the length that the index says.
        """
        if len(data) != index["bytes"]:
            message = f"{where} has {len(data)} bytes where its index says {index['bytes']}; install the package again"
            raise errors.ManifestError(message)
        self.head = index["head"]
        self._whole: Manifest | None = None
        self._records: dict[str, Kernel] = {}
        self._data = data
        self._where = where
        self._sha256 = sha256
        self._parts = {name: part for part in index["parts"] for name in part["names"]}
        self.names = [*self._parts]

    @classmethod
    def of(cls, manifest: Manifest) -> Outline:
        """Of a whole manifest."""
        index: Index = {"format": FORMAT, "floor": FLOOR, "bytes": 0, "head": manifest, "parts": []}
        self = cls(index, b"", manifest["module"])
        self._whole = manifest
        self._records = {kernel["name"]: kernel for kernel in manifest["kernels"]}
        self.names = [*self._records]
        return self

    def kernel(self, name: str) -> Kernel | None:
        """A kernel's record, None if there is no such kernel.

        Raises:
            ManifestError: The bytes that hold it were altered.
        """
        found = self._records.get(name)
        if found is None and name in self._parts:
            self._records.update(self._read(self._parts[name]))  # by several threads at once: all read the same
            found = self._records[name]
        return found

    def whole(self) -> Manifest:
        """The whole manifest.

        Raises:
            ManifestError: It was altered.
        """
        if self._whole is None:
            self._whole = parse(self._bytes(0, len(self._data)), self._where, sha256=self._sha256)
        return self._whole

    def _read(self, part: Part) -> dict[str, Kernel]:
        data = self._bytes(part["start"], part["end"])
        try:
            records = _decoded(b"[%s]" % data) if digest(data) == part["sha256"] else []
            found = {record["name"]: record for record in records}
        except (ValueError, LookupError, TypeError, RecursionError):
            found = {}
        if [*found] != part["names"]:
            message = (
                f"{self._where} was altered: what it says of {part['names'][0][:80]!a} is not what its index says; "
                "install the package again"
            )
            raise errors.ManifestError(message)
        return found

    def _bytes(self, start: int, end: int) -> bytes:
        return self._data[start:end] if isinstance(self._data, bytes) else self._data.read(start, end)


class Kept:
    """A regular file that is open: its parts can be read later on, also where another version was put in its place.

    Its length is in bytes.
    """

    __slots__ = ("_descriptor", "_identity", "_path", "_size")

    def __init__(self, path: str) -> None:
        """Open it.

        Raises:
            ManifestError: It cannot be opened, or is no regular file.
        """
        self._path = path
        self._descriptor = -1
        self._open()

    def __len__(self) -> int:
        return self._size

    def read(self, start: int, end: int) -> bytes:
        """Its bytes from `start` to `end`, fewer if there are no more.

        Raises:
            ManifestError: It cannot be read.
        """
        if not self._is_own():
            self._open()  # who becomes a daemon closes all files, and the next ones get their numbers
        try:
            from aotcuda import system  # noqa: PLC0415 (few manifests are so long that a part of one is read)

            part: bytes = system.read_at(self._descriptor, start, end - start)
        except OSError as error:
            raise _unreadable(self._path, str(error.strerror)) from None
        return part

    def __del__(self) -> None:
        if self._is_own():
            os.close(self._descriptor)

    def _open(self) -> None:
        try:
            self._descriptor = _open_without_waiting(self._path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            status = os.fstat(self._descriptor)
        except OSError as error:
            raise _unreadable(self._path, str(error.strerror)) from None
        self._identity = status.st_dev, status.st_ino
        self._size = status.st_size
        if not _is_regular(status.st_mode):
            raise _unreadable(self._path, _IRREGULAR)

    def _is_own(self) -> bool:
        """Whether the number is still that of the file."""
        try:
            status = os.fstat(self._descriptor)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity


def outline(path: str, *, sha256: str | None = None, index: str | None = None) -> Outline:
    """Read the manifest in file `path`, or its index and what that leaves to be read.

    The file stays open if it is long: another version may be installed in its place while the process runs.

    Args:
        path: The manifest's file.
        sha256: Its digest, if it is known.
        index: The digest of its index; None if it has none.

    Raises:
        ManifestError: As for `read`, of either file.
    """
    if index is None:
        return Outline.of(read(path, sha256=sha256))
    place = os.path.join(os.path.dirname(path), INDEX_NAME)  # noqa: PTH118, PTH120 (as in read_file)
    described = parse_index(_content(place, LARGEST), place, sha256=index)
    return Outline(described, Kept(path), path, sha256=sha256)


def read_file(folder: str, file: File) -> bytes:
    """The content of a file that the manifest names, checked against its size and digest.

    Raises:
        ManifestError: It is missing, truncated or altered.
    """
    path = os.path.join(folder, file["path"])  # noqa: PTH118 (pathlib costs 10 ms at import)
    data = _content(path, file["bytes"])
    check_file(data, file, path)
    return data


def _content(path: str, size: int) -> bytes:
    """The content of a regular file, or of a larger one as much of it as shows that: one byte more than `size`."""
    try:
        # A pipe would be waited for until somebody writes to it.
        with open(path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if _is_regular(status.st_mode):
                return file.read(min(status.st_size, size) + 1)
        reason = _IRREGULAR
    except OSError as error:
        reason = str(error.strerror)
    raise _unreadable(path, reason)


def _is_regular(mode: int) -> bool:
    return mode & 0o170000 == 0o100000  # S_IFMT, S_IFREG


def _unreadable(path: str, reason: str) -> ManifestError:
    return errors.ManifestError(f"{path} cannot be read ({reason}); install the package again")


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def check_file(data: bytes, file: File, where: str) -> None:
    """Check the content of a file that the manifest names; `where` is what errors call it.

    Raises:
        ManifestError: It is truncated or altered.
    """
    if len(data) != file["bytes"]:
        found = len(data) if len(data) < file["bytes"] else "more"  # of those no more was read
        message = f"{where} has {found} bytes where the manifest says {file['bytes']}; install the package again"
        raise errors.ManifestError(message)
    if digest(data) != file["sha256"]:
        message = f"{where} was altered: its SHA-256 is not the manifest's; install the package again"
        raise errors.ManifestError(message)


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


LARGEST = 16 << 20
"""Bytes that a manifest may have: those of 200 kernels for five architectures have 350,000."""

_MOST_NESTED = 1_000_000
_MOST_ITEMS = 2_000_000
_LARGE = 1 << 20
_IRREGULAR = "it is no regular file"
