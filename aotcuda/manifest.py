"""The manifest: the one thing that the build and the run time share.

The build writes it, the run time and `aotcuda inspect` read it, and neither side imports the other. It is one JSON
object in `manifest.json`, inside the data folder that lies beside the generated module:

    mypkg/kernels.py            the generated module; it names the manifest and holds its SHA-256
    mypkg/kernels.pyi           the same for type checkers
    mypkg/kernels.aotcuda/
        manifest.json
        kernels.fatbin          every image of the module's kernels (absent when it has none)
        functions.fatbin        the exported device functions: LTOIR for each compute capability, and PTX for the
                                lowest, for links without link-time optimisation (likewise)
        link0_name.fatbin ...   what those functions call, if they call foreign code
        mypkg_kernels.h         in C: prototypes of the exported functions, parameter blocks of the kernels
        sources/                what the module links and the headers of that, for the JIT fallback

An entry of the fallback's cache is such a data folder too, with a bare cubin, `kernels.cubin`, for its one image.

The classes below give the object's shape. All numbers are in bytes unless they say otherwise.
"""

from __future__ import annotations

import os

from aotcuda.errors import ManifestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, NotRequired, TypedDict

    class File(TypedDict):
        """A file of the data folder."""

        path: str
        bytes: int
        sha256: str

    class Image(TypedDict):
        """One entry of `kernels.fatbin` or `functions.fatbin`, in file order, as it was before it was packed.

        Packing keeps machine code byte for byte; it strips PTX of comments and changes the form of LTOIR.
        """

        arch: str  # "sm_90", "compute_75"; LTOIR carries the sm_ form of the capability it was compiled for
        kind: Literal["sass", "ptx", "ltoir"]
        bytes: int
        sha256: str
        min_driver: NotRequired[str | None]  # of machine code and PTX: the lowest that loads it; None if not known

    class Parameter(TypedDict):
        """One Python argument of a kernel, and how it lies in the kernel's parameter block.

        `kind` says which other keys are there:

        - `scalar`: `format` is its `struct` character: `?bBhHiIqQefd` (`e` is float16; a bool takes one byte).
        - `complex`: two floats, real then imaginary; `format` is `f` or `d`.
        - `pointer`: an address as a 64-bit integer.
        - `datetime`: a 64-bit integer counted in the unit of `dtype`, NumPy's `<M8[ns]` or `<m8[ms]`.
        - `record`: the address of one element of type `dtype` on the GPU.
        - `array`: `words` are 64-bit little-endian integers from `offset` on, each named for what it holds: `zero`,
          `items` (number of elements), `itemsize`, `data` (address), `shape0`..., `stride0`... (bytes), or `step0`...
          (strides in elements). Which words, and in what order, is the front end's affair.
        - `type`: zeros in the place of a type, `dtype`; a 64-bit word with `words`, else of the size of a number of it.
        - `tuple`: `members` are parameters in their turn; each has its own offset.
        """

        name: str
        type: str  # as the front end prints it
        kind: Literal["scalar", "complex", "pointer", "datetime", "record", "array", "type", "tuple"]
        offset: int  # of its first byte in the parameter block
        format: NotRequired[str]
        dtype: NotRequired[str]  # NumPy's type string, "<f4"; structured ones as in aotcuda.dtypes; "bfloat16"
        ndim: NotRequired[int]
        layout: NotRequired[Literal["C", "F", "A"]]  # C and F: contiguous in that order; A: any strides
        readonly: NotRequired[bool]  # array: the kernel was compiled for a read-only array
        aligned: NotRequired[bool]
        words: NotRequired[list[str]]
        members: NotRequired[list[Parameter]]

    class Resources(TypedDict):
        """What one kernel takes on one architecture, as the machine code itself states it."""

        registers: int  # a thread
        shared: int  # static, a block
        local: int | None  # a thread; None when the code itself cannot say (recursion)
        constant: int

    class Raised(TypedDict):
        """What an error code means that a debug kernel leaves behind when it raises."""

        code: int
        exception: str  # the name of a Python exception
        arguments: str
        function: str
        file: str
        line: int

    class Overload(TypedDict):
        """A kernel for one signature: one entry point in every image."""

        signature: str
        symbol: str
        parameters: list[Parameter]
        parameter_bytes: int  # size of the whole parameter block
        cooperative: bool
        launch_bounds: list[int]  # maximum threads a block, minimum blocks a multiprocessor, maximum blocks a cluster
        carveout: int | None  # preferred share of shared memory in percent, -1 for the driver's default
        resources: dict[str, Resources]  # by arch, for each SASS image
        raises: NotRequired[list[Raised]]  # debug builds: the kernel stores a code when it raises

    class Kernel(TypedDict):
        """A kernel as users launch it."""

        name: str
        origin: str  # "mypkg._kernels:axpy"
        overloads: list[Overload]

    class Function(TypedDict):
        """An exported device function."""

        name: str  # its symbol
        origin: str
        signature: str
        abi: Literal["c"]
        prototype: str
        records: NotRequired[dict[str, object]]  # each `Record(...)` in the signature, as `numpy.dtype` takes it

    class Callbacks(TypedDict):
        """Functions to call with the loaded module, by importable name (`mypkg._hooks:upload`)."""

        setup: str | None  # once after loading, in each context
        teardown: str | None  # once before unloading, likewise
        origin: str  # the linked item that they belong to

    class Linked(TypedDict):
        """Something foreign that was linked into the images."""

        name: str  # a file's path from the project's folder, or the name of an object in memory
        symbols: list[str]  # the functions that it defines, as far as they can be told

    class Source(TypedDict):
        """A file of the project that the build read; its path is relative to the folder that holds the package."""

        path: str
        sha256: str

    class Read(TypedDict):
        """What a build asked of the machine, and was told; `aotcuda.dependencies` has the questions."""

        ask: str
        path: str  # of the project: relative to the folder that holds the package; of others: absolute
        answer: str | bool | list[int] | None

    class Rebuild(TypedDict):
        """What the JIT fallback needs to build the module once more: for another GPU, or for other types."""

        table: dict[str, object]  # `[tool.aotcuda]` as the project has it, with this module alone
        names: dict[str, list[str]]  # every module that the wheel gains, with its names
        root: str  # the folder that paths in the table are relative to, relative to the folder that holds the package
        files: list[File]  # what lies in it, for this purpose

    class Manifest(TypedDict):
        """The whole object."""

        format: int
        generator: str  # "aotcuda 0.1.0"
        module: str  # "mypkg.kernels"
        frontend: str
        toolchain: dict[str, str]  # component -> version
        min_driver: str | None  # the lowest driver whose CUDA can load the images: "580.65"
        load: Literal["import", "first-use"]
        fallback: Literal["jit", "error"]
        options: dict[str, object]
        files: dict[Literal["kernels", "functions", "header"], File]
        images: list[Image]  # of the kernels
        ltoir: list[Image]  # of the functions: LTOIR for each capability, then one PTX
        kernels: list[Kernel]
        functions: list[Function]
        callbacks: list[Callbacks]
        handle: str  # what callbacks are given: "cuda.core.ObjectCode"
        linked: list[Linked]
        function_links: list[File]  # what has to be linked together with the exported functions
        sources: list[Source]
        rebuild: NotRequired[Rebuild]  # where `fallback` is `jit`
        reads: NotRequired[list[Read]]  # editable installs, and the fallback's cache: what else the images depend on
        variables: NotRequired[dict[str, str | None]]  # likewise: SHA-256 of environment variables, None if not set


FORMAT = 1
"""Version of the object's shape. A reader takes its own version and older ones, and refuses newer ones."""

FILE_NAME = "manifest.json"
FOLDER_SUFFIX = ".aotcuda"
SOURCES = "sources"


def overloaded(manifest: Manifest) -> dict[str, list[Function]]:
    """The functions that can be called by one name: those made from one Python function, if nothing has its name."""
    taken = {item["name"] for item in (*manifest["functions"], *manifest["kernels"])}
    found: dict[str, list[Function]] = {}
    for function in manifest["functions"]:
        found.setdefault(function["origin"].rpartition(":")[2], []).append(function)
    return {name: records for name, records in found.items() if len(records) > 1 and name not in taken}


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
        ManifestError: The bytes were altered, are not a manifest, or are of a newer format version.
    """
    if len(data) > LARGEST or (sha256 is None and _is_bomb(data)):
        message = f"{where} is no manifest: {len(data):,} bytes are more than it may have, or hold too many values"
        raise ManifestError(message)
    try:
        manifest = _decoded(data)
        version = manifest["format"]
    except (ValueError, LookupError, TypeError, RecursionError):
        message = f"{where} is not a readable manifest; it was truncated or altered. Install the package again."
        raise ManifestError(message) from None
    if isinstance(version, int) and version > FORMAT:
        number = str(version) if version < 1000 else "1000 or later"
        message = (
            f"{where} is of format {number}, newer than this aotcuda reads ({FORMAT}); upgrade it: "
            "pip install --upgrade aotcuda"
        )
        raise ManifestError(message)
    if sha256 is not None and digest(data) != sha256:
        message = (
            f"{where} does not match the digest in the module that was generated with it; install the package again"
        )
        raise ManifestError(message)
    missing = sorted(_KEYS - manifest.keys())
    if missing:
        message = f"{where} lacks {', '.join(missing)}; it was altered. Install the package again."
        raise ManifestError(message)
    if sha256 is None:
        _check_shape(manifest, where)
    result: Manifest = manifest
    return result


def _is_bomb(data: bytes) -> bool:
    """Whether there are so many values in it that it was made to fill the memory; builds write far fewer."""
    return data.count(b"{") + data.count(b"[") > _MOST_NESTED or data.count(b",") > _MOST_ITEMS


def _check_shape(manifest: object, where: str) -> None:
    from aotcuda import manifest_shape as shape  # noqa: PLC0415 (what a generated module names by its digest needs none)

    try:
        problem = shape.problem(manifest)
    except RecursionError:
        problem = "it is nested too deeply"
    if problem is not None:
        message = f"{where} was altered: {problem}. Install the package again."
        raise ManifestError(message)


class _Decoding:
    """What `_json.make_scanner` asks for: plain JSON, as `json.loads` reads it."""

    strict = True
    object_hook = object_pairs_hook = memo = None
    parse_float = float
    parse_int = int
    parse_constant = float


def _decoded(data: bytes) -> Any:
    """The JSON value that `data` is; ValueError or RecursionError if it is none."""
    # The package json imports re, which takes most of 7 ms. Its reader is a C function, and needs neither; where that
    # is not to be had, or says that something is wrong, the package decides.
    try:
        from _json import make_scanner  # noqa: PLC0415 (first-use imports pay for nothing)

        text = data.decode()
        value, end = make_scanner(_Decoding())(text, 0)  # type: ignore[arg-type]
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
            if status.st_mode & 0o170000 == 0o100000:  # S_IFMT, S_IFREG
                return file.read(min(status.st_size, size) + 1)
        reason = "it is no regular file"
    except OSError as error:
        reason = str(error.strerror)
    message = f"{path} cannot be read ({reason}); install the package again"
    raise ManifestError(message)


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
        raise ManifestError(message)
    if digest(data) != file["sha256"]:
        message = f"{where} was altered: its SHA-256 is not the manifest's; install the package again"
        raise ManifestError(message)


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    # hashlib loads OpenSSL: 3 ms of an import that may take 15. Python's own implementation is there at once, and
    # slower, so what is large goes to OpenSSL all the same.
    if len(data) < _LARGE:
        try:
            from _sha2 import sha256  # type: ignore[import-not-found]  # noqa: PLC0415 (paid for when it is needed)
        except ImportError:
            try:
                from _sha256 import sha256  # type: ignore[import-not-found]  # noqa: PLC0415 (Python 3.11's name)
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
_KEYS = frozenset(
    [
        "format",
        "generator",
        "module",
        "frontend",
        "toolchain",
        "min_driver",
        "load",
        "fallback",
        "options",
        "files",
        "images",
        "ltoir",
        "kernels",
        "functions",
        "sources",
    ]
)
