"""Merge PTX texts of Triton, each with one kernel, into one text that is assembled into one image."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aotcuda.builder.link import ptx_parameters
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aotcuda.builder.link.ptx_parameters import Field

_HEAD = re.compile(r"^\.(version|target|address_size)[ \t]+(.*)$", re.MULTILINE)
_ENTRY = re.compile(r"^\.visible \.entry (\w+)\(\n(.*?)\n?\)\n", re.MULTILINE | re.DOTALL)
_SHARED = re.compile(r"^\.extern \.shared \.align (\d+) \.b8 (\w+)\[\];\n", re.MULTILINE)
_EXTERN_FUNCTION = re.compile(r"^\.extern \.func .*?;\n", re.MULTILINE | re.DOTALL)
_DEFINED = re.compile(
    r"^(?:\.(?:visible|weak|common) )?\.(?:global|const)\b[^;={]*?(\w+)(?:\[\d*\])?\s*(?:=|;)"
    r"|^(?:\.(?:visible|weak) )?\.func\s*(?:\([^)]*\)\s*)?(\w+)",
    re.MULTILINE,
)


def fields(text: str) -> list[Field]:
    """Return the parameters of the kernel in a PTX text, as the ABI places them.

    Raises:
        CompileError: The text does not have exactly one kernel, or a parameter is of an unknown kind.
    """
    entries = _ENTRY.findall(text)
    if len(entries) != 1:
        message = f"Triton's PTX has {len(entries)} kernels in place of one"
        raise CompileError(message)
    try:
        return ptx_parameters.read(entries[0][1])
    except ValueError as error:
        message = f"Triton's PTX has a parameter that is not a number, address or tensor map: {error}"
        raise CompileError(message) from None


def rename(text: str, symbol: str) -> str:
    """Return the text with its kernel renamed to `symbol`, and with `symbol` before the names of its other definitions.

    Raises:
        CompileError: The text does not have exactly one kernel.
    """
    entries = [entry for entry, _ in _ENTRY.findall(text)]
    if len(entries) != 1:
        message = f"Triton's PTX has {len(entries)} kernels in place of one"
        raise CompileError(message)
    # A kernel may have the name of an instruction, such as `add`, so only these two places are replaced.
    name = re.escape(entries[0])
    text = re.sub(rf"(?<=\.entry ){name}(?=\()|\b{name}(?=_param_\d+\b)", symbol, text)
    defined = {name: f"{symbol}__{name}" for found in _DEFINED.findall(text) for name in found if name}
    words = "|".join(sorted(map(re.escape, defined), key=len, reverse=True))
    return re.sub(rf"\b({words})\b", lambda found: defined[found[1]], text) if words else text


def merge(texts: Iterable[str]) -> str:
    """Return one text with the kernels of several texts, whose names differ.

    Raises:
        CompileError: The texts have several versions or targets.
    """
    heads: dict[tuple[tuple[str, str], ...], None] = {}
    shared: dict[str, int] = {}
    externs: dict[str, None] = {}
    bodies = []
    for text in texts:
        heads[tuple(_HEAD.findall(text))] = None
        rest = _HEAD.sub("", text)
        for align, name in _SHARED.findall(rest):
            shared[name] = max(shared.get(name, 0), int(align))
        externs |= dict.fromkeys(_EXTERN_FUNCTION.findall(rest))
        bodies.append(_EXTERN_FUNCTION.sub("", _SHARED.sub("", rest)).strip("\n"))
    if len(heads) != 1:
        message = f"Triton's PTX for one target differs in its head: {' and '.join(map(str, heads))}"
        raise CompileError(message)
    lines = [f".{name} {value}" for name, value in next(iter(heads))]
    lines += [f".extern .shared .align {align} .b8 {name}[];" for name, align in sorted(shared.items())]
    return "\n".join([*lines, *sorted(externs), *bodies, ""])
