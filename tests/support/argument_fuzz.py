"""The two paths of a launch compared: what they do with the same arguments, over the stand-in driver.

A case is a kernel of some overloads, and tuples of arguments that are launched one after the other. Each path has a
kernel of its own, and objects that are made from the same descriptions: `general` teaches nothing, `extension` is
taught as anywhere. Both have to launch the same overload with the same bytes after waiting as
often, or raise the same ArgumentError, and both have to do what the general path does where nothing was launched
before. Where an object changes from reading to reading, a path has to do what the general one does with an object that
is one of its states for good, or raise an ArgumentError.
"""

from __future__ import annotations

import contextlib
import ctypes
import decimal
import enum
import fractions
import itertools
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from aotcuda.errors import ArgumentError
from aotcuda.runtime import fast as fast_extension
from aotcuda.runtime import general_path
from aotcuda.runtime.arguments import array_view
from aotcuda.runtime.arguments import overloads as overload_tables
from aotcuda.runtime.general_path import GeneralPath
from aotcuda.runtime.kernel import Kernel
from aotcuda.runtime.loader import Loader
from support import libraries, manifests
from support.libraries import Array, Raises, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATHS = ("general", "extension")
STEPS = 25


class _Last(ctypes.Structure):
    """The stand-in's account of the last launch."""

    _fields_ = (
        ("name", ctypes.c_char * 256),
        ("stream", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("launches", ctypes.c_int32),
        ("extended", ctypes.c_int32),
        ("waits", ctypes.c_int32),
        ("parameters", ctypes.c_uint8 * 4096),
    )


class Made(NamedTuple):
    """An argument that is no array, by name, as what is not shown well is made anew for each path."""

    name: str

    def frozen(self) -> list[Any]:
        """Return the same as values that do not change."""
        return _CHANGING.get(self.name, [self])


class Items(NamedTuple):
    """A tuple of arguments as one argument."""

    items: tuple[Any, ...]

    def frozen(self) -> list[Any]:
        return [Items(items) for items in itertools.product(*[item.frozen() for item in self.items])]


class Case(NamedTuple):
    """A kernel, the tuples of arguments for it, the stream given for them, and the libraries' current streams."""

    record: dict[str, Any]
    tuples: list[tuple[Any, ...]]
    stream: int | None
    cupy: int = 0
    torch: int = 0


class DifferenceError(AssertionError):
    """The paths do not do the same."""


class Fuzz:
    """Runs cases.

    Attributes:
        taken: How many launches each path took, by the kernel's path and the one that it was launched by.
        errors: How many tuples were refused.
        messages: The errors of these.
        tuples: How many there were.
    """

    def __init__(self, module: Any, library: Any, extension: Any) -> None:
        self._module = module
        library.fake_last.restype = ctypes.c_void_p
        self._last = _Last.from_address(library.fake_last())
        self._extension = extension
        self._submitted = 0
        self.taken: dict[str, dict[str, int]] = {path: dict.fromkeys(PATHS, 0) for path in PATHS}
        self.errors = self.tuples = 0
        self.messages: set[str] = set()

    def run(self, case: Case) -> None:
        """Raise DifferenceError if the paths differ in a case."""
        libraries.CURRENT.update(cupy=case.cupy, torch=case.torch)
        launchers = {path: self.launcher(path, case) for path in PATHS}
        reference = None
        for number, described in enumerate(case.tuples):
            found = {path: self._outcome(path, launchers[path], described) for path in PATHS}
            combinations = list(itertools.product(*[item.frozen() for item in described]))
            if len(combinations) == 1:
                reference = self.launcher("general", case)  # what was launched before must not matter
            else:
                reference = reference or self.launcher("general", case)
            allowed = [self._outcome("general", reference, frozen, count=False) for frozen in combinations]
            for path, outcome in found.items():
                refused = outcome[0] == "refused"
                if outcome in allowed or (refused and len(combinations) > 1):
                    continue
                lines = [f"{name}: {what}" for name, what in found.items()]
                message = f"{path} differs at {number}, {described}:\n" + "\n".join([*lines, f"allowed: {allowed}"])
                raise DifferenceError(message)
            if found["general"][0] == "raised":
                message = f"{described}: {found['general']}"
                raise DifferenceError(message)
            self.tuples += 1
            if found["general"][0] == "refused":
                self.errors += 1
                self.messages.add(found["general"][2])

    def launcher(self, path: str, case: Case) -> Any:
        """Return a launcher of a new kernel, which takes one of the paths."""
        _learning[:] = [path != "general"]
        fast_extension._found[:] = [self._extension if path == "extension" else None]
        loader = Loader(self._module._loader.source)
        loader._launch(self._module.ready(), {**self._module.manifest, "kernels": [case.record]})
        return Kernel(case.record["name"], loader)[1, 1, case.stream]

    def _outcome(self, path: str, launcher: Any, described: tuple[Any, ...], *, count: bool = True) -> tuple[Any, ...]:
        fast_extension._found[:] = [self._extension if path == "extension" else None]
        _learning[:] = [path != "general"]
        args = tuple([make(item) for item in described])
        last = self._last
        launches, waits, submitted = last.launches, last.waits, _submitted[0]
        try:
            launcher(*args)
        except ArgumentError as error:
            return ("refused", type(error).__name__, str(error))
        except Exception as error:  # noqa: BLE001 (that no argument may raise anything else is what is tried)
            return ("raised", type(error).__name__, str(error))
        if last.launches != launches + 1:
            return ("raised", f"{last.launches - launches} launches", "")
        taken = "general" if _submitted[0] > submitted else "extension"
        if count:
            self.taken[path][taken] += 1
        return ("launched", last.name, bytes(last.parameters[: last.size]).hex(), last.stream, last.waits - waits)


_learning = [True]
_submitted = [0]


@contextlib.contextmanager
def patched() -> Iterator[None]:
    """Lets the general path's kernel learn nothing, the others from the first launch, and counts what goes that way."""
    settle, submit, found = GeneralPath.settle, GeneralPath.submit, [*fast_extension._found]
    specialize_at, general_path.SPECIALIZE_AT = general_path.SPECIALIZE_AT, 1
    direct_at, overload_tables.DIRECT_AT = overload_tables.DIRECT_AT, 1

    def settle_some(self: Any, *args: Any) -> Any:
        return settle(self, *args) if _learning[0] else None

    def count(self: Any, *args: Any) -> None:
        _submitted[0] += 1
        submit(self, *args)

    GeneralPath.settle, GeneralPath.submit = settle_some, count  # type: ignore[method-assign]
    try:
        with warnings.catch_warnings(), libraries.installed():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "It looks like `register_random`")  # see pyproject.toml
            yield
    finally:
        GeneralPath.settle, GeneralPath.submit = settle, submit  # type: ignore[method-assign]
        general_path.SPECIALIZE_AT = specialize_at
        overload_tables.DIRECT_AT = direct_at
        fast_extension._found[:] = found


# ------------------------------------------------------------------------------------------------------ arguments


class _Number(enum.IntEnum):
    SEVEN = 7


def _with(base: type, **methods: Any) -> type:
    """Return a class with methods that give, or raise, something; `__repr__` names no address."""
    given = {name: _giver(value) for name, value in methods.items()}
    return type(f"With{base.__name__}", (base,), {**given, "__repr__": lambda _self: "one"})


def _giver(value: Any) -> Callable[[Any], Any]:
    return lambda _self: _give(value)


def _give(value: Any) -> Any:
    if isinstance(value, Raises):
        raise value.error
    return value


class _Turns:
    """An object that is another number at each reading."""

    def __init__(self, method: str, *values: Any) -> None:
        self._values = itertools.cycle(values)

    def __repr__(self) -> str:
        return "turns"

    def _next(self) -> Any:
        return _give(next(self._values))


class _TurnsInt(_Turns):
    def __index__(self) -> int:
        return self._next()  # type: ignore[no-any-return]


class _TurnsFloat(_Turns):
    def __float__(self) -> float:
        return self._next()  # type: ignore[no-any-return]


class _Open:
    """A number by its class, and an array where an instance says so."""

    def __repr__(self) -> str:
        return "open"

    def __float__(self) -> float:
        return 2.5


def _open_array() -> Any:
    found = _Open()
    found.__cuda_array_interface__ = {  # type: ignore[attr-defined]
        "data": (4096, False),
        "shape": (4,),
        "typestr": "<f4",
        "version": 3,
    }
    return found


class _Unhashable(type):
    """A class of classes without a hash, which no table of types can hold."""

    __hash__ = None  # type: ignore[assignment]


class _Void(ctypes.c_void_p):
    def __repr__(self) -> str:
        return "void"


_PLAIN: dict[str, Any] = {
    f"{type(value).__name__} {value}": value
    for value in [
        True, False, 0, 1, -1, 2, 16, 48, -32, 127, 128, -129, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, -(2**31) - 1,
        2**32,
        2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 0.0, -0.0, 1.0, 0.1, 1.5, 65504.0,
        65520.0, 1e-45, 1e39, 3.4028235e38, 3.4028235677973366e38, 1e308, float("inf"), float("-inf"), float("nan"),
        1j, 1.5 - 2j, 1e39j, None, "text", "relu",
        b"bytes", np.bool_(True), np.bool_(False), np.int8(-5), np.uint8(200),
        np.int16(-300), np.uint16(9), np.int32(-7), np.uint32(2**31), np.int64(2**40), np.int64(-1),
        np.uint64(2**63), np.float16(0.5), np.float32(0.1), np.float32(1e38), np.float64(0.1), np.float64(1e300),
        np.longdouble(1.5), np.complex64(1 + 2j), np.complex128(0.5j), np.clongdouble(1j), np.datetime64(5, "ns"),
        np.datetime64("2026-01-01", "D"), np.timedelta64(3, "ns"), _Number.SEVEN, fractions.Fraction(1, 4),
        decimal.Decimal("1.5"),
    ]
}  # fmt: skip
_MAKERS: dict[str, Callable[[], Any]] = {
    "10**400": lambda: 10**400,
    "-10**400": lambda: -(10**400),
    "10**5000": lambda: 10**5000,
    "list": lambda: [1],
    "class float32": lambda: np.float32,
    "class float64": lambda: np.float64,
    "dtype float32": lambda: np.dtype("f4"),
    "class float": lambda: float,
    "record": lambda: _padded_record(_RECORD),
    "other record": lambda: _padded_record(np.dtype([("x", "f4"), ("id", "i4")], align=True)),
    "packed record": lambda: _padded_record(np.dtype([("x", "f4"), ("id", "i8")])),
    "host": lambda: np.zeros(4, "<f4"),
    "host scalar": lambda: np.zeros((), "<f4"),
    "void": lambda: ctypes.c_void_p(4096),
    "null": lambda: ctypes.c_void_p(None),
    "void of a subclass": lambda: _Void(64),
    "int with __index__": _with(int, __index__=5, __float__=6.5, __int__=8, __complex__=9j),
    "float with __float__": _with(float, __float__=3.5, __index__=4, __complex__=5j),
    "complex with __complex__": _with(complex, __complex__=2j, __float__=2.5, __index__=3),
    "numpy with __float__": _with(np.float64, __float__=7.5),
    "numpy int with __index__": _with(np.int32, __index__=7, __float__=7.5),
    "index": _with(object, __index__=5),
    "large index": _with(object, __index__=2**40),
    "index and float": _with(object, __index__=5, __float__=6.5),
    "float": _with(object, __float__=0.25),
    "complex": _with(object, __complex__=0.5j),
    "float and complex": _with(object, __float__=0.25, __complex__=0.5j),
    "index of true": _with(object, __index__=True),
    "index of a float": _with(object, __index__=1.5),
    "of an unhashable class": _Unhashable("Odd", (), {"__repr__": lambda _: "odd"}),
    "int of an unhashable class": lambda: _Unhashable("Odd", (int,), {})(1),
    "index that raises": _with(object, __index__=Raises(ValueError)),
    "index that overflows": _with(object, __index__=Raises(OverflowError)),
    "float of an int": _with(object, __float__=1),
    "float that raises": _with(object, __float__=Raises(OSError)),
    "complex that raises": _with(object, __complex__=Raises(KeyError)),
    "complex of a text": _with(object, __complex__="1"),
    "open": _Open,
    "open array": _open_array,
    "turns 1 2": lambda: _TurnsInt("", 1, 2),
    "turns 1 2**40": lambda: _TurnsInt("", 1, 2**40),
    "turns 1 raises": lambda: _TurnsInt("", 1, Raises(ValueError)),
    "turns 0.5 1e39": lambda: _TurnsFloat("", 0.5, 1e39),
}
for _name, _values in {
    "index 1": 1, "index 2": 2, "index 2**40": 2**40, "index raises": Raises(ValueError), "float 0.5": 0.5,
    "float 1e39": 1e39
}.items():  # fmt: skip
    _base = _TurnsFloat if _name.startswith("float") else _TurnsInt
    _MAKERS[f"turns only {_name}"] = lambda base=_base, value=_values: base("", value)
_CHANGING: dict[str, list[Any]] = {
    "turns 1 2": [Made("turns only index 1"), Made("turns only index 2")],
    "turns 1 2**40": [Made("turns only index 1"), Made("turns only index 2**40")],
    "turns 1 raises": [Made("turns only index 1"), Made("turns only index raises")],
    "turns 0.5 1e39": [Made("turns only float 0.5"), Made("turns only float 1e39")],
}
NUMBERS = (*_PLAIN, *_MAKERS)
_FITTING = {
    "?": ["bool True", "int 0", "bool True", "int 1"],
    "int": [
        "int 1",
        "int 2",
        "int 127",
        "bool True",
        "int8 -5",
        "int64 -1",
        "bool True",
        "index",
        "int with __index__",
    ],
    "float": ["float 1.5", "float 0.1", "int 1", "float32 0.10000000149011612", "float64 0.1", "float", "int32 -7"],
    "complex": ["complex 1j", "float 1.5", "complex64 (1+2j)", "complex128 0.5j", "int 2", "complex with __complex__"],
    "pointer": ["int 1", "int 256", "void", "null"],
    "datetime": ["int 2", *[name for name in _PLAIN if name.startswith("datetime64")]],
    "constant": [
        "int 1",
        "bool True",
        "float 1.0",
        "str relu",
        "NoneType None",
        "int 16",
        "float -0.0",
        "int 9223372036854775808",
    ],
    "struct": ["record", "record", "record", "other record", "packed record"],
    "type": ["class float32", "dtype float32", "class float64", "class float"],
}
_CONSTANTS = (1, True, 1.0, "relu", None, 16, 0.0, 2**63, 2**70)
_FITTING["?"] += [name for name in _PLAIN if name.startswith("bool_ ")]
_FITTING["float"] += ["float with __float__", *[name for name in _PLAIN if name.startswith("float")][:6]]
for _names in _FITTING.values():
    _names[:] = [name for name in _names if name in NUMBERS]


def make(described: Any) -> Any:
    """Return the argument that is described."""
    if isinstance(described, Array):
        return libraries.make(described)
    if isinstance(described, Items):
        return tuple([make(item) for item in described.items])
    return _MAKERS[described.name]() if described.name in _MAKERS else _PLAIN[described.name]


# ----------------------------------------------------------------------------------------------------- strategies

TYPES = ("<f4", "<f8", "<i4", "|b1", "<i8", "<c8", "<f2", "|u1", "bfloat16")
_ELEMENTS = {
    "<f4": "float32", "<f8": "float64", "<i4": "int32", "|b1": "bool", "<i8": "int64", "<c8": "complex64",
    "<f2": "float16", "|u1": "uint8", "bfloat16": "float16",
}  # fmt: skip
_SCALAR_TYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
    "complex64", "complex128", "float32*",
)  # fmt: skip
_RECORD = np.dtype([("x", "f4"), ("id", "i8")], align=True)


def _padded_record(dtype: Any) -> Any:
    """Return a record whose padding is zero, since launches take the bytes between members, too."""
    made = np.zeros(1, dtype)
    made["x"] = made["id"] = 1
    return made[0]


_RECORD_TEXT = "|V16{x:<f4@0,id:<i8@8}"
_HUGE = (2**16, 2**31, 2**32, 2**40, 2**61, 2**62, 2**63 - 1, 2**63, 2**64)

_types = st.sampled_from(TYPES)
_extents = st.sampled_from((1, 2, 3, 4, 5, 0, 1, 2, 3, 4))


@st.composite
def _parameter(draw: Any, depth: int = 0) -> Any:
    """Return what a parameter is, and what it takes: `(kind, ...)`."""
    kind = draw(st.sampled_from(("array",) * 9 + ("scalar",) * 7 + ("tuple", "special") + ("variant",) * 6))
    if kind == "variant" and depth == 0:
        return draw(_special(draw(st.sampled_from(_VARIANT_KINDS))))
    if kind == "array":
        layout = draw(st.sampled_from("CCAF"))
        words = draw(st.sampled_from(("numba", "numba", "mlir")))
        return "array", draw(_types), draw(st.sampled_from((1, 1, 1, 2, 2, 0, 3))), layout, draw(st.booleans()), words
    if kind == "tuple" and depth == 0:
        return "tuple", tuple(draw(st.lists(_parameter(1), min_size=1, max_size=2)))
    if kind == "special":
        return draw(st.sampled_from((("record",), ("datetime",))))
    return "scalar", draw(st.sampled_from(_SCALAR_TYPES))


_VARIANT_KINDS = (
    "elements",
    "elements",
    "number",
    "number",
    "constant",
    "constant",
    "buffer",
    "promised",
    "struct",
    "type",
)


@st.composite
def _special(draw: Any, kind: str) -> Any:
    """Return a parameter of kernels in variants, of C++ ones, or of what no array or number is."""
    divisor = draw(st.sampled_from((1, 1, 16, 2, 12)))
    if kind == "elements":
        return kind, draw(_types), divisor, draw(st.booleans())
    if kind == "number":
        bounds = draw(st.sampled_from((None, None, (0, 100), (-(2**31), 2**31 - 1), (1, 2**63 - 1))))
        return kind, draw(st.sampled_from(_SCALAR_TYPES[:12])), divisor, bounds
    if kind == "constant":
        return kind, draw(st.sampled_from(_CONSTANTS)), draw(st.booleans())
    if kind == "buffer":
        words = draw(st.lists(st.sampled_from(("items", "itemsize")), max_size=2))
        return kind, draw(_types), draw(st.booleans()), tuple((word, draw(_size_forms)) for word in words)
    if kind == "promised":
        divisors = draw(st.tuples(st.sampled_from((1, 2, 4)), st.sampled_from((1, 2, 4))))
        return kind, draw(_types), draw(st.sampled_from((1, 2))), draw(st.sampled_from("CCAF")), divisor, divisors
    return kind, draw(st.sampled_from(("<f4", "<f8")))


_size_forms = st.sampled_from("bBhHiIqQ")


def _variant(draw: Any, parameter: Any) -> Any:
    """Return a parameter of another overload in the same place: the same, or another of its kind."""
    if draw(st.booleans()):
        return parameter
    if parameter[0] in _VARIANT_KINDS and draw(st.integers(0, 3)):
        other = draw(_special(parameter[0]))
        return (other[0], parameter[1], *other[2:]) if draw(st.booleans()) else other
    if parameter[0] == "array":
        _, typestr, ndim, layout, readonly, words = parameter
        what = draw(st.sampled_from(("layout", "layout", "type", "ndim", "readonly")))
        if what == "layout":
            layout = draw(st.sampled_from("CFA"))
        elif what == "type":
            typestr = draw(_types)
        elif what == "ndim":
            ndim = draw(st.sampled_from((0, 1, 2)))
        else:
            readonly = not readonly
        return "array", typestr, ndim, layout, readonly, words
    if parameter[0] == "scalar":
        return "scalar", draw(st.sampled_from(_SCALAR_TYPES))
    return draw(_parameter())


def _record(parameter: Any, name: str, offset: int) -> tuple[dict[str, Any], int]:
    """Return a parameter as the manifest has it, and the offset behind it."""
    if parameter[0] == "array":
        _, typestr, ndim, layout, readonly, words = parameter
        axes = [":"] * ndim
        if axes and layout != "A":
            axes[-1 if layout == "C" else 0] = "::1"
        text = f"{_ELEMENTS[typestr]}[{','.join(axes)}]"
        record, end = manifests.parameter(name, text, offset, readonly=readonly)
        record["dtype"] = typestr
        record["layout"] = layout if ndim else "C"
        if words == "mlir":
            shapes = [f"shape{axis}" for axis in range(ndim)] + [f"step{axis}" for axis in range(ndim)]
            record["words"] = ["data", "data", "zero", *shapes]
            end = record["offset"] + 8 * len(record["words"])
        return record, end
    if parameter[0] == "tuple":
        members = []
        for index, member in enumerate(parameter[1]):
            part, offset = _record(member, f"{name}{index}", offset)
            members.append(part)
        text = f"({', '.join(member['type'] for member in members)})"
        return {"name": name, "type": text, "kind": "tuple", "offset": members[0]["offset"], "members": members}, offset
    if parameter[0] == "scalar":
        return manifests.parameter(name, parameter[1], offset)
    if parameter[0] in _VARIANT_KINDS:
        return _special_record(parameter, name, offset)
    offset = -(-offset // 8) * 8
    dtype = _RECORD_TEXT if parameter[0] == "record" else "<M8[ns]"
    return {"name": name, "type": parameter[0], "kind": parameter[0], "dtype": dtype, "offset": offset}, offset + 8


def _special_record(parameter: Any, name: str, offset: int) -> tuple[dict[str, Any], int]:
    kind, what, *more = parameter
    offset = -(-offset // 8) * 8
    found: dict[str, Any] = {"name": name, "type": f"{kind} {what}", "kind": kind, "offset": offset}
    if kind == "constant":
        return {**found, "offset": 0, "value": what, "optional": more[0]}, offset
    if kind == "type":
        return {**found, "dtype": what}, offset + 1
    if kind == "struct":
        text = _RECORD_TEXT if what == "<f4" else _RECORD_TEXT.replace("<i8@8", "<i4@4").replace("V16", "V8")
        size = array_view.item_bytes(text)
        return {**found, "dtype": text, "bytes": size}, offset + size
    if kind == "number":
        record, end = manifests.parameter(name, what, offset)
        divisor, bounds = more
        if record["format"] in "efd?":
            divisor, bounds = 1, None
        found |= {"format": record["format"], "offset": record["offset"]}
        found |= {"divisor": divisor} if divisor > 1 else {}
        return found | (dict(zip(("least", "most"), bounds, strict=True)) if bounds else {}), end
    found["dtype"] = what
    end = offset + 8
    if kind == "elements":
        return found | ({"divisor": more[0]} if more[0] > 1 else {}) | {"readonly": more[1]}, end
    if kind == "buffer":
        sizes, end = _sizes([(word, form, {}) for word, form in more[1]], end)
        return found | {"readonly": more[0]} | ({"sizes": sizes} if sizes else {}), end
    ndim, layout, divisor, divisors = more
    words = []
    for word, promised in zip(("shape", "step"), divisors, strict=True):
        for axis in range(ndim):
            promise = {"divisor": promised} if promised > 1 else {}
            words.append((f"{word}{axis}", "i", promise | ({"least": 0} if word == "step" and layout == "A" else {})))
    sizes, end = _sizes(words, end)
    found |= {"kind": "array", "ndim": ndim, "layout": layout, "words": ["data"], "sizes": sizes}
    return found | ({"divisor": divisor} if divisor > 1 else {}), end


def _sizes(words: list[tuple[str, str, dict[str, int]]], offset: int) -> tuple[list[dict[str, Any]], int]:
    """Numbers that a kernel takes from an array as parameters of their own, and the offset behind them."""
    found = []
    for word, form, promise in words:
        found.append({"name": word, "type": form, "word": word, "format": form, "offset": offset, **promise})
        offset += 8
    return found, offset


def _exact(record: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter as kernels that are packaged in place have it."""
    if record["kind"] == "tuple":
        return {**record, "members": [*map(_exact, record["members"])]}
    return {**record, "exact": True} if record["kind"] in ("scalar", "complex") else record


def overload(parameters: list[Any], number: int, *, exact: bool = False, apart: bool = False) -> dict[str, Any]:
    """Return an overload as the manifest has it; all of its arrays are `apart`."""
    records, offset = [], 0
    for name, parameter in zip("abcdefgh", parameters, strict=False):
        record, offset = _record(parameter, name, offset)
        records.append(_exact(record) if exact else record)
    signature = f"void({', '.join(record['type'] for record in records)})"
    found = manifests.overload("void()", f"k_{number}", parameters=records, parameter_bytes=offset)
    arrays = [at for at, record in enumerate(records) if record["kind"] in ("array", "buffer", "elements")]
    pairs = [list(pair) for pair in itertools.combinations(arrays, 2)] if apart else []
    return {**found, "signature": signature, **({"apart": pairs} if pairs else {})}


@st.composite
def _state(draw: Any, typestr: str, ndim: int, layout: str, library: str) -> State:
    """Return a state of an array that a parameter takes, or nearly."""
    near = draw(st.sampled_from(("fits",) * 20 + ("type", "ndim", "huge", "strides", "steps")))
    if near == "type":
        typestr = draw(_types)
    if near == "ndim":
        ndim = draw(st.sampled_from((0, 1, 2, 3, 4)))
    shape = [draw(_extents) for _ in range(ndim)]
    if near == "huge" and ndim:
        shape[draw(st.integers(0, ndim - 1))] = draw(st.sampled_from(_HUGE))
        if draw(st.booleans()):
            shape[0] = draw(st.sampled_from(_HUGE[:6]))
        if library == "exchange" or library in ("dlpack", "versioned", "old"):
            shape = [min(extent, 2**63 - 1) for extent in shape]
    itemsize = array_view.item_bytes(typestr)
    strides = None
    if (layout == "F" and draw(st.booleans())) or near == "strides":
        strides = list(array_view.contiguous_strides(tuple(shape), itemsize, draw(st.sampled_from("CF"))))
    if near in ("strides", "steps") or (layout == "A" and draw(st.booleans())):
        steps = (0, 1, 2, -1, 3, 7, 2**40) if near != "huge" else (0,)
        strides = [itemsize * draw(st.sampled_from(steps)) for _ in range(ndim)]
        if near == "steps" and library not in ("torch", "exchange", "dlpack", "versioned", "old"):
            strides = [stride + draw(st.sampled_from((0, 1, 2))) for stride in strides]
    if near == "huge" and draw(st.booleans()):
        strides = [0] * ndim
    if strides is not None and library in ("exchange", "dlpack", "versioned", "old"):
        strides = [max(min(stride, 2**62), -(2**62)) for stride in strides]
    readonly = (
        draw(st.sampled_from((False, False, False, True)))
        if library in ("interface", "instance", "versioned")
        else False
    )
    stream = draw(st.sampled_from((None, None, None, 1, 77))) if library in ("interface", "instance") else None
    address = draw(st.sampled_from((0x1000, 0x7FFF_0000_0000, 2**64 - 8)))
    if typestr == "bfloat16" and library in ("cupy", "numba", "interface", "instance"):
        typestr = "<f4"
    return State(typestr, tuple(shape), None if strides is None else tuple(strides), address, readonly, stream)


_ERRORS = st.sampled_from((OSError, ValueError, KeyError, RuntimeError, IndexError, OverflowError, TypeError)).map(
    Raises
)
_EMPTY = ((), [], {}, "", b"", 0, False, set())
"""What is nothing, and seldom what belongs there."""


class _Own(int):
    """An int whose `__index__` gives another number than it holds."""

    def __index__(self) -> int:
        return 5


_ODD_INTERFACE = {
    "typestr": (5, None, "", "<f4\0", "f4", "<f40", "<f99999999999", "<V8", b"<f4", "é", "=f4", "|f4", KeyError, [],
                "<b1", "|V16"),
    "shape": (None, 4, (2.5,), (-1,), (-2, -2), (2**63,), (2**32, 2**32), (2**40, 2**40, 0), ("a",), (True,),
              (np.int64(4),),
              (_Own(4),), [4], KeyError, (4,) * 9, (1,) * 70, (4, 10**5000), {4: 1}, "4", {4: 1, 5: 1}, {4}, *_EMPTY),
    "strides": ((), (4, 4), (2.0,), "a", {4: 1}, (2**63,), (-(2**63),), (3,), (0,), [4], [8], (True,), (np.int64(4),),
                (_Own(4),), 4,
                (10**5000,), ("a",), (4.0,), {16: 1, 4: 1}, {16}, *_EMPTY),
    "data": (None, 5, (1,), (1, 2, 3), ("x", False), (2**64, False), (-1, False), [4096, False], (4096, None),
             (4096, "x"),
             (np.uint64(4096), np.bool_(True)),
             (_Own(4096), False), (4096.0, False), (True, False), (None, False), KeyError, {1: 2, 3: 4},
             {4096: 1, 0: 1}, {4096, 0}, b"\1\0", *_EMPTY,
             (4096, np.zeros(2))),
    "stream": (0, 1, 2, 77, -1, 2**64, "x", 1.0, 0.0, True, np.int64(1), _Own(77), (), 2**63),
    "mask": (5, False, ()),
    "descr": (5, [("x", "<f4")], [("x",)], [5]),
    "interface": (None, 5, [], {}, "text", enum, type("Dict", (dict,), {})(typestr="<f4", data=(8, False), shape=(4,))),
}  # fmt: skip
_ODD_DIRECT = {
    "cupy": {"ndim": (-1, 9, 2**70, None, "x", 1.0), "shape": (None, 4, ("x",), [4], (2.5,), (_Own(4),), {4: 1},
             *_EMPTY),
             "strides": (None, ("x",), (4, 4), (2**63,), (1.5,), (_Own(4),), {16: 1}, *_EMPTY),
             "ptr": (None, -1, 2**64, "x", 1.0, _Own(4096)),
             "dtype": (None, 5, "<f4"),
             "_c_contiguous": (Raises(ValueError),)},
    "torch": {"ndim": (-1, 9, None), "shape": (None, 4, ("x",), [4], {4: 1}, *_EMPTY),
              "stride": (None, ("x",), (4, 4), (_Own(1),), {4: 1}, *_EMPTY),
              "data_ptr": (None, -1, 2**64, "x"), "dtype": (None, 5), "is_cuda": (False,),
              "is_conj": (True,)},
    "numba": {"shape": (None, 4, ("x",), [4], (4, 4), (2.5,), (_Own(4),), {4: 1}, *_EMPTY),
              "strides": (None, ("x",), (4, 4), (2**63,), (2.5,), (_Own(4),), {16: 1}, *_EMPTY),
              "device_pointer": (-1, 2**64, None, "x", _Own(4096)), "dtype": (None, 5, "<f4"),
              "stream": ("x", 77, -1, 2**64, _Own(77))},
    "exchange": {"is_cuda": (False,), "is_conj": (True,)},
    "dlpack": {"device": (None, (1, 0), (13, 0), (2,), ("x", 0), (2, 0, 0), [2, 0]), "ndim": (-1, 2**31 - 1, 65),
               "code": (7, 3, 17), "bits": (4, 12, 0, 128), "lanes": (2, 0), "no shape": (True,),
               "no strides": (False,),
               "capsule": (None, 5, "x"), "version": ((2, 0), (0, 5))},
}  # fmt: skip


_ODD_DIRECT["versioned"] = _ODD_DIRECT["old"] = _ODD_DIRECT["dlpack"]


def every_odd(library: str) -> Iterator[tuple[str, object]]:
    """Return what may be wrong with an array of a library: an attribute, and what it tells or raises."""
    for name, values in _odd(library).items():
        yield from ((name, value) for value in values)
        if _may_raise(library, name):
            yield from ((name, libraries.Raises(error)) for error in (ValueError, TypeError, AttributeError))


def _odd(library: str) -> dict[str, Any]:
    return _ODD_INTERFACE if library in ("interface", "instance") else _ODD_DIRECT[library]


def _may_raise(library: str, name: str) -> bool:
    return library != "exchange" and name not in ("ndim", "code", "bits", "lanes")


@st.composite
def malformed(draw: Any, library: str, state: State) -> State:
    """Return a state in which something is wrong, or raises."""
    odd = _odd(library)
    name = draw(st.sampled_from(tuple(odd)))
    raises = _may_raise(library, name) and draw(st.integers(0, 4)) == 0
    value = draw(_ERRORS) if raises else draw(st.sampled_from(odd[name]))
    return state._replace(odd=((name, value),))


@st.composite
def _array(draw: Any, parameter: Any) -> Array:
    """Return an array that a parameter takes, or nearly."""
    _, typestr, ndim, layout, _, _ = parameter
    library = draw(st.sampled_from(libraries.LIBRARIES[:6] * 4 + libraries.LIBRARIES[6:]))
    states = [draw(_state(typestr, ndim, layout, library))]
    subclass = ""
    what = draw(st.sampled_from(("plain",) * 15 + ("odd", "turns", "subclass")))
    if what == "turns":
        states.append(draw(_state(typestr, ndim, layout, library)))
    if what == "odd":
        states[0] = draw(malformed(library, states[0]))
    if what == "subclass" and library in ("cupy", "torch", "exchange"):
        subclass = draw(st.sampled_from(libraries.SUBCLASSES))
    return Array(library, tuple(states), subclass)


@st.composite
def _argument(draw: Any, parameter: Any) -> Any:
    """Return an argument for a parameter."""
    if draw(st.integers(0, 49)) == 0:
        return Made(draw(st.sampled_from(NUMBERS)))
    if parameter[0] == "array":
        return draw(_array(parameter))
    if parameter[0] == "tuple":
        return Items(tuple([draw(_argument(member)) for member in parameter[1]]))
    if parameter[0] == "record":
        odd = (("descr", _RECORD.descr),)
        return Array("interface", (State("|V16", draw(st.sampled_from(((), (1,), (2,)))), odd=odd),))
    if parameter[0] in ("elements", "buffer", "promised"):
        ndim, layout = draw(st.sampled_from((1, 1, 2, 0, 3))), "C" if parameter[0] == "buffer" else "A"
        if parameter[0] == "promised":
            ndim, layout = parameter[2:4]
        return draw(_array(("array", parameter[1], ndim, layout, False, "")))
    if parameter[0] in ("datetime", "constant", "struct", "type"):
        family = parameter[0]
    else:
        text = parameter[1]
        family = "pointer" if text.endswith("*") else "?" if text == "bool" else text.strip("u0123456789")
    fitting = draw(st.integers(0, 9)) > 0
    return Made(draw(st.sampled_from(_FITTING[family] if fitting else NUMBERS)))


_EXACT_NUMBERS = ("int32", "int64", "uint64", "float32", "bool")
_EXACT_CONSTANTS = (1, True, 1.0, "relu", None, 16, 0.0, 2**63)


@st.composite
def _variant_parameter(draw: Any) -> Any:
    """Return a parameter of a kernel that is made in many variants, as Triton's are."""
    kind = draw(st.sampled_from(("elements", "number", "number", "constant", "constant")))
    divisor = draw(st.sampled_from((1, 16)))
    if kind == "elements":
        return kind, draw(st.sampled_from(("<f4", "<f4", "<i8", "bfloat16"))), divisor, False
    if kind == "number":
        return kind, draw(st.sampled_from(_EXACT_NUMBERS)), divisor, draw(st.sampled_from((None, None, None, (0, 100))))
    return kind, draw(st.sampled_from(_EXACT_CONSTANTS)), False


@st.composite
def _other_variant(draw: Any, parameter: Any) -> Any:
    """Return the same parameter in another variant: with another hint, type or value, or a constant in its place."""
    kind, what, *_ = parameter
    if draw(st.booleans()):
        return parameter
    if kind == "elements":
        return draw(st.sampled_from(((kind, what, 1, False), (kind, what, 16, False), (kind, "<f4", 16, False))))
    if kind == "number" and draw(st.integers(0, 3)):
        return kind, draw(st.sampled_from((what, *_EXACT_NUMBERS))), draw(st.sampled_from((1, 16))), None
    return "constant", draw(st.sampled_from(_EXACT_CONSTANTS)), False


@st.composite
def _kernel_in_variants(draw: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return a kernel of many variants, exact or not, and the parameters of each."""
    first = [draw(_variant_parameter()) for _ in range(draw(st.sampled_from((1, 2, 3, 4))))]
    variants = [first, *[[draw(_other_variant(each)) for each in first] for _ in range(draw(st.integers(0, 9)))]]
    record: dict[str, Any] = {"overloads": [overload(each, number) for number, each in enumerate(variants)]}
    if draw(st.integers(0, 3)):
        hints = st.sampled_from(({}, {}, {"hints": "none"}, {"hints": "no alignment"}))
        annotations = st.sampled_from(({}, {}, {}, {"annotation": "i64"}, {"annotation": "fp32"}))
        names = "abcd"[: len(first)]
        arguments = [{"name": name, **draw(hints), **draw(annotations)} for name in names]
        record |= {"exact": True, "arguments": arguments}
    return record, variants


@st.composite
def _kernel(draw: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return a kernel of a few overloads, and the parameters of each."""
    first = [draw(_parameter()) for _ in range(draw(st.sampled_from((1, 1, 2, 2, 3, 4))))]
    others = draw(st.integers(0, 3))
    overloads = [first, *[[_variant(draw, parameter) for parameter in first] for _ in range(others)]]
    exact = draw(st.sampled_from((False, False, True)))
    found = [
        overload(parameters, number, exact=exact, apart=draw(st.integers(0, 3)) == 0)
        for number, parameters in enumerate(overloads)
    ]
    return {"overloads": found}, overloads


@st.composite
def cases(draw: Any) -> Case:
    """Return a kernel, and tuples of arguments that follow each other."""
    kind = _kernel() if draw(st.integers(0, 2)) else _kernel_in_variants()
    record, overloads = draw(kind)
    record |= {"name": "k", "origin": "mypkg._kernels:k"}
    chosen = draw(st.sampled_from(overloads))
    tuples: list[tuple[Any, ...]] = []
    while len(tuples) < STEPS:
        if not tuples or draw(st.integers(0, 5)) == 0:
            tuples.append(tuple([draw(_argument(parameter)) for parameter in chosen]))
        elif draw(st.booleans()):
            tuples.append(draw(st.sampled_from(tuples)))
        else:
            at = draw(st.integers(0, len(chosen) - 1))
            args = [*draw(st.sampled_from(tuples))]
            args[at] = draw(_argument(draw(st.sampled_from([chosen, *overloads]))[at]))
            tuples.append(tuple(args))
    stream = draw(st.sampled_from((None, None, None, 0, 0, 1, 77)))
    cupy, torch = draw(st.sampled_from(((0, 0), (0, 0), (77, 77), (77, 78), (0, 77), (1, 0), (2, 2), (77, 1))))
    return Case(record, tuples, stream, cupy, torch)
