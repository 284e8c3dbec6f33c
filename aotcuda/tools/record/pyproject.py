"""Add entries to pyproject.toml, and keep the place, form and comments of all other entries.

New tables are written at the end of the file, and tomlkit edits existing tables. The result is parsed and compared with
the expected content, so a file of unusual form is not damaged.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from aotcuda.common.replacing import replacing
from aotcuda.errors import ConfigError, DependencyError
from aotcuda.registry import DEFAULT_TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from aotcuda.tools.record.tables import Addition

    Comments = Mapping[str, Sequence[str]]

_EMPTY = "aotcuda record --write -- COMMAND adds the signatures that COMMAND launches"
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@contextmanager
def _form_checked() -> Iterator[None]:
    """Raise ConfigError if the form of the file does not allow the change, such as a string in place of a table."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = (
            f"the tables cannot be merged into a pyproject.toml of this form ({error}); the file was not changed: "
            "paste the output of `aotcuda record`"
        )
        raise ConfigError(message) from error


class Editor:
    """Collect changes to the text of a pyproject.toml.

    Args:
        text: The text of the file, without the changes.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._expected: dict[str, Any] = tomllib.loads(text)
        self._edits: list[Callable[[Any], None]] = []
        self._blocks: list[str] = []

    def add_table(self, keys: Sequence[str], values: dict[str, Any], comments: Comments = MappingProxyType({})) -> None:
        """Add a new table.

        Args:
            keys: Its name.
            values: Its content: strings, lists of strings, booleans, and tables of these.
            comments: Lines above the keys of the table; for an empty key, lines below the header.
        """
        with _form_checked():
            self._put(keys, dict(values))
        lines = [f"[{'.'.join(map(quote_key, keys))}]"]
        for key, value in {"": None, **values}.items():
            lines += [f"# {line}" for line in comments.get(key, ())]
            lines += [assignment(key, value)] if key else []
        self._blocks.append("\n".join(lines) + "\n")

    def add_keys(self, keys: Sequence[str], values: dict[str, Any]) -> None:
        """Add keys to an existing table."""

        def edit(document: Any) -> None:
            target = _lookup(document, keys)
            for key, value in values.items():
                target[key] = _item(value)

        self._edits.append(edit)
        with _form_checked():
            for key, value in values.items():
                self._put((*keys, key), value)

    def extend(self, keys: Sequence[str], items: Sequence[str]) -> None:
        """Append items to a list. A string becomes the first item of a list."""

        def edit(document: Any) -> None:
            table = _lookup(document, keys[:-1])
            old = table[keys[-1]]
            if isinstance(old, str):
                trivia = table[keys[-1]].trivia
                new: Any = _item([str(old), *items])
                new.trivia.comment_ws, new.trivia.comment = trivia.comment_ws, trivia.comment
                table[keys[-1]] = new
            else:
                _append(old, items)

        self._edits.append(edit)
        with _form_checked():
            target = _lookup(self._expected, keys[:-1])
            old = target[keys[-1]]
            target[keys[-1]] = [*([old] if isinstance(old, str) else old), *items]

    def get(self, keys: Sequence[str]) -> Any:
        """Return the changed value of a key, or None."""
        try:
            return copy.deepcopy(_lookup(self._expected, keys))
        except (KeyError, TypeError):
            return None

    @property
    def is_changed(self) -> bool:
        """Return True if there are changes."""
        return bool(self._edits or self._blocks)

    def text(self) -> str:
        """Return the changed text.

        Raises:
            ConfigError: The changes cannot be made in a file of this form.
        """
        if not self.is_changed:
            return self._text
        with _form_checked():
            return self._changed_text()

    def _changed_text(self) -> str:
        text = self._text
        newline = "\r\n" if "\r\n" in text else "\n"
        if self._edits:
            document = _parsed(text)
            for edit in self._edits:
                edit(document)
            text = document.as_string()
        if newline == "\r\n":
            text = re.sub(r"\r?\n", newline, text)
        for block in self._blocks:
            gap = "" if not text else newline if text.endswith("\n") else newline * 2
            text += gap + block.replace("\n", newline)
        if tomllib.loads(text) != self._expected:
            message = "the result would have another meaning"
            raise ValueError(message)
        comments = _comments(text)
        removed = [line for line in _comments(self._text) if line not in comments]
        if removed:
            message = f"the comment {removed[0]!r} would be lost"
            raise ValueError(message)
        return text

    def _put(self, keys: Sequence[str], value: Any) -> None:
        target = self._expected
        for key in keys[:-1]:
            target = target.setdefault(key, {})
        if isinstance(value, dict) and keys[-1] in target:
            target[keys[-1]].update(value)
        else:
            target[keys[-1]] = value


def add_entries(
    editor: Editor, keys: Sequence[str], values: dict[str, Any], comments: Comments = MappingProxyType({})
) -> None:
    """Add keys to a table, or add a table with comments if it is missing. Without keys, nothing is added."""
    if values and editor.get(keys) is None:
        editor.add_table(keys, values, comments)
    elif values:
        editor.add_keys(keys, values)


def add_kernels(
    editor: Editor, additions: Sequence[Addition], default_front_end: str, *, with_comments: bool = False
) -> None:
    """Merge kernels into `[tool.aotcuda]`; new tables may have comments. Kernels without types get an empty table."""
    modules: dict[str, list[Addition]] = {}
    for addition in additions:
        modules.setdefault(addition.module, []).append(addition)
    for module, items in modules.items():
        keys = ("tool", "aotcuda", "modules", module)
        if editor.get(keys) is None:
            front_end = items[0].kernel.frontend
            more = {} if front_end == default_front_end else {"frontend": front_end}
            editor.add_table(keys, {"source": items[0].kernel.source, **more})
        comments = {item.key: item.comments for item in items} if with_comments else {}
        new = {item.key: item.value for item in items if item.is_new and item.is_known}
        if not new and editor.get((*keys, "kernels")) is None:
            editor.add_table((*keys, "kernels"), {}, {"": [_EMPTY]})
        add_entries(editor, (*keys, "kernels"), new, comments)
        for item in items:
            if not item.is_new and not item.is_by_hand:
                _extend_kernel(editor, (*keys, "kernels", item.key), item.signatures)


def add_targets(editor: Editor) -> None:
    """Add the default targets to `[tool.aotcuda]` if it has no `arch`."""
    if editor.get(("tool", "aotcuda", "arch")) is None:
        add_entries(editor, ("tool", "aotcuda"), {"arch": list(DEFAULT_TARGETS)})


def _extend_kernel(editor: Editor, keys: tuple[str, ...], signatures: list[str]) -> None:
    value = editor.get(keys)
    if not isinstance(value, dict):
        editor.extend(keys, signatures)
    elif "signatures" in value or "signature" in value:
        editor.extend((*keys, "signatures" if "signatures" in value else "signature"), signatures)
    else:
        editor.add_keys(keys, {"signatures": signatures})


def quote_key(key: str) -> str:
    """Return a key, in quotes if TOML requires them."""
    return key if _BARE.fullmatch(key) else json.dumps(key)


def assignment(key: str, value: Any) -> str:
    """Return `key = value`; a long list, or one of signatures, has one item per line."""
    return f"{quote_key(key)} = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{quote_key(key)} = {_value(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        items = [_value(item) for item in value]
        if not any("(" in item for item in items):
            return f"[{', '.join(items)}]"
        return "[\n" + "".join(f"  {item},\n" for item in items) + "]"
    return json.dumps(value, ensure_ascii=False)


def write(path: Path, text: str) -> None:
    """Replace a file atomically, with its permissions, or create it.

    Raises:
        ConfigError: The file cannot be written.
    """
    try:
        with replacing(path) as partial:
            partial.write_bytes(text.encode())
    except OSError as error:
        message = f"{path} cannot be written ({error.strerror}); the file was not changed"
        raise ConfigError(message) from error


def check(text: str) -> None:
    """Check that a pyproject.toml can be edited.

    Raises:
        ConfigError: tomlkit would change its form.
        DependencyError: tomlkit is not installed.
    """
    try:
        _parsed(text)
    except ValueError as error:
        message = (
            f"pyproject.toml cannot be edited ({error}); the file was not changed: paste the output of `aotcuda record`"
        )
        raise ConfigError(message) from error


def _parsed(text: str) -> Any:
    try:
        import tomlkit  # noqa: PLC0415 (an extra; nothing else of the command line needs it)
    except ImportError as error:
        message = "editing pyproject.toml needs tomlkit; run: pip install 'aotcuda[record]'"
        raise DependencyError(message) from error
    document = tomlkit.parse(text)
    if document.as_string() != text:
        message = "tomlkit would write it in another form"
        raise ValueError(message)
    return document


def _item(value: Any) -> Any:
    import tomlkit  # noqa: PLC0415 (an extra)

    return tomlkit.value(_value(value))


def _append(array: Any, items: Sequence[str]) -> None:
    """Append items to a list: one item per line if the list has several lines, otherwise on its line."""
    text = array.as_string()
    if "\n" not in text and any("(" in item for item in items):
        array.multiline(multiline=True)
    elif "\n" in text:
        lines = text.splitlines()
        first = next((line for line in lines[1:] if line.strip(" ]")), "  ")
        indent = first[: len(first) - len(first.lstrip())] or "  "
        for item in items:
            array.add_line(item, indent=indent, newline=True)
        return
    array.extend(items)


def _lookup(document: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        document = document[key]
    return document


def _comments(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.lstrip().startswith("#")]
