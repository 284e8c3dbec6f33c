"""Check values that come from files against types.

One checker serves manifests, files of variants and entries of the build cache. A type is written as in annotations: a
TypedDict (its other keys are ignored), a dataclass, `Literal`, a union, `list[X]`, `tuple[X, ...]`, `dict[str, X]`, a
plain class, or `Annotated[X, rule]` with a rule such as `Integer`.
"""

from __future__ import annotations

import re
import types
import typing
from typing import Annotated, Any, Literal, NotRequired, Protocol

from . import foreign

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class Rule(Protocol):
    """A rule that a value must keep.

    Attributes:
        name: The values that keep the rule, in words.
    """

    name: str

    def fits(self, value: object) -> bool:
        """Return True if a value keeps the rule."""


class Text:
    """A string that matches a pattern."""

    def __init__(self, pattern: str, name: str) -> None:
        self._pattern = re.compile(pattern, re.ASCII | re.DOTALL)
        self.name = name

    def fits(self, value: object) -> bool:
        """Return True if a value matches."""
        return isinstance(value, str) and self._pattern.fullmatch(value) is not None


class OneOf:
    """One of some strings or numbers."""

    def __init__(self, *values: str | int, name: str = "") -> None:
        self._values = values
        self.name = name or f"one of {', '.join(map(str, values))}"

    def fits(self, value: object) -> bool:
        """Return True if a value is one of them."""
        return any(type(value) is type(item) and value == item for item in self._values)


class Integer:
    """An integer from `start` to one less than `end`; booleans are excluded."""

    def __init__(self, end: int, *, start: int = 0, name: str = "") -> None:
        self._start, self._end = start, end
        bounds = f" below {end:,}" if end < 2**63 else " from 0 to 2**63 - 1" if start == 0 else ""
        self.name = name or f"a whole number{bounds}"

    def fits(self, value: object) -> bool:
        """Return True if a value is in the range."""
        return type(value) is int and self._start <= value < self._end


class ListOf:
    """A list of items for each of which a function returns True."""

    def __init__(self, is_item: Callable[[Any], bool], name: str) -> None:
        self._is_item = is_item
        self.name = name

    def fits(self, value: object) -> bool:
        """Return True if a value is such a list."""
        return type(value) is list and all(map(self._is_item, value))


class Named:
    """A dict whose keys are names; faults write the place of an item as `kernels.axpy`, not `kernels['axpy']`."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule


Whole = Annotated[int, Integer(2**63)]
"""A number of bytes, and every other number that is not negative."""

_NAMES: dict[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a float",
    bytes: "bytes",
    dict: "an object",
    list: "a list",
    types.NoneType: "null",
}
_more: dict[type, Callable[[dict[str, Any], str], Iterator[str]]] = {}


def add_check(declared: type, check: Callable[[dict[str, Any], str], Iterator[str]]) -> None:
    """Add a check of the values of a TypedDict.

    Args:
        declared: The TypedDict.
        check: A function that yields the faults of a value whose keys have their types. It also gets the place of the
            value with a dot, with which places of keys begin.
    """
    _more[declared] = check


def problems(value: object, declared: Any, where: str = "") -> Iterator[str]:
    """Yield the faults of a value with their places: "kernels[3].name is not a string".

    Args:
        value: The value.
        declared: Its type.
        where: Its place.

    Raises:
        RecursionError: The value is nested too deeply.
    """
    return _problems(value, _spec(declared, _NO_NAMES), where)


def fits(value: object, declared: Any, names: Mapping[str, Any] = types.MappingProxyType({})) -> bool:
    """Return True if a value and all its parts have their types.

    Args:
        value: The value.
        declared: Its type.
        names: Names in the annotations of dataclasses that their modules import for type checkers alone.
    """
    return _is_valid(value, _spec(declared, names))


def given(value: Any) -> dict[str, Any]:
    """Return the fields of an instance of a dataclass that are not their defaults, by name."""
    fields = vars(type(value))[_FIELDS]
    return {name: item for name, field in fields.items() if (item := getattr(value, name)) is not field.default}


class _Keys:
    """The specification of an object with certain keys; keys in `optional` may be missing."""

    def __init__(self) -> None:
        self.specs: dict[str, Any] = {}
        self.optional: set[str] = set()
        self.more: Callable[[dict[str, Any], str], Iterator[str]] | None = None


class _Instance:
    """The specification of an instance of a dataclass."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.specs: dict[str, Any] = {}


class _Mapping:
    """The specification of a dict with keys and values of one kind each."""

    def __init__(self, key: Any, value: Any, named: Rule | None = None) -> None:
        self.key, self.value, self.named = key, value, named


class _Items:
    """The specification of a tuple: of each item, or of all items."""

    def __init__(self, specs: list[Any], *, is_repeated: bool) -> None:
        self.specs, self.is_repeated = specs, is_repeated


class _AnyOf:
    """One of several specifications; the first describes the fault of a value that matches none."""

    def __init__(self, *specs: Any) -> None:
        self.specs = specs


_FIELDS = "__dataclass_fields__"
"""The attribute of a dataclass; the run time does not import `dataclasses`."""
_NO_NAMES: Mapping[str, Any] = {}
_known: dict[type, Any] = {}


def _keys(declared: type, names: Mapping[str, Any]) -> _Keys:
    """Return the keys that a TypedDict declares."""
    keys = _known[declared] = _Keys()  # first, since members of a parameter are parameters
    keys.more = _more.get(declared)
    for name, hint in typing.get_type_hints(declared, include_extras=True).items():
        if typing.get_origin(hint) is NotRequired:
            keys.optional.add(name)
            (hint,) = typing.get_args(hint)  # noqa: PLW2901
        keys.specs[name] = _spec(hint, names)
    return keys


def _instance(declared: type, names: Mapping[str, Any]) -> _Instance:
    """Return the specification of a dataclass."""
    instance = _known[declared] = _Instance(declared)
    hints = typing.get_type_hints(declared, localns=dict(names), include_extras=True)
    instance.specs = {name: _spec(hints[name], names) for name in vars(declared)[_FIELDS]}
    return instance


def _spec(hint: Any, names: Mapping[str, Any]) -> Any:
    """Return the specification of a value, from its annotation."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in (object, Any):
        return object
    if isinstance(hint, type) and hint in _known:
        return _known[hint]
    if typing.is_typeddict(hint):
        return _keys(hint, names)
    if isinstance(hint, type) and _FIELDS in vars(hint):
        return _instance(hint, names)
    if origin is Annotated:
        if isinstance(args[1], Named):
            return _Mapping(str, _spec(typing.get_args(args[0])[1], names), args[1].rule)
        return args[1]
    if origin is Literal:
        return OneOf(*args)
    if origin in (typing.Union, types.UnionType):
        return _AnyOf(*[_spec(arg, names) for arg in args])
    if origin is list:
        return [_spec(args[0], names)]
    if origin is tuple:
        is_repeated = args[-1:] == (...,)
        return _Items([_spec(arg, names) for arg in args if arg is not ...], is_repeated=is_repeated)
    if origin is dict and typing.get_origin(args[0]) is Literal:
        keys = _Keys()
        keys.specs = dict.fromkeys(typing.get_args(args[0]), _spec(args[1], names))
        keys.optional = {*keys.specs}
        return keys
    if origin is dict:
        return _Mapping(_spec(args[0], names), _spec(args[1], names))
    return types.NoneType if hint is None else hint


def _problems(value: Any, spec: Any, where: str) -> Iterator[str]:
    if spec is object:
        return
    if isinstance(spec, type):
        if type(value) is not spec:
            yield f"{where} is not {_NAMES.get(spec) or f'of the class {spec.__name__}'}"
    elif (check := _CHECKS.get(type(spec))) is not None:
        yield from check(value, spec, where)
    elif not spec.fits(value):
        yield f"{where} is not {spec.name}"


def _is_valid(value: object, spec: Any) -> bool:
    return next(_problems(value, spec, ""), None) is None


def _union_problems(value: Any, union: _AnyOf, where: str) -> Iterator[str]:
    if not any(_is_valid(value, spec) for spec in union.specs):
        yield from _problems(value, union.specs[0], where)


def _list_problems(value: Any, specs: list[Any], where: str) -> Iterator[str]:
    (spec,) = specs
    if type(value) is not list:
        yield f"{where} is not a list"
    elif spec is not str or not all(type(item) is str for item in value):
        for at, item in enumerate(value):
            if type(item) is not spec:
                yield from _problems(item, spec, f"{where}[{at}]")


def _tuple_problems(value: Any, spec: _Items, where: str) -> Iterator[str]:
    if type(value) is not tuple or not (spec.is_repeated or len(value) == len(spec.specs)):
        yield f"{where} is not a tuple of {'any' if spec.is_repeated else len(spec.specs)} items"
        return
    for at, (item, of_item) in enumerate(zip(value, spec.specs * (len(value) if spec.is_repeated else 1), strict=True)):
        if type(item) is not of_item:
            yield from _problems(item, of_item, f"{where}[{at}]")


def _mapping_problems(value: Any, spec: _Mapping, where: str) -> Iterator[str]:
    if type(value) is not dict:
        yield f"{where} is not an object"
        return
    for key, item in value.items():
        place = f"{where}[{str(key)[:80]!a}]"
        if spec.named is not None:
            place = f"{where}.{foreign.escape(str(key)[:80])}"
            if not spec.named.fits(key):
                yield f"{place} is not {spec.named.name}"
        elif spec.key is not str:
            yield from _problems(key, spec.key, place)
        yield from _problems(item, spec.value, place)


def _object_problems(value: Any, keys: _Keys, where: str) -> Iterator[str]:
    if type(value) is not dict:
        yield f"{where or 'it'} is not an object"
        return
    inner = f"{where}." if where else ""
    is_faulty = False
    for key, spec in keys.specs.items():
        if key in value:
            for fault in _problems(value[key], spec, inner + key):
                is_faulty = True
                yield fault
        elif key not in keys.optional:
            is_faulty = True
            yield f"{inner}{key} is missing"
    if keys.more is not None and not is_faulty:
        yield from keys.more(value, inner)


def _instance_problems(value: Any, spec: _Instance, where: str) -> Iterator[str]:
    if type(value) is not spec.kind:
        yield f"{where} is not of the class {spec.kind.__name__}"
        return
    for name, item in given(value).items():
        if type(item) is not spec.specs[name]:
            yield from _problems(item, spec.specs[name], f"{where}.{name}")


_CHECKS: Mapping[type, Callable[[Any, Any, str], Iterator[str]]] = {
    list: _list_problems,
    _Keys: _object_problems,
    _AnyOf: _union_problems,
    _Items: _tuple_problems,
    _Mapping: _mapping_problems,
    _Instance: _instance_problems,
}
