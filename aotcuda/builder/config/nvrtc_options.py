"""The options in `nvrtc-options` that a build passes on; it refuses all others.

NVRTC makes LTOIR, and nvJitLink makes machine code from it. An option of NVRTC for generated code has no effect unless
the linker gets its counterpart. Sources: "Supported Compile Options" in nvrtc.h and "Supported Link Options" in
nvJitLink.h, CUDA 12.9 to 13.5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from aotcuda.builder.config import keys
from aotcuda.builder.config.shapes import ListOf, Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aotcuda.builder.config.keys import Key


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        long: Its long name, without dashes.
        short: Its short name, without dashes.
        value: `""` for an option without a value, `"bool"` for true or false, `"text"` for anything else.
        linker: The counterpart of nvJitLink, with `{}` for the value; empty for options of the language.
    """

    long: str
    short: str
    value: Literal["", "bool", "text"]
    linker: str = ""

    @property
    def spellings(self) -> tuple[str, ...]:
        """Return the option in the form of a command line."""
        return tuple(dash + name for dash, name in (("--", self.long), ("-", self.short)))


OPTIONS = (
    Option("ftz", "ftz", "bool", "-ftz={}"),
    Option("prec-sqrt", "prec-sqrt", "bool", "-prec-sqrt={}"),
    Option("prec-div", "prec-div", "bool", "-prec-div={}"),
    Option("Ofast-compile", "Ofc", "text", "-Ofc={}"),
    Option("ptxas-options", "Xptxas", "text", "-Xptxas={}"),
    Option("jump-table-density", "jtd", "text", "-jump-table-density={}"),
    Option("fno-signed-zeros", "fno-signed-zeros", ""),
    Option("ffinite-math-only", "ffinite-math-only", ""),
    Option("modify-stack-limit", "modify-stack-limit", "bool"),
    Option("no-cache", "no-cache", ""),
    Option("minimal", "minimal", ""),
    Option("define-macro", "D", "text"),
    Option("undefine-macro", "U", "text"),
    Option("pre-include", "include", "text"),
    Option("no-source-include", "no-source-include", ""),
    Option("std", "std", "text"),
    Option("builtin-move-forward", "builtin-move-forward", "bool"),
    Option("builtin-initializer-list", "builtin-initializer-list", "bool"),
    Option("disable-warnings", "w", ""),
    Option("Wreorder", "Wreorder", ""),
    Option("Wconversion", "Wconversion", ""),
    Option("warning-as-error", "Werror", "text"),
    Option("fmax-errors", "fmax-errors", "text"),
    Option("device-as-default-execution-space", "default-device", ""),
    Option("device-int128", "device-int128", ""),
    Option("device-float128", "device-float128", ""),
    Option("display-error-number", "err-no", ""),
    Option("no-display-error-number", "no-err-no", ""),
    Option("diag-error", "diag-error", "text"),
    Option("diag-suppress", "diag-suppress", "text"),
    Option("diag-warn", "diag-warn", "text"),
    Option("brief-diagnostics", "brief-diag", "bool"),
    Option("utf-8", "utf-8", ""),
)

_REMEDY = (
    "builds pass only options of the language on; the keys arch, opt-level, debug, lineinfo, fastmath, fma, "
    "max-registers and include-dirs set all others"
)

_BY_SPELLING = {spelling: option for option in OPTIONS for spelling in option.spellings}
_LETTERS = {option.short: option for option in OPTIONS if len(option.short) == 1 and option.value}


@dataclass(frozen=True, slots=True)
class ParsedOption:
    """An option as the user wrote it: in one item of the list, or in two.

    Attributes:
        index: The number of its first item in the list.
    """

    index: int
    text: str
    option: Option
    value: str | None

    def for_linker(self) -> list[str]:
        """Return the counterparts of an option for nvJitLink; commas divide several options of ptxas."""
        if not self.option.linker or self.value is None:
            return []
        values = self.value.split(",") if self.option.short == "Xptxas" else [self.value]
        numbers = {"true": "1", "false": "0"} if self.option.value == "bool" else {}
        return [self.option.linker.format(numbers.get(value, value)) for value in values]


def read(items: Sequence[str]) -> Iterator[ParsedOption]:
    """Yield the options of a list.

    Raises:
        ValueError: An item is no option. The arguments of the error are the number of the item, and the problem with
            its remedy.
    """
    numbered = iter(enumerate(item.strip() for item in items))
    for index, item in numbered:
        word, equals, remainder = item.partition("=")
        name = word.split()[0] if word.split() else ""
        option, value = _BY_SPELLING.get(name), remainder if equals else None
        if option is None and (letter := _LETTERS.get(item[1:2])) and item.startswith("-") and item[1:2] != "-":
            option, value = letter, re.sub(r"^[\s=]+", "", item[2:])
        elif option is not None and option.short in _LETTERS and name == f"-{option.short}" and item != name:
            value = re.sub(r"^[\s=]+", "", item[2:])
        if option is None:
            raise ValueError(index, f"{keys.string(item)} cannot be used in a build; {_REMEDY}")
        text = item
        if option.value and value is None and name == item:
            _, following = next(numbered, (None, None))
            value, text = following, f"{item} {following}" if following is not None else item
        yield ParsedOption(index, text, option, value)


def included(items: Sequence[str]) -> list[str]:
    """Return the headers that options include before a source."""
    return [parsed.value for parsed in read(items) if parsed.option.long == "pre-include" and parsed.value]


class OptionList:
    """The shape of `nvrtc-options`: a list of options, each of which has its effect."""

    _strings = ListOf(item=Text(), expected="a list of strings that are not empty")
    expected = _strings.expected

    def read(self, value: object, key: Key) -> tuple[str, ...]:
        items: tuple[str, ...] = self._strings.read(value, key)
        try:
            for parsed in read(items):
                if problem := _problem(parsed):
                    raise ValueError(parsed.index, problem)  # noqa: TRY301 (the handler makes the error of the key)
        except ValueError as error:
            index, problem = error.args
            raise key.item(index).error(problem, remedy="") from None
        return items

    def schema(self) -> dict[str, Any]:
        return self._strings.schema()


def _problem(parsed: ParsedOption) -> str:
    """Return the reason why an option cannot be used and the remedy, empty if it can."""
    option, text = parsed.option, keys.string(parsed.text)
    name = parsed.text.partition("=")[0].split()[0]
    if option.value and not parsed.value:
        return f"{text} has no value; write {name}={'true' if option.value == 'bool' else 'VALUE'}"
    if option.value == "bool" and parsed.value not in ("true", "false"):
        return f"{text} must be true or false; write {name}=true"
    if not option.value and parsed.text != name:
        return f"{text} takes no value; write {name}"
    return ""
