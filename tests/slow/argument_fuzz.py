"""Compare the two paths of a launch over the stand-in driver: both have to do the same with the same arguments.

A case is a kernel with a few overloads, and tuples of arguments that are launched one after the other, over grids that
change. Each path has its own kernel and its own objects, made from the same descriptions. Both have plans from the
first launch: in Python on path `general`, in C on path `extension`. For each tuple, both paths and a new kernel without
plans have to launch the same overload with the same bytes, grid and as many waits, or raise the same error.
"""

from __future__ import annotations

import contextlib
import ctypes
import decimal
import enum
import fractions
import functools
import itertools
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st

from aotcuda.errors import ArgumentError, LaunchError
from aotcuda.runtime.images.images import Images
from aotcuda.runtime.kernel import Kernel
from aotcuda.runtime.launch import execute
from aotcuda.runtime.launch import fast as fast_extension
from aotcuda.runtime.launch.arguments import array_view
from aotcuda.runtime.launch.execute import Launcher
from support import libraries, manifests
from support.launch_paths import record_launches
from support.libraries import Array, Raises, State

if TYPE_CHECKING:
    from collections.abc import Iterator

PATHS = ("general", "extension")
STEPS = 25
GRIDS = (*(1,) * 9, 8, 300, (3, 2), (2, 65535, 4), 2**31 - 1, -1000, -1000, 0, (1, 70_000), -(2**40))
NAMES = (*"abcdefgh", *[f"p{at}" for at in range(8, 80)])
"""Names of parameters."""


class _Last(ctypes.Structure):
    """The stand-in driver's record of the last launch."""

    _fields_ = (
        ("name", ctypes.c_char * 256),
        ("stream", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("launches", ctypes.c_int32),
        ("extended", ctypes.c_int32),
        ("waits", ctypes.c_int32),
        ("dims", ctypes.c_uint32 * 7),
        ("parameters", ctypes.c_uint8 * 4096),
    )


class Value(NamedTuple):
    """An argument that is no array of a GPU: a Python expression."""

    expression: str


class Case(NamedTuple):
    """A kernel, tuples of arguments for it, the stream of its launches, the libraries' current streams, and grids.

    The launches take the grids in turn; an int that is not positive is the negative number of elements of `forall`.
    """

    record: dict[str, Any]
    tuples: list[tuple[Any, ...]]
    stream: int | None
    cupy: int = 0
    torch: int = 0
    grids: tuple[Any, ...] = (1,)


class DifferenceError(AssertionError):
    """The paths do not do the same."""


class Fuzz:
    """Runs cases.

    Attributes:
        launches: The number of launches, by the kernel's path and the path that launched.
        tuples: Number of tuples of arguments.
        errors: Number of refused tuples.
        messages: Their error messages.
    """

    def __init__(self, module: Any, library: Any, extension: Any) -> None:
        self._module = module
        library.fake_last.restype = ctypes.c_void_p
        self._last = _Last.from_address(library.fake_last())
        self._extension = extension
        self.launches: dict[str, dict[str, int]] = {path: dict.fromkeys(PATHS, 0) for path in PATHS}
        self.errors = self.tuples = 0
        self.messages: set[str] = set()

    def run(self, case: Case) -> None:
        """Raise DifferenceError if the paths differ in a case."""
        libraries.CURRENT.update(cupy=case.cupy, torch=case.torch)
        kernels = {path: self.kernel(path, case) for path in PATHS}
        for number, described in enumerate(case.tuples):
            grid = case.grids[number % len(case.grids)]
            outcomes = {path: self._outcome(path, kernels[path], case.stream, grid, described) for path in PATHS}
            new = self.kernel("general", case)
            expected = self._outcome("general", new, case.stream, grid, described, count=False)
            kind, _, message, *_ = expected
            if kind == "raised" or any(outcome != expected for outcome in outcomes.values()):
                lines = [f"{name}: {outcome}" for name, outcome in {**outcomes, "expected": expected}.items()]
                raise DifferenceError("\n".join([f"argument tuple {number}, {described}:", *lines]))
            self.tuples += 1
            if kind == "refused":
                self.errors += 1
                self.messages.add(message)

    def kernel(self, path: str, case: Case) -> Kernel:
        """Return a new kernel that takes one of the paths."""
        self._select(path)
        images = Images(self._module._images.source)
        images._make_current(self._module.ready(), {**self._module.manifest, "kernels": [case.record]})
        return Kernel(case.record["name"], images)

    def _select(self, path: str, *, plans: bool = True) -> None:
        _planning[:] = [plans]
        fast_extension._module[:] = [self._extension if path == "extension" else None]

    def _outcome(
        self, path: str, kernel: Kernel, stream: Any, grid: Any, described: tuple[Any, ...], *, count: bool = True
    ) -> tuple[Any, ...]:
        self._select(path, plans=count)
        args = tuple([make(item) for item in described])
        last = self._last
        launches, waits, submitted = last.launches, last.waits, _submitted[0]
        try:
            if isinstance(grid, int) and grid <= 0:
                kernel.forall(-grid, None, stream)(*args)
            else:
                kernel[grid, 1, stream](*args)
        except (ArgumentError, LaunchError) as error:
            return ("refused", type(error).__name__, str(error))
        except Exception as error:  # noqa: BLE001 (no argument may raise any other error)
            return ("raised", type(error).__name__, str(error))
        if last.launches != launches + (grid != 0):
            return ("raised", f"{last.launches - launches} launches", "")
        if grid == 0:
            return ("checked", "", "")
        if count:
            self.launches[path]["general" if _submitted[0] > submitted else "extension"] += 1
        bytes_ = bytes(last.parameters[: last.size]).hex()
        return ("launched", last.name, bytes_, last.stream, last.waits - waits, *last.dims)


_planning = [True]
_submitted = [0]


@contextlib.contextmanager
def patched() -> Iterator[None]:
    """Make plans at the first launch, unless a case asks for none; count launches in Python."""
    settle = Launcher.settle

    def settle_some(self: Any, *args: Any) -> Any:
        return settle(self, *args) if _planning[0] else None

    def count() -> None:
        _submitted[0] += 1

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(), libraries.installed():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "It looks like `register_random`")  # see pyproject.toml
        patch.setattr(fast_extension, "_module", [*fast_extension._module])
        patch.setattr(execute, "PACK_AT", 1)  # few cases launch three times
        patch.setattr(Launcher, "settle", settle_some)
        record_launches(patch, count)
        yield


# ------------------------------------------------------------------------------------------------------ arguments


class _Number(enum.IntEnum):
    SEVEN = 7


class _Void(ctypes.c_void_p):
    def __repr__(self) -> str:
        return "void"


class _Unhashable(type):
    """A class of classes without a hash."""

    __hash__ = None  # type: ignore[assignment]


_RECORD = np.dtype([("x", "f4"), ("id", "i8")], align=True)
_OTHER_RECORD = np.dtype([("x", "f4"), ("id", "i4")], align=True)
_PACKED_RECORD = np.dtype([("x", "f4"), ("id", "i8")])


def _subclass(base: type, *args: Any, **methods: Any) -> Any:
    """Return an object of a subclass whose methods return a value, or raise it; `__repr__` names no address."""
    body = {name: lambda _self, value=value: _give(value) for name, value in methods.items()}
    return type(f"My{base.__name__}", (base,), {**body, "__repr__": lambda _self: "mine"})(*args)


def _give(value: Any) -> Any:
    if isinstance(value, type) and issubclass(value, Exception):
        raise value
    return value


def _record_of(dtype: Any) -> Any:
    """Return a record; its padding is zero, since launches pass the bytes between members, too."""
    made = np.zeros(1, dtype)
    made["x"] = made["id"] = 1
    return made[0]


VALUES = {
    "bool": ("True", "0", "False", "1", "np.bool_(True)", "np.bool_(False)"),
    "int": (
        "0", "1", "-1", "2", "16", "48", "-32", "127", "128", "-129", "255", "256", "2**15", "2**16", "2**31 - 1",
        "2**31", "-(2**31) - 1", "2**53 + 1", "2**63 - 1", "2**63", "-(2**63) - 1", "2**64 - 1", "2**64", "10**400",
        "-10**400", "np.int8(-5)", "np.uint8(200)", "np.int16(-300)", "np.uint32(2**31)", "np.int64(2**40)",
        "np.uint64(2**63)", "Number.SEVEN", "mine(int, __index__=5, __float__=6.5, __int__=8)",
        "mine(np.int32, __index__=7)", "mine(object, __index__=5)", "mine(object, __index__=5, __float__=6.5)",
    ),
    "float": (
        "1.5", "0.1", "0.0", "-0.0", "1", "65504.0", "65520.0", "1e-45", "1e39", "3.4028235e38", "1e308",
        "3.4028235677973366e38", "float('inf')", "float('nan')", "np.float16(0.5)", "np.float32(0.1)",
        "np.float64(1e300)", "np.longdouble(1.5)", "mine(float, 1.5, __float__=3.5, __index__=4)",
        "mine(np.float64, 1.5, __float__=7.5)", "mine(object, __float__=0.25)",
    ),
    "complex": (
        "1j", "1.5 - 2j", "1e39j", "1.5", "2", "np.complex64(1 + 2j)", "np.complex128(0.5j)", "np.clongdouble(1j)",
        "mine(complex, 1j, __complex__=2j, __float__=2.5)", "mine(object, __complex__=0.5j)",
        "mine(object, __float__=0.25, __complex__=0.5j)",
    ),
    "pointer": ("1", "256", "ctypes.c_void_p(4096)", "ctypes.c_void_p(None)", "Void(64)"),
    "datetime": ("2", "np.datetime64(5, 'ns')", "np.datetime64('2026-01-01', 'D')", "np.timedelta64(3, 'ns')"),
    "constant": ("1", "True", "1.0", "'relu'", "None", "16", "-0.0", "2**63"),
    "struct": ("record(RECORD)", "record(RECORD)", "record(OTHER_RECORD)", "record(PACKED_RECORD)"),
    "type": ("np.float32", "np.dtype('f4')", "np.float64", "float"),
    "other": (
        "b'bytes'", "[1]", "np.zeros(4, '<f4')", "np.zeros((), '<f4')", "Fraction(1, 4)", "Decimal('1.5')",
        "Unhashable('Odd', (int,), {})(1)", "mine(object, __index__=1.5)", "mine(object, __index__=ValueError)",
        "mine(object, __index__=OverflowError)", "mine(object, __float__=1)", "mine(object, __float__=OSError)",
        "mine(object, __complex__=KeyError)", "mine(object, __complex__='1')",
    ),
}  # fmt: skip
"""Expressions of arguments, by the parameter that accepts most of them."""

_EVERY_VALUE = tuple(dict.fromkeys(itertools.chain(*VALUES.values())))
_NAMES = {
    "np": np, "ctypes": ctypes, "Number": _Number, "Void": _Void, "Unhashable": _Unhashable, "mine": _subclass,
    "record": _record_of, "RECORD": _RECORD, "OTHER_RECORD": _OTHER_RECORD, "PACKED_RECORD": _PACKED_RECORD,
    "Fraction": fractions.Fraction, "Decimal": decimal.Decimal,
}  # fmt: skip


@functools.cache
def _compiled(expression: str) -> Any:
    return compile(expression, "argument", "eval")


def make(described: Any) -> Any:
    """Return the described argument."""
    if isinstance(described, Array):
        return libraries.make(described)
    if isinstance(described, Value):
        return eval(_compiled(described.expression), _NAMES)  # an expression of the tables above
    return tuple([make(item) for item in described])


# ----------------------------------------------------------------------------------------------------- strategies

_ELEMENTS = {
    "<f4": "float32", "<f8": "float64", "<i4": "int32", "|b1": "bool", "<i8": "int64", "<c8": "complex64",
    "<f2": "float16", "|u1": "uint8", "bfloat16": "float16",
}  # fmt: skip
_SCALAR_TYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
    "complex64", "complex128", "float32*",
)  # fmt: skip
_RECORD_TEXT = "|V16{x:<f4@0,id:<i8@8}"
_HUGE = (2**16, 2**31, 2**32, 2**40, 2**61, 2**62, 2**63 - 1, 2**63, 2**64)
_DLPACK = ("exchange", "dlpack", "versioned", "old")

_types = st.sampled_from(tuple(_ELEMENTS))
_extents = st.sampled_from((1, 2, 3, 4, 5, 0, 1, 2, 3, 4))
_divisors = st.sampled_from((1, 1, 16, 2, 12))
_scalars = st.sampled_from(_SCALAR_TYPES)
_bounds = st.sampled_from((None, None, (0, 100), (-(2**31), 2**31 - 1), (1, 2**63 - 1)))
_sizes_of_buffers = st.lists(st.tuples(st.sampled_from(("items", "itemsize")), st.sampled_from("bBhHiIqQ")), max_size=2)
_promised_divisors = st.tuples(st.sampled_from((1, 2, 4)), st.sampled_from((1, 2, 4)))
_constants = st.sampled_from((1, True, 1.0, "relu", None, 16, 0.0, 2**63, 2**70))
_layouts = st.sampled_from("CCAF")
_alignments = st.sampled_from((0, 0, 0, 1, 2, 16, 64))
"""Declared alignments; 0 for that of the type."""

_PARAMETERS = {
    "array": (
        _types,
        st.sampled_from((1, 1, 1, 2, 2, 0, 3) * 3 + (8, 9)),
        _layouts,
        st.booleans(),
        st.sampled_from(("numba", "mlir")),
        _alignments,
    ),
    "scalar": (_scalars,),
    "record": (),
    "datetime": (),
    "elements": (_types, _divisors, st.booleans()),
    "number": (st.sampled_from(_SCALAR_TYPES[:12]), _divisors, _bounds),
    "constant": (_constants, st.booleans()),
    "buffer": (_types, st.booleans(), _sizes_of_buffers, _alignments),
    "promised": (_types, st.sampled_from((1, 2)), _layouts, st.sampled_from((1, 16)), _promised_divisors),
    "struct": (st.sampled_from(("<f4", "<f8")),),
    "type": (st.sampled_from(("<f4", "<f8")),),
}
"""The properties of each kind of parameter; a parameter is a tuple of its kind and its properties."""

_ARRAYS_AND_NUMBERS = ("array",) * 9 + ("scalar",) * 7 + ("elements", "number", "constant") * 2
_KINDS = (*_ARRAYS_AND_NUMBERS, "record", "datetime", "buffer", "promised", "struct", "type")
_KINDS_IN_VARIANTS = ("elements", "number", "constant")
_FEW = 8
_COUNTS = (31, 32, 33, 63, 64, 65, 66)
"""Numbers of parameters around the limits of the fast path. Those after the first few have plain arguments."""
_MORE = (("scalar", "int32"), ("scalar", "float64"), ("elements", "<f4", 1, False), ("scalar", "uint8"))
"""Parameters that make a kernel one of so many."""


@st.composite
def _parameter(draw: Any, kinds: tuple[str, ...] = (*_KINDS, "tuple")) -> Any:
    """Return a parameter of one of the kinds."""
    kind = draw(st.sampled_from(kinds))
    if kind == "tuple":
        return kind, tuple(draw(st.lists(_parameter(_KINDS[:16]), min_size=1, max_size=2)))
    return kind, *[draw(values) for values in _PARAMETERS[kind]]


@st.composite
def _variant(draw: Any, parameter: Any, kinds: tuple[str, ...]) -> Any:
    """Return the parameter of another overload: equal, with one other property, or of another kind."""
    kind, *properties = parameter
    choice = draw(st.integers(0, 9))
    if choice == 0:
        return draw(_parameter(kinds))
    if choice < 5 or kind == "tuple" or not properties:
        return parameter
    at = draw(st.integers(0, len(properties) - 1))
    properties[at] = draw(_PARAMETERS[kind][at])
    return kind, *properties


def overload(parameters: list[Any], number: int, *, exact: bool = False, apart: bool = False) -> dict[str, Any]:
    """Return the manifest's record of an overload.

    Args:
        parameters: The parameters, as `_parameter` returns them.
        number: The overload's number in its kernel.
        exact: Numbers have to have the parameter's type, as in kernels that are packaged in place.
        apart: No two arrays may overlap.
    """
    records, offset = [], 0
    for name, parameter in zip(NAMES, parameters, strict=False):
        record, offset = _record(parameter, name, offset)
        records.append(_exact(record) if exact else record)
    signature = f"void({', '.join(record['type'] for record in records)})"
    whole = manifests.overload("void()", f"k_{number}", parameters=records, parameter_bytes=offset)
    arrays = [at for at, record in enumerate(records) if record["kind"] in ("array", "buffer", "elements")]
    pairs = [list(pair) for pair in itertools.combinations(arrays, 2)] if apart else []
    return {**whole, "signature": signature, **({"apart": pairs} if pairs else {})}


def _exact(record: dict[str, Any]) -> dict[str, Any]:
    if record["kind"] == "tuple":
        return {**record, "members": [*map(_exact, record["members"])]}
    return {**record, "exact": True} if record["kind"] in ("scalar", "complex") else record


def _record(parameter: Any, name: str, offset: int) -> tuple[dict[str, Any], int]:
    """Return the manifest's record of a parameter, and the offset of the byte after it."""
    kind, *properties = parameter
    if kind == "scalar":
        return manifests.parameter(name, properties[0], offset)
    if kind == "array":
        return _array_record(name, offset, *properties)
    if kind == "tuple":
        members = []
        for index, member in enumerate(properties[0]):
            part, offset = _record(member, f"{name}{index}", offset)
            members.append(part)
        text = f"({', '.join(member['type'] for member in members)})"
        return {"name": name, "type": text, "kind": kind, "offset": members[0]["offset"], "members": members}, offset
    offset = -(-offset // 8) * 8
    record: dict[str, Any] = {"name": name, "type": " ".join(map(str, parameter[:2])), "kind": kind, "offset": offset}
    if kind == "constant":
        value, optional = properties
        return {**record, "offset": 0, "value": value, "optional": optional}, offset
    if kind == "number":
        return _number_record(record, *properties)
    if kind == "type":
        return {**record, "dtype": properties[0]}, offset + 1
    if kind == "struct":
        text = _RECORD_TEXT if properties[0] == "<f4" else "|V8{x:<f4@0,id:<i4@4}"
        return {**record, "dtype": text, "bytes": array_view.item_bytes(text)}, offset + array_view.item_bytes(text)
    end = offset + 8
    if kind in ("record", "datetime"):
        return {**record, "dtype": _RECORD_TEXT if kind == "record" else "<M8[ns]"}, end
    record["dtype"] = properties[0]
    if kind == "elements":
        _, divisor, readonly = properties
        return record | ({"divisor": divisor} if divisor > 1 else {}) | {"readonly": readonly}, end
    if kind == "buffer":
        _, readonly, words, *align = properties
        record |= {"align": align[0]} if any(align) else {}
        sizes, end = _sizes([(word, form, {}) for word, form in words], end)
        return record | {"readonly": readonly} | ({"sizes": sizes} if sizes else {}), end
    return _promised_record(record, end, *properties[1:])


def _array_record(
    name: str, offset: int, typestr: str, ndim: int, layout: str, readonly: bool, words: str, align: int = 0
) -> tuple[dict[str, Any], int]:
    axes = [":"] * ndim
    if axes and layout != "A":
        axes[-1 if layout == "C" else 0] = "::1"
    text = f"{_ELEMENTS[typestr]}[{','.join(axes)}]"
    record, end = manifests.parameter(name, text, offset, readonly=readonly)
    record |= {"dtype": typestr, "layout": layout if ndim else "C", **({"align": align} if align else {})}
    if words == "mlir":
        sizes = [f"{word}{axis}" for word in ("shape", "step") for axis in range(ndim)]
        record["words"] = ["data", "data", "zero", *sizes]
        end = record["offset"] + 8 * len(record["words"])
    return record, end


def _number_record(record: dict[str, Any], type_: str, divisor: int, bounds: Any) -> tuple[dict[str, Any], int]:
    number, end = manifests.parameter(record["name"], type_, record["offset"])
    record |= {"format": number["format"], "offset": number["offset"]}
    if number["format"] not in "efd?":
        record |= {"divisor": divisor} if divisor > 1 else {}
        record |= dict(zip(("least", "most"), bounds, strict=True)) if bounds else {}
    return record, end


def _promised_record(
    record: dict[str, Any], end: int, ndim: int, layout: str, divisor: int, divisors: tuple[int, int]
) -> tuple[dict[str, Any], int]:
    words = []
    for word, promised in zip(("shape", "step"), divisors, strict=True):
        promise = {"divisor": promised} if promised > 1 else {}
        least = {"least": 0} if word == "step" and layout == "A" else {}
        words += [(f"{word}{axis}", "i", promise | least) for axis in range(ndim)]
    sizes, end = _sizes(words, end)
    record |= {"kind": "array", "ndim": ndim, "layout": layout, "words": ["data"], "sizes": sizes}
    return record | ({"divisor": divisor} if divisor > 1 else {}), end


def _sizes(words: list[tuple[str, str, dict[str, int]]], offset: int) -> tuple[list[dict[str, Any]], int]:
    """Return the records of an array's sizes that the kernel takes as parameters, and the offset after them."""
    sizes = [
        {"name": word, "type": form, "word": word, "format": form, "offset": offset + 8 * at, **promise}
        for at, (word, form, promise) in enumerate(words)
    ]
    return sizes, offset + 8 * len(sizes)


@st.composite
def _state(draw: Any, typestr: str, ndim: int, layout: str, library: str) -> State:
    """Return the state of an array that a parameter accepts, or nearly."""
    fault = draw(st.sampled_from(("none",) * 20 + ("type", "ndim", "huge", "strides", "steps")))
    if fault == "type":
        typestr = draw(_types)
    if fault == "ndim":
        ndim = draw(st.sampled_from((0, 1, 2, 3, 4, 8, 9)))
    if typestr == "bfloat16" and library in ("cupy", "numba", "interface", "instance"):
        typestr = "<f4"
    shape = [draw(_extents) for _ in range(ndim)]
    if fault == "huge" and ndim:
        shape[draw(st.integers(0, ndim - 1))] = draw(st.sampled_from(_HUGE))
        if library in _DLPACK:
            shape = [min(extent, 2**63 - 1) for extent in shape]
    itemsize = array_view.item_bytes(typestr)
    strides = None
    if (layout == "F" and draw(st.booleans())) or fault == "strides":
        strides = list(array_view.contiguous_strides(tuple(shape), itemsize, draw(st.sampled_from("CF"))))
    if fault in ("strides", "steps") or (layout == "A" and draw(st.booleans())):
        strides = [itemsize * draw(st.sampled_from((0, 1, 2, -1, 3, 7, 2**40))) for _ in range(ndim)]
        if fault == "steps" and library not in ("torch", *_DLPACK):
            strides = [stride + draw(st.sampled_from((0, 1, 2))) for stride in strides]
    if fault == "huge" and draw(st.booleans()):
        strides = [0] * ndim
    if strides is not None and library in _DLPACK:
        strides = [max(min(stride, 2**62), -(2**62)) for stride in strides]
    readonly = library in ("interface", "instance", "versioned") and draw(st.integers(0, 3)) == 0
    stream = draw(st.sampled_from((None, None, None, 1, 77))) if library in ("interface", "instance") else None
    address = draw(st.sampled_from((0x1000, 0x7FFF_0000_0000, 2**64 - 64)))
    address += draw(st.sampled_from((0,) * 12 + (1, 2, 4, 8, 16, 56)))
    return State(typestr, tuple(shape), None if strides is None else tuple(strides), address, readonly, stream)


class _Own(int):
    """An int whose `__index__` returns another number."""

    def __index__(self) -> int:
        return 5


_INTEGERS = (-1, 2**64, None, "x", 1.0, _Own(4096))
_TUPLES = (None, 4, "4", ("a",), [4], (2.5,), (_Own(4),), (2**63,), {4: 1}, (), {}, "", 0)
_WRONG_INTERFACE = {
    "typestr": (5, None, "", "<f4\0", "f4", "<f99999999999", "<V8", b"<f4", "é", "=f4", KeyError, []),
    "shape": (*_TUPLES, (-1,), (-2, -2), (2**32, 2**32), (2**40, 2**40, 0), (True,), KeyError, (4,) * 9, (1,) * 70,
              (4, 10**5000), {4}),
    "strides": (*_TUPLES, (4, 4), (-(2**63),), (3,), (0,), (True,), (10**5000,), {16: 1, 4: 1}),
    "data": (None, 5, (1,), (1, 2, 3), ("x", False), (2**64, False), (-1, False), [4096, False], (4096, None),
             (_Own(4096), False), (4096.0, False), (True, False), KeyError, {1: 2, 3: 4}, (4096, np.zeros(2))),
    "stream": (0, 2, 77, -1, 2**64, "x", 1.0, True, _Own(77), ()),
    "mask": (5, False),
    "descr": (5, [("x", "<f4")], [("x",)]),
    "interface": (None, 5, [], {}, "text", type("Dict", (dict,), {})(typestr="<f4", data=(8, False), shape=(4,))),
}  # fmt: skip
_WRONG_DLPACK = {
    "device": (None, (1, 0), (13, 0), (2,), ("x", 0), [2, 0]), "ndim": (-1, 2**31 - 1, 65), "code": (7, 3, 17),
    "bits": (4, 12, 0, 128), "lanes": (2, 0), "no shape": (True,), "no strides": (False,), "capsule": (None, 5, "x"),
    "version": ((2, 0), (0, 5)),
}  # fmt: skip
_WRONG = {
    "interface": _WRONG_INTERFACE, "instance": _WRONG_INTERFACE, "dlpack": _WRONG_DLPACK, "versioned": _WRONG_DLPACK,
    "old": _WRONG_DLPACK,
    "cupy": {"ndim": (-1, 9, 2**70, None), "shape": _TUPLES, "strides": (*_TUPLES, (4, 4)), "ptr": _INTEGERS,
             "dtype": (None, 5, "<f4"), "_c_contiguous": (Raises(ValueError),)},
    "torch": {"shape": _TUPLES, "stride": (*_TUPLES, (4, 4)), "data_ptr": _INTEGERS,
              "dtype": (None, 5), "is_cuda": (False,), "is_conj": (True,)},
    "numba": {"shape": (*_TUPLES, (4, 4)), "strides": (*_TUPLES, (4, 4)), "device_pointer": _INTEGERS,
              "dtype": (None, 5, "<f4"), "stream": _INTEGERS},
    "exchange": {"is_cuda": (False,), "is_conj": (True,)},
}  # fmt: skip
"""Wrong values of each library's attributes, and of the keys of its interface."""

_NEVER_RAISES = ("ndim", "code", "bits", "lanes")


def all_changes(library: str) -> Iterator[tuple[str, object]]:
    """Yield each attribute of a library's arrays with each wrong value, and with errors that it raises."""
    for name, values in _WRONG[library].items():
        yield from ((name, value) for value in values)
        if library != "exchange" and name not in _NEVER_RAISES:
            yield from ((name, Raises(error)) for error in (ValueError, TypeError, AttributeError, OSError))


_all_changes = functools.cache(lambda library: tuple(all_changes(library)))


@st.composite
def _array(draw: Any, typestr: str, ndim: int, layout: str) -> Array:
    """Return an array that a parameter accepts, or nearly."""
    library = draw(st.sampled_from(libraries.LIBRARIES[:6] * 4 + libraries.LIBRARIES[6:]))
    state = draw(_state(typestr, ndim, layout, library))
    special = draw(st.sampled_from(("",) * 16 + ("change", "subclass")))
    if special == "change":
        state = state._replace(changes=(draw(st.sampled_from(_all_changes(library))),))
    subclass = special == "subclass" and library in ("cupy", "torch", "exchange")
    return Array(library, state, draw(st.sampled_from(libraries.SUBCLASSES)) if subclass else "")


@st.composite
def _argument(draw: Any, parameter: Any) -> Any:
    """Return an argument that a parameter accepts, or nearly."""
    kind, *properties = parameter
    if draw(st.integers(0, 49)) == 0:
        return Value(draw(st.sampled_from(_EVERY_VALUE)))
    if kind == "tuple":
        return tuple([draw(_argument(member)) for member in properties[0]])
    if kind == "record":
        state = State("|V16", draw(st.sampled_from(((), (1,), (2,)))), changes=(("descr", _RECORD.descr),))
        return Array("interface", state)
    if kind in ("array", "promised"):
        return draw(_array(*properties[:3]))
    if kind in ("elements", "buffer"):
        return draw(
            _array(properties[0], draw(st.sampled_from((1, 1, 2, 0, 3) * 4 + (8, 9))), "CA"[kind == "elements"])
        )
    family = kind
    if kind in ("scalar", "number"):
        family = "pointer" if properties[0].endswith("*") else properties[0].strip("u0123456789")
    likely = VALUES[family] if draw(st.integers(0, 9)) else _EVERY_VALUE
    return Value(draw(st.sampled_from(likely)))


@st.composite
def _arguments(draw: Any, parameters: list[Any]) -> tuple[Any, ...]:
    """Return a tuple of arguments that a kernel accepts, or nearly."""
    plain = {"scalar": Value("1"), "elements": Array("cupy", State())}
    return tuple([draw(_argument(each)) if at < _FEW else plain[each[0]] for at, each in enumerate(parameters)])


@st.composite
def _kernel(draw: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return a kernel of a few overloads, and the parameters of each."""
    first = [draw(_parameter()) for _ in range(draw(st.sampled_from((1, 1, 2, 2, 3, 4))))]
    others = draw(st.integers(0, 3))
    overloads = [first, *[[draw(_variant(each, _KINDS)) for each in first] for _ in range(others)]]
    if draw(st.integers(0, 9)) == 0:
        size = draw(st.sampled_from(_COUNTS))
        overloads = [each + [_MORE[at % len(_MORE)] for at in range(size - len(each))] for each in overloads]
    exact = draw(st.integers(0, 2)) == 0
    records = [
        overload(parameters, number, exact=exact, apart=draw(st.integers(0, 3)) == 0)
        for number, parameters in enumerate(overloads)
    ]
    return {"overloads": records}, overloads


@st.composite
def _kernel_in_variants(draw: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return a kernel of many variants as Triton's are, exact or not, and the parameters of each."""
    kinds = _KINDS_IN_VARIANTS
    first = [draw(_parameter(kinds)) for _ in range(draw(st.sampled_from((1, 2, 3, 4))))]
    others = draw(st.integers(0, 9))
    variants = [first, *[[draw(_variant(each, kinds)) for each in first] for _ in range(others)]]
    record: dict[str, Any] = {"overloads": [overload(each, number) for number, each in enumerate(variants)]}
    if draw(st.integers(0, 3)):
        hints = st.sampled_from(({}, {}, {"hints": "none"}, {"hints": "no alignment"}))
        annotations = st.sampled_from(({}, {}, {}, {"annotation": "i64"}, {"annotation": "fp32"}))
        arguments = [{"name": name, **draw(hints), **draw(annotations)} for name in "abcd"[: len(first)]]
        record |= {"exact": True, "arguments": arguments}
    return record, variants


@st.composite
def cases(draw: Any) -> Case:
    """Return a kernel, and tuples of arguments to launch one after the other."""
    record, overloads = draw(_kernel() if draw(st.integers(0, 2)) else _kernel_in_variants())
    record |= {"name": "k", "origin": "mypkg._kernels:k"}
    likely = draw(st.sampled_from(overloads))
    tuples: list[tuple[Any, ...]] = []
    while len(tuples) < STEPS:
        if not tuples or draw(st.integers(0, 5)) == 0:
            tuples.append(draw(_arguments(likely)))
        elif draw(st.booleans()):
            tuples.append(draw(st.sampled_from(tuples)))
        else:
            at = draw(st.integers(0, len(likely) - 1))
            args = [*draw(st.sampled_from(tuples))]
            args[at] = draw(_argument(draw(st.sampled_from([likely, *overloads]))[at]))
            tuples.append(tuple(args))
    stream = draw(st.sampled_from((None, None, None, 0, 0, 1, 77)))
    cupy, torch = draw(st.sampled_from(((0, 0), (0, 0), (77, 77), (77, 78), (0, 77), (1, 0), (2, 2), (77, 1))))
    grids = draw(st.lists(st.sampled_from(GRIDS), min_size=1, max_size=4))
    return Case(record, tuples, stream, cupy, torch, (*grids,))
