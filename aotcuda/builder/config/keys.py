"""Spell keys of `pyproject.toml` as TOML does, and make errors that begin with them."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aotcuda.common import suggest
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST = 60
_LONGEST_KEY = 250
"""The limit of a key in characters. Readers of an error search for the key, so it is rarely shortened."""


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """A key from the root of the file, or an item of a list: `tool.aotcuda.modules."mypkg.kernels".link[0].path`.

    Attributes:
        text: The whole key as TOML writes it.
        name: Its last part, without quotes.
        hint: The remedy for a wrong value; errors end with it.
    """

    text: str
    name: str
    hint: str = ""

    def __str__(self) -> str:
        return self.text

    def child(self, name: str, hint: str | None = None) -> Key:
        """Return the key `name` in the table at this key; its hint is `hint`, or by default this key's hint."""
        return Key(f"{self.text}.{quote(name)}", name, self.hint if hint is None else hint)

    def item(self, index: int) -> Key:
        """Return the key of item `index` of the list at this key."""
        return Key(f"{self.text}[{index}]", self.name, self.hint)

    def error(self, problem: str, remedy: str | None = None) -> ConfigError:
        """Return an error for this key: the problem, then the remedy, which is the key's hint by default."""
        remedy = self.hint if remedy is None else remedy
        return ConfigError(f"{self.text}: {problem}" + (f"; {remedy}" if remedy else ""))

    def mismatch(self, expected: str, value: object) -> ConfigError:
        """Return an error for a value of the wrong type or form."""
        return self.error(f"expected {expected}, found {value_text(value)}")

    def unknown(self, names: Iterable[str]) -> ConfigError:
        """Return an error for a key that does not exist, with the most similar key."""
        names = list(names)
        spelling = self.name.lower().replace("_", "-")
        near = suggest.nearest(spelling, names) or next((name for name in names if name.startswith(spelling)), None)
        remedy = f"did you mean {near}?" if spelling and near else f"the keys here are {', '.join(names)}"
        return self.error("unknown key", remedy)


ROOT = Key("tool.aotcuda", "aotcuda")


def quote(name: str) -> str:
    """Return `name` as TOML writes it in a key: bare if it can be, quoted otherwise."""
    return name if _BARE.fullmatch(name) else string(name, _LONGEST_KEY)


def string(text: str, longest: int = _LONGEST) -> str:
    """Return `text` as a TOML string on one line, shortened if it is long."""
    if len(text) > longest:
        text = text[: longest - 3] + "..."
    return json.dumps(text, ensure_ascii=not text.isprintable())


def value_text(value: object) -> str:
    """Return a value in the words of TOML: `the string "sm_90"`, `the integer 3`, `a table`."""
    if isinstance(value, str):
        return f"the string {string(value)}"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, int | float):
        return f"the {'integer' if isinstance(value, int) else 'float'} {value}"
    if isinstance(value, list | tuple | Mapping):
        kind = "table" if isinstance(value, Mapping) else "list"
        return f"a {kind}" if value else f"an empty {kind}"
    return f"a {type(value).__name__}"
