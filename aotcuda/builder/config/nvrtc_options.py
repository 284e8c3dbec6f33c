"""The options of NVRTC and nvJitLink, and the way in which a build treats each one in `nvrtc-options`.

NVRTC makes LTOIR, and nvJitLink makes machine code from it. An option of NVRTC for generated code has no effect unless
the linker gets its counterpart. A table lists each option: it is for the compiler alone, is passed to both, is set by a
key of `[tool.aotcuda]`, or is refused.

Sources: "Supported Compile Options" in nvrtc.h and "Supported Link Options" in nvJitLink.h, CUDA 12.9 to 13.5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from aotcuda.builder.config import keys
from aotcuda.builder.config.shapes import ListOf, Text
from aotcuda.common import suggest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aotcuda.builder.config.keys import Key

Use = Literal["compile", "both", "key", "refused"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        long: Its long name, without dashes; the linker's options have only short ones.
        short: Its short name, without dashes; empty if there is none.
        value: `""` for an option without a value, `"bool"` for true or false, `"text"` for anything else.
        use: `"compile"`, NVRTC gets it; `"both"`, NVRTC and nvJitLink get it; `"key"`, a key sets it; or `"refused"`.
        note: For `"both"` the linker's option, with `{}` for the value. For `"key"` and `"refused"` the remedy.
    """

    long: str
    short: str
    value: Literal["", "bool", "text"]
    use: Use
    note: str = ""

    @property
    def spellings(self) -> tuple[str, ...]:
        """Return the option in the form of a command line."""
        return tuple(dash + name for dash, name in (("--", self.long), ("-", self.short)) if name)


_BUILDS = "remove it: builds compile relocatable code for link-time optimisation"
_OUTPUT = "remove it: a build needs the code itself"
_FILE = "remove it: a build writes no files except the wheel's"
_HEADERS = "remove it: a build must see which headers it reads"
_LOST = "remove it: it has no effect on code that nvJitLink generates"
_TILE = "remove it: CUDA C++ modules hold SIMT kernels; write tile kernels for the front end cutile"

NVRTC = (
    Option("gpu-architecture", "arch", "text", "key", "list the targets in arch"),
    Option("device-c", "dc", "", "refused", _BUILDS),
    Option("device-w", "dw", "", "refused", _BUILDS),
    Option("relocatable-device-code", "rdc", "bool", "refused", _BUILDS),
    Option("extensible-whole-program", "ewp", "", "refused", _BUILDS),
    Option("dlink-time-opt", "dlto", "", "refused", _BUILDS),
    Option("gen-opt-lto", "gen-opt-lto", "", "refused", _BUILDS),
    Option("optix-ir", "optix-ir", "", "refused", _OUTPUT),
    Option("fdevice-syntax-only", "fdevice-syntax-only", "", "refused", _OUTPUT),
    Option("frandom-seed", "frandom-seed", "text", "refused", "remove it: builds derive the seed from the file"),
    Option("device-debug", "G", "", "key", "write debug = true"),
    Option("generate-line-info", "lineinfo", "", "key", "write lineinfo = true"),
    Option("dopt", "dopt", "text", "key", "write opt-level = 3"),
    Option("maxrregcount", "maxrregcount", "text", "key", "write max-registers = 64, with the number"),
    Option("fmad", "fmad", "bool", "key", "write fma = false, or fma = true"),
    Option("use_fast_math", "use_fast_math", "", "key", "write fastmath = true"),
    Option("include-path", "I", "text", "key", "name the folder in include-dirs"),
    Option("ftz", "ftz", "bool", "both", "-ftz={}"),
    Option("prec-sqrt", "prec-sqrt", "bool", "both", "-prec-sqrt={}"),
    Option("prec-div", "prec-div", "bool", "both", "-prec-div={}"),
    Option("Ofast-compile", "Ofc", "text", "both", "-Ofc={}"),
    Option("ptxas-options", "Xptxas", "text", "both", "-Xptxas={}"),
    Option("jump-table-density", "jtd", "text", "both", "-jump-table-density={}"),
    Option("extra-device-vectorization", "extra-device-vectorization", "", "refused", _LOST),
    Option("device-stack-protector", "device-stack-protector", "bool", "refused", _LOST),
    Option("restrict", "restrict", "", "refused", "write __restrict__ at the parameters: nvJitLink drops the option"),
    Option("split-compile", "split-compile", "text", "refused", "remove it: builds share the work out themselves"),
    Option("fno-signed-zeros", "fno-signed-zeros", "", "compile"),
    Option("ffinite-math-only", "ffinite-math-only", "", "compile"),
    Option("modify-stack-limit", "modify-stack-limit", "bool", "compile"),
    Option("no-cache", "no-cache", "", "compile"),
    Option("minimal", "minimal", "", "compile"),
    Option("define-macro", "D", "text", "compile"),
    Option("undefine-macro", "U", "text", "compile"),
    Option("pre-include", "include", "text", "compile"),
    Option("no-source-include", "no-source-include", "", "compile"),
    Option("use-bundled-headers", "", "text", "refused", _HEADERS),
    Option("std", "std", "text", "compile"),
    Option("builtin-move-forward", "builtin-move-forward", "bool", "compile"),
    Option("builtin-initializer-list", "builtin-initializer-list", "bool", "compile"),
    Option("pch", "pch", "", "refused", _HEADERS),
    Option("create-pch", "create-pch", "text", "refused", _HEADERS),
    Option("use-pch", "use-pch", "text", "refused", _HEADERS),
    Option("pch-dir", "pch-dir", "text", "refused", _HEADERS),
    Option("pch-verbose", "pch-verbose", "bool", "refused", _HEADERS),
    Option("pch-messages", "pch-messages", "bool", "refused", _HEADERS),
    Option("instantiate-templates-in-pch", "instantiate-templates-in-pch", "bool", "refused", _HEADERS),
    Option("disable-warnings", "w", "", "compile"),
    Option("Wreorder", "Wreorder", "", "compile"),
    Option("Wconversion", "Wconversion", "", "compile"),
    Option("warning-as-error", "Werror", "text", "compile"),
    Option("fmax-errors", "fmax-errors", "text", "compile"),
    Option("device-as-default-execution-space", "default-device", "", "compile"),
    Option("device-int128", "device-int128", "", "compile"),
    Option("device-float128", "device-float128", "", "compile"),
    Option("optimization-info", "opt-info", "text", "refused", "remove it: builds print no remarks"),
    Option("display-error-number", "err-no", "", "compile"),
    Option("no-display-error-number", "no-err-no", "", "compile"),
    Option("diag-error", "diag-error", "text", "compile"),
    Option("diag-suppress", "diag-suppress", "text", "compile"),
    Option("diag-warn", "diag-warn", "text", "compile"),
    Option("brief-diagnostics", "brief-diag", "bool", "compile"),
    Option("utf-8", "utf-8", "", "compile"),
    Option("time", "time", "text", "refused", _FILE),
    Option("fdevice-time-trace", "fdevice-time-trace", "text", "refused", _FILE),
    Option("tile-preview", "tile-preview", "text", "refused", _TILE),
    Option("enable-tile", "enable-tile", "", "refused", _TILE),
    Option("tile-only", "tile-only", "", "refused", _TILE),
    Option("simt-only", "simt-only", "", "refused", _TILE),
    Option("default-tile", "default-tile", "", "refused", _TILE),
    Option("diagnose-implicit-tile-var", "diagnose-implicit-tile-var", "", "refused", _TILE),
)
"""The options of NVRTC."""

_LINKER = "remove it: nvrtc-options are for the compiler"

NVJITLINK = (
    Option("", "lto", "", "refused", _BUILDS),
    Option("", "ptx", "", "key", "list compute_* targets in arch"),
    Option("", "O", "text", "key", "write opt-level = 3, with the level"),
    Option("", "g", "", "key", "write debug = true"),
    Option("", "fma", "text", "key", "write fma = false, or fma = true"),
    Option("", "verbose", "", "refused", "remove it: `aotcuda inspect` shows the assembler's report"),
    Option("", "r", "", "refused", _LINKER),
    Option("", "kernels-used", "text", "refused", _LINKER),
    Option("", "variables-used", "text", "refused", _LINKER),
    Option("", "optimize-unused-variables", "", "refused", _LINKER),
    Option("", "split-compile-extended", "text", "refused", "remove it: builds share the work out themselves"),
    Option("", "nvvm-latest", "", "refused", _LINKER),
)
"""Options that NVRTC lacks or spells differently from nvJitLink."""

_BY_SPELLING = {spelling: option for option in (*NVRTC, *NVJITLINK) for spelling in option.spellings}
_LETTERS = {option.short: option for option in (*NVRTC, *NVJITLINK) if len(option.short) == 1 and option.value}


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
        if self.option.use != "both" or self.value is None:
            return []
        values = self.value.split(",") if self.option.short == "Xptxas" else [self.value]
        numbers = {"true": "1", "false": "0"} if self.option.value == "bool" else {}
        return [self.option.note.format(numbers.get(value, value)) for value in values]


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
            remedy = suggest.did_you_mean(name, _BY_SPELLING, "remove it")
            raise ValueError(index, f"{keys.string(item)} is no option of NVRTC; {remedy}")
        text = item
        if option.value and value is None and name == item:
            _, following = next(numbered, (None, None))
            value, text = following, f"{item} {following}" if following is not None else item
        yield ParsedOption(index, text, option, value)


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
    if option.use == "key":
        return f"{text} is set by a key of its own; {option.note}"
    if option.use == "refused":
        return f"{text} cannot be used in a build; {option.note}"
    name = parsed.text.partition("=")[0].split()[0]
    if option.value and not parsed.value:
        return f"{text} has no value; write {name}={'true' if option.value == 'bool' else 'VALUE'}"
    if option.value == "bool" and parsed.value not in ("true", "false"):
        return f"{text} must be true or false; write {name}=true"
    if not option.value and parsed.text != name:
        return f"{text} takes no value; write {name}"
    return ""
