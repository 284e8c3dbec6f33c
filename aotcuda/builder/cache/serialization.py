"""Serialize values of entries: a line of JSON, then the bytes, which the JSON names by their offsets.

An entry may come from another machine, so reading one runs no code, and makes instances only of the classes in
`CLASSES`. A decoded value equals the original; tuples stay tuples.
"""

from __future__ import annotations

import json
import types
from typing import TYPE_CHECKING, Any, Literal

from aotcuda.arch import Target
from aotcuda.builder.compile.job import BuiltModule, CompletedPlan, LinkedItem, Result
from aotcuda.builder.config.model import Options
from aotcuda.builder.frontends.protocol import (
    Assembled,
    Callbacks,
    CompiledFunction,
    CompiledKernel,
    Definition,
    External,
    Fault,
    GpuQuery,
    Ir,
    Launch,
    LinkInput,
    ParameterBlock,
    Unit,
)
from aotcuda.builder.link.images import Image, KernelCode
from aotcuda.builder.link.symbols import Symbols
from aotcuda.common import declared
from aotcuda.manifest import linkable, schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CLASSES: Mapping[str, type] = {
    item.__name__: item
    for item in (
        *(Assembled, Callbacks, CompiledFunction, CompiledKernel, External, Fault, Ir, LinkInput, Symbols),
        *(Definition, Launch, ParameterBlock),
        *(BuiltModule, CompletedPlan, GpuQuery, Image, KernelCode, LinkedItem, Options, Result, Unit),
    )
}


class ForeignValueError(ValueError):
    """A value of a type that entries cannot have, or data that is not an entry."""


def encode(value: object) -> bytes:
    """Return a value as the content of an entry's file.

    Raises:
        ForeignValueError: A part of it cannot be stored.
    """
    offsets: dict[bytes, list[int]] = {}
    line = json.dumps(_encode(value, offsets), separators=(",", ":"), allow_nan=True).encode("ascii")
    return b"\n".join([line, b"".join(offsets)])


def _encode(value: Any, offsets: dict[bytes, list[int]]) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is bytes:
        if value not in offsets:
            start = next(reversed(offsets.values()))[1] if offsets else 0
            offsets[value] = [start, start + len(value)]
        return {"b": offsets[value]}
    if kind is list:
        return [_encode(item, offsets) for item in value]
    if kind is tuple:
        return {"t": [_encode(item, offsets) for item in value]}
    if kind is Target:
        return {"a": [value.kind, value.major, value.minor, value.suffix]}
    if kind is dict:
        return {"d": [[_encode(key, offsets), _encode(item, offsets)] for key, item in value.items()]}
    if CLASSES.get(kind.__name__) is kind:
        given = declared.given(value)
        return {"c": kind.__name__, "f": {name: _encode(item, offsets) for name, item in given.items()}}
    message = f"a {kind.__module__}.{kind.__qualname__} cannot be stored"
    raise ForeignValueError(message)


def decode(data: bytes, shape: Any = object) -> Any:
    """Return the value that `encode` serialized as `data`.

    Args:
        data: The content of an entry's file.
        shape: The type that the value must have, as in annotations; its parts are checked as well.

    Raises:
        ForeignValueError: `data` holds no value, or one of another type.
    """
    line, _, stored = data.partition(b"\n")
    try:
        value = _decode(json.loads(line), _Bytes(stored))
        if declared.fits(value, shape, _NAMES):
            return value
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        message = f"not a stored value: {error}"
        raise ForeignValueError(message) from error
    message = "a value of another type"
    raise ForeignValueError(message)


class _Bytes:
    """The bytes of an entry's file behind its line of JSON."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = len(data)
        self._known: dict[tuple[int, int], bytes] = {}

    def part(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`; all parts together are no longer than the data."""
        if (start, end) not in self._known:
            self._left -= end - start
            if not 0 <= start <= end <= len(self._data) or self._left < 0:
                message = f"there are no bytes from {start} to {end}"
                raise ValueError(message)
            self._known[start, end] = self._data[start:end]
        return self._known[start, end]


def _decode(data: Any, stored: _Bytes) -> Any:
    kind = type(data)
    if kind is list:
        return _decode_all(data, stored)
    if kind is not dict:
        return data
    if type(items := data.get("t")) is list:  # most values are tuples
        return tuple(_decode_all(items, stored))
    match [*data.items()]:
        case [("b", [int(start), int(end)])]:
            return stored.part(start, end)
        case [("a", [("sass" | "ptx") as kind, int(major), int(minor), ("" | "a" | "f") as suffix])]:
            return Target(kind, major, minor, suffix)
        case [("d", [*items])]:
            return {_decode(key, stored): _decode(item, stored) for key, item in items}
        case [("c", str(name)), ("f", dict(fields))]:
            return CLASSES[name](**dict(zip(fields, _decode_all(fields.values(), stored), strict=True)))
    message = f"{sorted(data)} has no meaning"
    raise ValueError(message)


def _decode_all(items: Iterable[Any], stored: _Bytes) -> list[Any]:
    return [_decode(item, stored) if type(item) in (dict, list) else item for item in items]


_NAMES = {
    "Kind": Literal[*linkable.SUFFIXES],
    "Argument": schema.Argument,
    "Callbacks": Callbacks,
    "CompiledFunction": CompiledFunction,
    "CompiledKernel": CompiledKernel,
    "FixedLaunch": schema.FixedLaunch,
    "GpuQuery": GpuQuery,
    "Image": Image,
    "LinkedItem": LinkedItem,
    "Mapping": dict,
    "Options": Options,
    "Parameter": schema.Parameter,
    "Source": schema.Source,
    "Target": Target,
    "Unit": Unit,
    "manifest": schema,
    # Entries do not contain plans, reads, times, and what only workers use.
    **dict.fromkeys(["Generated", "Linked", "ModulePlan", "Stamp", "Step"], types.NoneType),
}
"""Names in the annotations of stored classes that their modules import for type checkers alone."""
