"""The shapes that depend on the front ends: a front end's name, and values that a module's front end reads."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import json
from typing import TYPE_CHECKING, Any, cast

from aotcuda import registry
from aotcuda.builder.config import keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aotcuda.builder.config.keys import Key
    from aotcuda.builder.config.shapes import Shape


@dataclasses.dataclass(frozen=True, slots=True)
class FrontEndName:
    """The name of a front end, which aotcuda or an installed distribution registers."""

    @property
    def expected(self) -> str:
        return " or ".join(f'"{name}"' for name in registry.names())

    def read(self, value: object, key: Key) -> str:
        if isinstance(value, str) and registry.find(value) is not None:
            return value
        matches = difflib.get_close_matches(value.lower(), registry.names(), n=1) if isinstance(value, str) else []
        remedy = f"did you mean {keys.string(matches[0])}?" if matches else None
        problem = f"expected {self.expected}, found {keys.value_text(value)}"
        raise key.error(problem, remedy)

    def schema(self) -> dict[str, Any]:
        """Implement Shape.schema: the names that are registered on this machine."""
        return {"type": "string", "enum": list(registry.names())}


@dataclasses.dataclass(frozen=True, slots=True)
class UnreadValue:
    """A value that a front end reads later."""

    value: object
    key: Key
    part: str

    def read(self, shapes: Mapping[str, Shape], front_end: str, examples: Mapping[str, str]) -> Any:
        """Return the value as a front end reads it, by its shapes; errors end with one of its `examples`.

        Raises:
            ConfigError: The front end does not accept it.
        """
        shape = shapes.get(self.part)
        if shape is None:
            problem = f"the front end {front_end} has no {self.part}"
            raise self.key.error(problem, "remove the key, or move it to a module of another front end")
        example = examples.get(self.part)
        hint = self.key.hint if example is None else f"write for example {self.part} = {example}"
        return shape.read(self.value, dataclasses.replace(self.key, hint=hint))


@dataclasses.dataclass(frozen=True, slots=True)
class FrontEndValue:
    """A value that the module's front end reads; the table determines the front end."""

    part: str

    @property
    def expected(self) -> str:
        """Implement Shape.expected for the default front end."""
        return self.default.expected

    @property
    def default(self) -> Shape:
        """Return the shape of the default front end, or of the first one that has the key."""
        return next(self._shapes((registry.DEFAULT, *registry.BUILT_IN)))

    def is_of(self, front_end: str) -> bool:
        """Return True if a front end has the key."""
        return next(self._shapes((front_end,)), None) is not None

    def read(self, value: object, key: Key) -> UnreadValue:
        return UnreadValue(value, key, self.part)

    def schema(self) -> dict[str, Any]:
        """Implement Shape.schema: the values that any registered front end accepts."""
        schemas_by_text = {
            json.dumps(schema): schema for schema in (shape.schema() for shape in self._shapes(registry.names()))
        }
        schemas = list(schemas_by_text.values())
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}

    def _shapes(self, names: tuple[str, ...]) -> Iterator[Shape]:
        for name in names:
            registered = registry.find(name)
            tables = importlib.import_module(registered.tables) if registered is not None else None
            shape = getattr(tables, "SHAPES", {}).get(self.part)
            if shape is not None:
                yield cast("Shape", shape)
