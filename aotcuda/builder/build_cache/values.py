"""Values as entries hold them: JSON, with bytes in files beside it.

An entry may come from another machine, so reading one runs no code: of classes there are those in `CLASSES` alone, and
a value comes back as it was, tuples as tuples.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from aotcuda.builder.frontends.protocol import Callbacks, CompiledFunction, CompiledKernel, External, LinkInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CLASSES: Mapping[str, type] = {
    item.__name__: item for item in (Callbacks, CompiledFunction, CompiledKernel, External, LinkInput)
}


class ForeignValueError(ValueError):
    """A value of a kind that entries do not hold, or the data of an entry that is no value."""


def encode(value: object) -> tuple[Any, list[bytes]]:
    """A value as JSON, and the bytes in it.

    Raises:
        ForeignValueError: It holds something that cannot be kept.
    """
    found: dict[bytes, int] = {}
    return _encode(value, found), list(found)


def _encode(value: Any, found: dict[bytes, int]) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is bytes:
        return {"b": found.setdefault(value, len(found))}
    if kind is list:
        return [_encode(item, found) for item in value]
    if kind is tuple:
        return {"t": [_encode(item, found) for item in value]}
    if kind is dict:
        return {"d": [[_encode(key, found), _encode(item, found)] for key, item in value.items()]}
    if CLASSES.get(kind.__name__) is kind:
        fields = dataclasses.fields(value)
        return {"c": kind.__name__, "f": {item.name: _encode(getattr(value, item.name), found) for item in fields}}
    message = f"a {kind.__module__}.{kind.__qualname__} cannot be kept"
    raise ForeignValueError(message)


def decode(data: Any, files: Sequence[bytes]) -> Any:
    """The value that `encode` made `data` and `files` of.

    Raises:
        ForeignValueError: It made nothing of the kind.
    """
    try:
        return _decode(data, files)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        message = f"no value that was kept: {error}"
        raise ForeignValueError(message) from error


def _decode(data: Any, files: Sequence[bytes]) -> Any:
    if isinstance(data, list):
        return [_decode(item, files) for item in data]
    if not isinstance(data, dict):
        return data
    match data:
        case {"b": int(number)}:
            return files[number]
        case {"t": list(items)}:
            return tuple([_decode(item, files) for item in items])
        case {"d": list(items)}:
            return {_decode(key, files): _decode(item, files) for key, item in items}
        case {"c": str(name), "f": dict(fields)}:
            return CLASSES[name](**{key: _decode(item, files) for key, item in fields.items()})
    message = f"{sorted(data)} stands for nothing"
    raise ValueError(message)


def dump(data: Any) -> bytes:
    """What `encode` gave, as text."""
    return json.dumps(data, separators=(",", ":"), allow_nan=True).encode("ascii")


def load(text: bytes) -> Any:
    """What `dump` wrote.

    Raises:
        ForeignValueError: It is no JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"no value that was kept: {error}"
        raise ForeignValueError(message) from error
