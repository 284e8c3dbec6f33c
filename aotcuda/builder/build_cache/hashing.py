"""Hash values: the digests are the names of entries.

Two values have the same digest only if they are equal in every part. A value without canonical form has no digest, so
results that depend on it are not stored.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from aotcuda.arch import Target

if TYPE_CHECKING:
    from collections.abc import Sequence


class NamelessError(TypeError):
    """A value has no canonical form."""


def digest(*parts: object) -> str:
    """Return the digest of values: numbers, text, bytes, paths, targets, dataclasses, and containers of those.

    Raises:
        NamelessError: A value has another type.
    """
    whole = hashlib.sha256()
    _feed(whole, parts)
    return whole.hexdigest()


def _feed(whole: hashlib._Hash, value: object) -> None:
    match value:
        case str():
            _add(whole, "s", value)
        case bytes():
            _add(whole, "b", value)
        case None | bool() | int() | float():
            _add(whole, "n", repr(value))
        case PurePath():
            _add(whole, "p", str(value))
        case Target():
            _add(whole, "a", f"{value.kind} {value}")
        case tuple() | list():
            _feed_all(whole, "t", value)
        case set() | frozenset():
            _feed_all(whole, "e", sorted(digest(item) for item in value))
        case Mapping():
            _feed_all(whole, "m", [part for item in value.items() for part in item])
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            _add(whole, "d", f"{type(value).__module__}.{type(value).__qualname__}")
            _feed_all(whole, "f", [part for name in _fields(type(value)) for part in (name, getattr(value, name))])
        case _:
            message = f"a {type(value).__name__} has no canonical form"
            raise NamelessError(message)


@functools.cache
def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _feed_all(whole: hashlib._Hash, mark: str, items: Sequence[object]) -> None:
    _add(whole, mark, str(len(items)))
    for item in items:
        _feed(whole, item)


def _add(whole: hashlib._Hash, mark: str, content: str | bytes) -> None:
    data = content.encode(errors="surrogatepass") if isinstance(content, str) else content
    whole.update(f"{mark}{len(data)}:".encode())
    whole.update(data)
