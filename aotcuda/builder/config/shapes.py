"""The shapes that a value in `[tool.aotcuda]` can have; each one reads a value and describes itself as JSON Schema.

Shapes are attached to the fields of the dataclasses in `aotcuda.builder.config.model`, so the parser, the
schema and the reference in the documentation have one source.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from aotcuda.builder.config.keys import Key


class Shape(Protocol):
    """The methods of every shape."""

    @property
    def expected(self) -> str:
        """Return the shape in words, as in "expected a list of strings"."""

    def read(self, value: object, key: Key) -> Any:
        """Return the value for the dataclass, or raise ConfigError with `key`."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema (draft 7) of the values."""


@dataclasses.dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    expected: str = "true or false"

    def read(self, value: object, key: Key) -> bool:
        if not isinstance(value, bool):
            raise key.mismatch(self.expected, value)
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclasses.dataclass(frozen=True, slots=True)
class Integer:
    """An integer within bounds, both included."""

    lowest: int
    highest: int

    @property
    def expected(self) -> str:
        return f"an integer from {self.lowest} to {self.highest}"

    def read(self, value: object, key: Key) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not self.lowest <= value <= self.highest:
            raise key.mismatch(self.expected, value)
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.lowest, "maximum": self.highest}


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """One of a few strings."""

    choices: tuple[str, ...]

    @property
    def expected(self) -> str:
        return " or ".join(f'"{choice}"' for choice in self.choices)

    def read(self, value: object, key: Key) -> str:
        if not isinstance(value, str) or value not in self.choices:
            raise key.mismatch(self.expected, value)
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.choices)}


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """A string that matches `pattern` (the part that JSON Schema can express too) and passes `check` (the rest).

    `check` returns the value for the configuration, or raises ValueError with the fact and the remedy. `explain`
    returns the fact and the remedy for a string that does not match.
    """

    expected: str = "a string that is not empty"
    pattern: str = r"\S"
    check: Callable[[str], object] | None = None
    explain: Callable[[str], str] | None = None

    def read(self, value: object, key: Key) -> Any:
        if not isinstance(value, str) or not re.search(self.pattern.replace("$", r"\Z"), value):
            if isinstance(value, str) and self.explain is not None:
                raise key.error(self.explain(value), remedy="")
            raise key.mismatch(self.expected, value)
        if self.check is None:
            return value
        try:
            return self.check(value)
        except ValueError as error:
            raise key.error(str(error), remedy="") from None

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": self.pattern}


@dataclasses.dataclass(frozen=True, slots=True)
class Macro:
    """The value of a preprocessor macro; true and false become 1 and 0."""

    expected: str = "a string, an integer or a boolean"

    def read(self, value: object, key: Key) -> str:
        if not isinstance(value, str | int):
            raise key.mismatch(self.expected, value)
        return str(int(value)) if isinstance(value, bool) else str(value)

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "integer", "boolean"]}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ListOf:
    """A list; if `single`, one item may be written without the brackets."""

    item: Shape
    expected: str
    shortest: int = 0
    longest: int | None = None
    single: bool = False

    def read(self, value: object, key: Key) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            if not self.single or isinstance(value, Mapping):
                raise key.mismatch(self.expected, value)
            return (self.item.read(value, key),)
        if len(value) < self.shortest:
            raise key.mismatch(self.expected, value)
        if self.longest is not None and len(value) > self.longest:
            problem = f"the list has {len(value)} items, and {self.longest} at most are allowed"
            raise key.error(problem)
        return tuple(self.item.read(item, key.item(index)) for index, item in enumerate(value))

    def schema(self) -> dict[str, Any]:
        item = self.item.schema()
        array: dict[str, Any] = {"type": "array", "items": item}
        if self.shortest:
            array["minItems"] = self.shortest
        if self.longest is not None:
            array["maxItems"] = self.longest
        return {"anyOf": [item, array]} if self.single else array


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableOf:
    """A table whose keys are names that the user chooses, read in the order of the file.

    The items of the result are pairs of name and value, or values alone if they contain their names (`named`).
    """

    name: Text
    value: Shape
    expected: str
    shortest: int = 0
    named: bool = False

    def read(self, value: object, key: Key) -> tuple[Any, ...]:
        if not isinstance(value, Mapping) or len(value) < self.shortest:
            raise key.mismatch(self.expected, value)
        items = []
        for name, item in value.items():
            self.name.read(name, key.child(name, "choose another name"))
            result = self.value.read(item, key.child(name))
            items.append(result if self.named else (name, result))
        return tuple(items)

    def schema(self) -> dict[str, Any]:
        schema = {
            "type": "object",
            "patternProperties": {self.name.pattern: self.value.schema()},
            "additionalProperties": False,
        }
        return schema | ({"minProperties": self.shortest} if self.shortest else {})
