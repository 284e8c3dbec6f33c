"""Tables with known keys: dataclasses whose field metadata defines how keys are read and documented."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aotcuda.builder.config.keys import Key
    from aotcuda.builder.config.shapes import Shape

_METADATA = "aotcuda"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One key of a table.

    Attributes:
        shape: The shape of its value.
        meaning: A description for the schema and the reference.
        example: A value, as TOML.
        default: The default in words, if the field's own default would not help the reader.
        alias: Another spelling of the key.
        from_name: True if the default is the name of the table itself.
        instead_of: Another key; exactly one of the two must be given.
    """

    shape: Shape
    meaning: str
    example: str
    default: str = ""
    alias: str = ""
    from_name: bool = False
    instead_of: str = ""


def setting(shape: Shape, meaning: str, example: str, **options: Any) -> dict[str, Setting]:
    """Return the metadata that makes a dataclass field a key; the arguments are the attributes of `Setting`."""
    return {_METADATA: Setting(shape=shape, meaning=meaning, example=example, **options)}


_Entries = dict[str, tuple[dataclasses.Field[Any], Setting]]


def settings(cls: type) -> _Entries:
    """Return the keys of the table that `cls` holds, in the order of its fields; others have no metadata."""
    return {
        field.name.replace("_", "-"): (field, field.metadata[_METADATA])
        for field in dataclasses.fields(cls)
        if _METADATA in field.metadata
    }


def is_required(field: dataclasses.Field[Any], entry: Setting) -> bool:
    """Return True if the key of `field` must be given."""
    defaults = (field.default, field.default_factory)
    return not entry.from_name and all(default is dataclasses.MISSING for default in defaults)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A table that is read into an instance of `cls`. Its fields `key` and `name`, if there are any, get its key.

    If `short` names a key, a value that is not a table becomes the value of that key; the field `short_key`, if there
    is one, gets the key of the value.
    """

    cls: type
    expected: str
    short: str = ""

    @property
    def either(self) -> tuple[str, ...]:
        """Return the keys of which a table has exactly one."""
        pairs = {name: entry.instead_of for name, (_, entry) in settings(self.cls).items() if entry.instead_of}
        return tuple(dict.fromkeys((*pairs.values(), *pairs)))

    def read(self, value: object, key: Key) -> Any:
        entries = settings(self.cls)
        if isinstance(value, Mapping):
            values = _read_table(entries, value, key)
            self._check_either(value, key)
        elif self.short and isinstance(value, str | list | tuple):
            values = {self.short: entries[self.short][1].shape.read(value, key)}
        else:
            raise key.mismatch(self.expected, value)
        for field in dataclasses.fields(self.cls):
            if field.name == "key":
                values["key"] = str(key)
            elif field.name == "short_key":
                values["short_key"] = self._short_key(value, key)
            elif field.name == "name" or (field.name in entries and entries[field.name][1].from_name):
                values.setdefault(field.name, key.name)
        return self.cls(**values)

    def _check_either(self, table: Mapping[str, object], key: Key) -> None:
        names = [name for name in self.either if name in table]
        if len(names) > 1:
            problem = f"given together with {names[0]}"
            raise key.child(names[1]).error(problem, "remove one of the two")
        if self.either and not names:
            example = settings(self.cls)[self.either[0]][1].example
            problem = f"{' or '.join(self.either)} is missing"
            raise key.error(problem, f"write for example {self.either[0]} = {example}")

    def _short_key(self, value: object, key: Key) -> str:
        """Return the key of the value of `short`: the table's own key if the value stands for the table."""
        if not isinstance(value, Mapping):
            return str(key)
        return str(key.child(_spelling_in(self.short, settings(self.cls)[self.short][1], value, key) or self.short))

    def schema(self) -> dict[str, Any]:
        entries = settings(self.cls)
        properties: dict[str, Any] = {}
        required_keys: list[str] = []
        either: dict[str, Any] = {"oneOf": [{"required": [name]} for name in self.either]} if self.either else {}
        for name, (field, entry) in entries.items():
            properties[name] = _key_schema(field, entry)
            if entry.alias:
                properties[entry.alias] = properties[name] | {"description": f"Another spelling of {name}."}
                one_spelling = {"oneOf": [{"required": [name]}, {"required": [entry.alias]}]}
                either = one_spelling if is_required(field, entry) else {"not": {"required": [name, entry.alias]}}
            elif is_required(field, entry):
                required_keys.append(name)
        table: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        if required_keys:
            table["required"] = required_keys
        table |= either
        return {"anyOf": [entries[self.short][1].shape.schema(), table]} if self.short else table


def _read_table(entries: _Entries, table: Mapping[str, object], key: Key) -> dict[str, Any]:
    """Return the values of the fields whose keys are given; unknown keys are found before wrong values."""
    keys = [name for key_name, (_, entry) in entries.items() for name in (key_name, entry.alias) if name]
    for name in table:
        if name not in keys:
            raise key.child(name).unknown(keys)
    values: dict[str, Any] = {}
    for name, (field, entry) in entries.items():
        spelling = _spelling_in(name, entry, table, key)
        child = key.child(spelling or name, f"write for example {spelling or name} = {entry.example}")
        if spelling:
            values[field.name] = entry.shape.read(table[spelling], child)
        elif is_required(field, entry):
            problem = "this key is missing"
            raise child.error(problem)
    return values


def _spelling_in(name: str, entry: Setting, table: Mapping[str, object], key: Key) -> str | None:
    """Return the spelling of a key that `table` uses, or None if the key is not given."""
    spellings = [spelling for spelling in (name, entry.alias) if spelling in table]
    if len(spellings) > 1:
        problem = f"given together with {name}, which means the same"
        raise key.child(entry.alias).error(problem, "remove one of the two")
    return spellings[0] if spellings else None


def _key_schema(field: dataclasses.Field[Any], entry: Setting) -> dict[str, Any]:
    """Return the schema of one key, with its meaning and its default."""
    schema = entry.shape.schema() | {"description": entry.meaning}
    default = constant_default(field, entry)
    return schema if default is None else schema | {"default": default}


def constant_default(field: dataclasses.Field[Any], entry: Setting) -> object:
    """Return the default of a key as TOML has it, or None if it has none or one that depends on other keys."""
    if field.default == () and not entry.default:
        schema = entry.shape.schema()
        is_table = schema.get("anyOf", [schema])[0].get("type") == "object"  # front ends have different shapes
        return {} if is_table else []
    return field.default if isinstance(field.default, bool | int | str) else None
