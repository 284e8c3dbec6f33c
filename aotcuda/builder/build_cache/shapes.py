"""Check that a value from an entry has the type that the build expects: nobody vouches for entries."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from pathlib import Path
from typing import Any, Literal

from aotcuda.arch import Target
from aotcuda.builder.report import Summary
from aotcuda.manifest import linkable, schema

_NAMES = {
    "Kind": Literal[tuple(linkable.SUFFIXES)],
    "Argument": schema.Argument,
    "FixedLaunch": schema.FixedLaunch,
    "Parameter": schema.Parameter,
    "Stamp": types.NoneType,  # entries have no notes of what was read
    "Generated": types.NoneType,
    "Path": Path,
    "Summary": Summary,
    "Target": Target,
}
"""Names in the annotations of stored classes that their modules import for type checkers alone."""


def fits(value: object, hint: Any) -> bool:
    """Return True if a value, and all that it holds, has the type that an annotation declares."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in (object, Any):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, arg) for arg in args)
    if origin is Literal:
        return any(type(value) is type(arg) and value == arg for arg in args)
    if origin is tuple:
        return type(value) is tuple and _items_fit(value, args)
    if hint is list:
        return type(value) is list
    if origin is list:
        return type(value) is list and all(fits(item, args[0]) for item in value)
    if origin is dict:
        return type(value) is dict and all(fits(key, args[0]) and fits(item, args[1]) for key, item in value.items())
    if typing.is_typeddict(hint):
        return schema.fits(value, hint)
    if dataclasses.is_dataclass(hint):
        return type(value) is hint and all(
            fits(getattr(value, name), each) for name, each in _fields(typing.cast("type", hint)).items()
        )
    return type(value) is (types.NoneType if hint is None else hint)


def _items_fit(value: tuple[object, ...], hints: tuple[Any, ...]) -> bool:
    if len(hints) == 2 and hints[1] is ...:
        return all(fits(item, hints[0]) for item in value)
    return len(value) == len(hints) and all(map(fits, value, hints))


@functools.cache
def _fields(declared: type) -> dict[str, Any]:
    return typing.get_type_hints(declared, localns=_NAMES)
