"""Declare the keys of manifests as types, and check objects against them.

mypy checks readers and writers against these classes, and the check of objects is made from them, so each key is
declared only here. In a program manifests are plain dicts, and launches do not import this module: the run time trusts
manifests whose SHA-256 is in the generated module. `aotcuda inspect` reads any manifest and checks it.

All numbers are in bytes unless noted otherwise. Numbers without another bound are from 0 to 2**63 - 1.
"""

from __future__ import annotations

import itertools
import re
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from ..common import declared
from ..common.declared import Integer, OneOf, Text, Whole
from ..common.scalar_types import NAMED
from . import constants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


_DEEPEST = 16
"""The most lists in each other of a constant."""


class Constant:
    """A constant as `constants.encode` returns it."""

    name = 'a number, a string, true or false, null, {"float": "inf"}, or a list of these'

    def fits(self, value: object, depth: int = 0) -> bool:
        """Return True if a value has one of these types."""
        if isinstance(value, list):
            return depth < _DEEPEST and all(self.fits(item, depth + 1) for item in value)
        return value is None or isinstance(constants.decode(value), int | float | str)


Arch = Annotated[str, Text(r"(sm|compute)_\d{2,3}[af]?", "a target such as sm_90")]
Version = Annotated[str, Text(r"\d{1,4}(\.\d{1,4}){0,3}", "a version")]
Dtype = Annotated[str, Text("|".join(NAMED) + r"|[<>|=][A-Za-z]\d{1,9}([\[{].*)?", "a type string")]
Format = Annotated[str, OneOf(*"?bBhHiIqQefd")]
Signed = Annotated[int, Integer(2**63, start=-(2**63))]
Value = Annotated[int | float | str | bool | dict[str, str] | list[Any] | None, Constant()]
Block = Annotated[int, Integer(1 << 16)]
"""An offset in the parameter block, or its size; the driver accepts 32,764 bytes."""


class File(TypedDict):
    """A file of the data folder."""

    path: str
    bytes: Whole
    sha256: str


class Image(TypedDict):
    """One entry of a fatbin, before packing.

    Packing keeps the bytes of machine code, strips comments from PTX, and changes the form of LTOIR.
    """

    arch: Arch  # "sm_90", "compute_75"; for LTOIR the sm_ form of its capability
    kind: Literal["sass", "ptx", "ltoir"]
    bytes: Whole
    sha256: str
    min_driver: NotRequired[Version | None]  # of machine code and PTX: the lowest driver that loads it; None if unknown
    cuda: NotRequired[Version]  # its CUDA version; absent: `toolchain["cuda"]`
    linker: NotRequired[Version]  # the `nvjitlink` that made it; absent: `toolchain["nvjitlink"]`
    absent: NotRequired[str]  # only in memory, for a split wheel: the reason that the image is missing, and the remedy
    path: NotRequired[str]  # only in memory: the fatbin that has the image


class Fatbin(TypedDict):
    """A file with the code of some kernels: one image for each target.

    Variables and callbacks belong to a fatbin, and the driver loads each fatbin as a library of its own.
    """

    file: File
    images: list[Image]  # in file order
    name: NotRequired[str]  # the files of its kernels, or another name; absent if the module has one fatbin


Index = Annotated[int, Integer(1 << 16)]
"""The index of a fatbin in `fatbins` of the manifest."""


class Variable(TypedDict):
    """A device variable that programs can read and write."""

    symbol: str
    fatbin: Index
    bytes: NotRequired[Whole]


class Size(TypedDict):
    """A parameter of a kernel that launches do not pass: a number that they read from an array."""

    name: str
    type: str  # as the front end prints it
    word: str  # a word as in `words` of an array
    format: Format
    offset: Block
    divisor: NotRequired[Annotated[int, Integer(1 << 16, start=1)]]  # its required divisor
    least: NotRequired[Annotated[int, Integer(1)]]  # 0: it must not be negative


class TensorMap(TypedDict):
    """The compiled part of a tensor map (`CUtensorMap`)."""

    element: Annotated[int, Integer(16)]  # CUtensorMapDataType
    bytes: Annotated[int, Integer(17, start=1)]  # of an element
    swizzle: Annotated[int, Integer(16)]  # CUtensorMapSwizzle
    box: list[Whole]  # elements of one copy, in the order of the shape
    padded: bool  # padded 4-bit elements: the last extent counts twice


class Parameter(TypedDict):
    """One Python argument of a kernel, and its form in the kernel's parameter block.

    `kind` determines the other keys:

    - `scalar`: `format` is its `struct` character: `?bBhHiIqQefd` (`e` is float16; a bool takes one byte).
    - `complex`: two floats, real then imaginary; `format` is `f` or `d`.
    - `pointer`: an address as a 64-bit integer.
    - `datetime`: a 64-bit integer counted in the unit of `dtype`, NumPy's `<M8[ns]` or `<m8[ms]`.
    - `record`: the address of one element of type `dtype` on the GPU.
    - `array`: `words` are 64-bit little-endian integers from `offset` on, named by their content: `zero`, `items`
      (number of elements), `itemsize`, `data` (address), `shape0`..., `stride0`... (bytes), or `step0`... (strides in
      elements). The front end chooses the words and their order.
    - `buffer`: the address of a C-contiguous array of any number of dimensions, whose elements are `dtype`.
    - `struct`: the bytes of one element of type `dtype`, `bytes` of them.
    - `type`: zeros in place of a type, `dtype`; one 64-bit word with `words`, else the size of one element.
    - `tuple`: `members` are parameters; each has its own offset.
    - `elements`: the address of an array's first element, of type `dtype`, for any shape and strides.
    - `number`: as `scalar`; of several overloads, the first that accepts the number is launched.
    - `constant`: compiled into the kernel, without bytes in the block. It accepts the value `value`, and None if it is
      `optional`.
    - `descriptor`: a tensor descriptor of Triton's with elements `dtype` and the block shape `block`. `places` are the
      offsets of its parameters: a tensor map with `tensor_map`, else address, shape, strides and one or two flags; in
      both cases shape and strides follow.

    An `array` or a `buffer` may have `sizes`: parameters of the kernel that launches do not pass.
    """

    name: str
    type: str  # as the front end prints it
    kind: Literal[
        "scalar",
        "complex",
        "pointer",
        "datetime",
        "record",
        "array",
        "type",
        "tuple",
        "elements",
        "number",
        "constant",
        "buffer",
        "struct",
        "small",
        "descriptor",
    ]
    offset: Block  # of its first byte in the parameter block
    format: NotRequired[Format]
    dtype: NotRequired[Dtype]  # NumPy's type string, "<f4"; structured ones as in aotcuda.manifest.dtypes; "bfloat16"
    ndim: NotRequired[Annotated[int, Integer(65)]]
    layout: NotRequired[Literal["C", "F", "A"]]  # C and F: contiguous in that order; A: any strides
    readonly: NotRequired[bool]  # array: the kernel was compiled for a read-only array
    align: NotRequired[Annotated[int, Integer((1 << 28) + 1, start=1)]]  # bytes, of elements; absent: that of `dtype`
    words: NotRequired[list[str]]
    sizes: NotRequired[list[Size]]  # a buffer has only `items` and `itemsize`
    bytes: NotRequired[Block]
    exact: NotRequired[bool]  # numbers: it accepts only numbers of this type in Numba
    members: NotRequired[list[Parameter]]
    divisor: NotRequired[Annotated[int, Integer(1 << 16, start=1)]]  # the required divisor of an address or a number
    least: NotRequired[Signed]  # number: the smallest accepted value
    most: NotRequired[Signed]  # and the largest accepted value
    value: NotRequired[Value]  # constant
    optional: NotRequired[bool]
    block: NotRequired[list[Whole]]  # descriptor
    places: NotRequired[list[Block]]
    tensor_map: NotRequired[TensorMap]


class Scratch(TypedDict):
    """Global memory that the program allocates for each launch."""

    bytes: Annotated[int, Integer(1 << 31, start=1)]  # per block
    align: Annotated[int, Integer(1 << 31, start=1)]
    offset: Block  # of its address in the parameter block


class FixedLaunch(TypedDict):
    """The launch configuration of a kernel that is launched by its grid alone; it depends on the image."""

    threads: Annotated[int, Integer(1025, start=1)]  # per block, all in x
    shared: Annotated[int, Integer(1 << 31)]  # bytes of dynamic shared memory
    cluster: NotRequired[list[Whole]]  # its blocks in x, y and z
    dependent: NotRequired[bool]  # the launch may begin before the previous kernel of the stream has ended
    scratch: NotRequired[Scratch]


class Argument(TypedDict):
    """An argument that a launch gives by position or by name."""

    name: Annotated[str, Text(r"[^\W\d]\w*", "a Python name")]
    default: NotRequired[Value]  # the value if a launch omits it
    keyword: NotRequired[bool]  # True if it is given only by name
    hints: NotRequired[Literal["none", "no alignment"]]  # exact kernels: properties that Triton ignores; absent: none
    annotation: NotRequired[str]  # exact kernels: the type that Triton uses for every value, "i64"
    is_none: NotRequired[str]  # a heuristic computes it: True if the argument of this name is None
    is_not_none: NotRequired[str]  # a heuristic computes it: True if the argument of this name is not None


class Resources(TypedDict):
    """The resources of one kernel on one architecture, from the machine code."""

    registers: Whole  # per thread
    shared: Whole  # static, per block
    local: Whole | None  # per thread; None if it cannot be computed (recursion)
    constant: Whole
    spills: NotRequired[Whole]  # bytes stored and loaded for lack of registers; absent without a linker's log


class Raised(TypedDict):
    """The meaning of an error code that a debug kernel stores when it raises."""

    code: Whole
    exception: str  # the name of a Python exception
    arguments: str
    function: str
    file: str
    line: Whole


class Overload(TypedDict):
    """A kernel for one signature: one entry point in every image of its fatbin."""

    signature: str
    symbol: str
    fatbin: NotRequired[Index]  # absent: 0
    parameters: list[Parameter]
    parameter_bytes: Block  # size of the whole parameter block
    cooperative: bool
    # Maximum of threads per block, minimum of blocks per multiprocessor, maximum of blocks per cluster.
    launch_bounds: list[Whole]
    block: NotRequired[list[Whole]]  # the only block that launches may have, in x, y and z
    carveout: Signed | None  # preferred share of shared memory in percent, -1 for the driver's default
    resources: dict[str, Resources]  # by arch, for each SASS image
    launches: NotRequired[dict[str, FixedLaunch]]  # by arch, if launches set the grid alone; other images lack it
    one_by_one: NotRequired[bool]  # launches pass each parameter separately: its offset depends on the GPU
    reserved: NotRequired[list[Block]]  # with `one_by_one`: the offsets of parameters that launches do not pass
    general: NotRequired[bool]  # by_grid: the build has added it; it has fewer hints than recorded variants
    apart: NotRequired[list[list[Block]]]  # pairs of arguments, by index: arrays that must not overlap
    raises: NotRequired[list[Raised]]  # debug builds: the kernel stores a code when it raises


class Kernel(TypedDict):
    """A kernel as users launch it."""

    name: str
    origin: str  # "mypkg._kernels:axpy"
    overloads: list[Overload]
    doc: NotRequired[str]  # the docstring of its source
    arguments: NotRequired[list[Argument]]  # if launches may name them: the parameters of every overload, in order
    defined: NotRequired[str]  # in place: the line of its Python function, "mypkg.solver:axpy:12"
    values: NotRequired[
        dict[str, list[list[object]]]
    ]  # in place: what its code read; see `aotcuda.common.value_descriptions`
    exact: NotRequired[bool]  # by_grid: launches choose an overload by Triton's rules
    adopts: NotRequired[bool]  # exact: numbers adopt the types of the parameters, as in a generated module
    fixed: NotRequired[list[str]]  # exact: integer constants that are packaged for some values, and users may vary
    digest: NotRequired[str]  # in a pack: the digest of its source by `aotcuda.common.kernel_digest`
    heuristics: NotRequired[list[str]]  # the arguments that @triton.heuristics computes, the outermost first


class Function(TypedDict):
    """An exported device function."""

    name: str  # its symbol
    origin: str
    signature: str
    abi: Literal["c"]
    prototype: str
    records: NotRequired[dict[str, object]]  # each `Record(...)` in the signature, as `numpy.dtype` takes it


class LeftOut(TypedDict):
    """A kernel for one signature that cannot be compiled for a target, so the images for it lack the kernel."""

    kernel: str
    signature: str
    target: Arch
    reason: str


class Callbacks(TypedDict):
    """Functions to call with the loaded module, by importable name (`mypkg._hooks:upload`)."""

    setup: str | None  # called once after loading, in each context
    teardown: str | None  # called once before unloading
    origin: str  # the linked item that they belong to
    fatbin: NotRequired[Index]  # absent: 0


class Linked(TypedDict):
    """A foreign item in the images."""

    name: str  # a file's path from the project's folder, or the name of an object in memory
    symbols: list[str]  # the known functions that it defines
    fatbin: NotRequired[Index]  # absent: 0


class Toolchain(TypedDict):
    """A further toolkit of a build, with the exported functions for linkers of its major version."""

    versions: dict[str, str]  # component -> version
    functions: NotRequired[File]
    function_links: list[File]
    ltoir: list[Image]


class Source(TypedDict):
    """A file of the project that the build read; its path is relative to the folder with the package."""

    path: str
    sha256: str


class Read(TypedDict):
    """An input of a build other than its sources; `aotcuda.common.stamp` defines them."""

    ask: str
    path: str  # in the project: relative to the folder with the package; else absolute
    answer: str | None


class Rebuild(TypedDict):
    """The inputs from which the JIT fallback compiles the module for another GPU or other types."""

    table: dict[str, object]  # `[tool.aotcuda]` of the project, with only this module
    names: dict[str, list[str]]  # every packaged module of the wheel, with its names
    root: str  # the folder for paths in the table, relative to the folder with the package
    files: list[File]  # its content for the fallback


class Pack(TypedDict):
    """The package that a pack's module is compiled from."""

    source: str  # the module, "fla.ops.gla.chunk"
    distribution: str
    version: str


class Manifest(TypedDict):
    """The manifest."""

    format: Whole
    floor: Version  # the oldest aotcuda whose run time reads it
    generator: str  # "aotcuda 0.1.0"
    module: str  # "mypkg.kernels"
    frontend: str
    toolchain: dict[str, str]  # component -> version
    toolchains: NotRequired[list[Toolchain]]  # further toolkits of the build
    min_driver: Version | None  # the lowest driver that loads any image: "580.65"
    load: Literal["import", "first-use"]
    fallback: Literal["jit", "error"]
    options: dict[str, object]
    files: dict[Literal["functions", "header", "tuning"], File]
    fatbins: list[Fatbin]  # of the kernels
    ltoir: list[Image]  # of the functions: LTOIR for each capability, then one PTX
    kernels: list[Kernel]
    functions: list[Function]
    globals: NotRequired[dict[str, Variable]]  # by the name that `symbol` takes: "x", "csrc/b.cu:x"
    callbacks: list[Callbacks]
    handle: str  # the type of the argument of callbacks: "cuda.core.ObjectCode"
    linked: list[Linked]
    function_links: list[File]  # files to link with the exported functions
    sources: list[Source]
    by_grid: NotRequired[bool]  # kernels are launched as `kernel[grid](...)`
    in_place: NotRequired[bool]  # the module is its own source, and its functions launch packaged kernels
    pack: NotRequired[Pack]
    left_out: NotRequired[list[LeftOut]]
    general_left_out: NotRequired[dict[str, Whole]]  # by kernel: general variants that some target cannot have
    runtime: NotRequired[Literal["bundled"]]  # the wheel holds a copy of the run time
    rebuild: NotRequired[Rebuild]  # with `fallback` = `jit`
    reads: NotRequired[list[Read]]  # editable installs and the JIT cache: further inputs
    variables: NotRequired[dict[str, str | None]]  # as `reads`: SHA-256 of environment variables, None for unset ones


_REQUIRED_KEYS = {
    "scalar": ("format",),
    "complex": ("format",),
    "pointer": (),
    "datetime": ("dtype",),
    "small": ("dtype",),
    "record": ("dtype",),
    "array": ("dtype", "ndim", "layout", "words"),
    "type": ("dtype",),
    "tuple": ("members",),
    "elements": ("dtype",),
    "number": ("format",),
    "constant": ("value",),
    "buffer": ("dtype",),
    "struct": ("dtype", "bytes"),
    "descriptor": ("dtype", "block", "places"),
}
"""The required keys of a parameter, by its `kind`."""

_WORD = re.compile(r"(?:zero|one|items|itemsize|data|(?:shape|stride|step)(\d{1,2}))", re.ASCII)


def problem(value: object) -> str | None:
    """Return the first fault of a manifest with its place: "kernels[3].name is not a string"; None without one.

    Raises:
        RecursionError: Its parameters are nested too deeply.
    """
    return next(itertools.chain(declared.problems(value, Manifest), _contradictions(value)), None)


def _contradictions(value: Any) -> Iterator[str]:
    """Yield the faults of a manifest whose keys fit the schema."""
    cuda = value["toolchain"].get("cuda")
    if cuda is not None:
        yield from declared.problems(cuda, Version, "toolchain.cuda")
    for number, other in enumerate(value.get("toolchains", ())):
        yield from declared.problems(other["versions"].get("cuda"), Version, f"toolchains[{number}].versions.cuda")
    for number, item in enumerate(value["fatbins"]):
        archs = [image["arch"] for image in item["images"]]
        if len(set(archs)) < len(archs):
            yield f"fatbins[{number}].images lists a target twice"
    paths = [item["file"]["path"] for item in value["fatbins"]]
    if len(set(paths)) < len(paths):
        yield "fatbins lists a file twice"
    yield from _index_problems(value)


def _index_problems(value: Any) -> Iterator[str]:
    """Yield the keys `fatbin` of a manifest that name no fatbin."""
    overloads = (
        (f"kernels[{at}].overloads[{number}]", overload)
        for at, kernel in enumerate(value["kernels"])
        for number, overload in enumerate(kernel["overloads"])
    )
    lists = ((f"{key}[{at}]", item) for key in ("callbacks", "linked") for at, item in enumerate(value[key]))
    variables = ((f"globals[{name[:80]!a}]", item) for name, item in value.get("globals", {}).items())
    count = len(value["fatbins"])
    for where, item in itertools.chain(overloads, lists, variables):
        if "fatbin" in item and item["fatbin"] >= count:
            yield f"{where}.fatbin names none of the fatbins"


def _parameter_problems(value: dict[str, Any], inner: str) -> Iterator[str]:
    """Yield the faults of a parameter whose keys fit the schema."""
    yield from (f"{inner}{key} is missing" for key in _REQUIRED_KEYS[value["kind"]] if key not in value)
    if value["kind"] not in ("array", "buffer"):
        return
    ndim = value["ndim"] if value["kind"] == "array" else 0
    if value["kind"] == "array" and not value["words"]:
        yield f"{inner}words is empty"
    for key, words in (("words", value.get("words", [])), ("sizes", [size["word"] for size in value.get("sizes", [])])):
        for word in words:
            match = _WORD.fullmatch(word)
            if not match or int(match[1] or -1) >= ndim:
                array = f"an array of {ndim} dimensions" if value["kind"] == "array" else "a buffer"
                yield f"{inner}{key} names something that {array} does not have"


declared.add_check(Parameter, _parameter_problems)
