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
    hasher = hashlib.sha256()
    _feed(hasher, parts)
    return hasher.hexdigest()


def _feed(hasher: hashlib._Hash, value: object) -> None:
    match value:
        case str():
            _add(hasher, "s", value)
        case bytes():
            _add(hasher, "b", value)
        case None | bool() | int() | float():
            _add(hasher, "n", repr(value))
        case PurePath():
            _add(hasher, "p", str(value))
        case Target():
            _add(hasher, "a", f"{value.kind} {value}")
        case tuple() | list():
            _feed_all(hasher, "t", value)
        case set() | frozenset():
            _feed_all(hasher, "e", sorted(digest(item) for item in value))
        case Mapping():
            _feed_all(hasher, "m", [part for item in value.items() for part in item])
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            _add(hasher, "d", f"{type(value).__module__}.{type(value).__qualname__}")
            _feed_all(hasher, "f", [part for name in _fields(type(value)) for part in (name, getattr(value, name))])
        case _:
            message = f"a {type(value).__name__} has no canonical form"
            raise NamelessError(message)


@functools.cache
def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _feed_all(hasher: hashlib._Hash, mark: str, items: Sequence[object]) -> None:
    _add(hasher, mark, str(len(items)))
    for item in items:
        _feed(hasher, item)


def _add(hasher: hashlib._Hash, mark: str, content: str | bytes) -> None:
    data = content.encode(errors="surrogatepass") if isinstance(content, str) else content
    hasher.update(f"{mark}{len(data)}:".encode())
    hasher.update(data)
