"""Rename variables that several CUDA C++ files of one link define, so that each file has its own copy.

nvcc compiles files separately unless `-rdc=true` is given, so a header may define a `__device__` or `__constant__`
variable. A build links its files, so it would define the variable twice.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from aotcuda.builder.link import nvrtc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.protocol import LinkInput

# PTX ISA, "State Spaces, Types, and Variables": a definition that is visible to other files.
_VARIABLE = re.compile(r"^\.visible \.(?:global|const)\b[^;={]*?([\w$]+)(?:\[\d*\])*\s*(?:=|;)", re.MULTILINE)


def separate(
    inputs: Sequence[LinkInput], target: Target, options: Options, include_dirs: Sequence[str]
) -> list[LinkInput]:
    """Return link inputs whose CUDA C++ files define no variable twice: macros rename repeated variables.

    Raises:
        CompileError: A file does not compile.
    """
    files = [item for item in inputs if item.kind == "cu" and not item.internal]
    if len(files) < 2:
        return [*inputs]
    defined = {item: variables(item, target, options, include_dirs) for item in files}
    symbols = [name for names in defined.values() for name in names]
    return [
        _rename(item, [name for name in defined.get(item, ()) if symbols.count(name) > 1]) if item in defined else item
        for item in inputs
    ]


def variables(item: LinkInput, target: Target, options: Options, include_dirs: Sequence[str]) -> list[str]:
    """Return the symbols of the variables that a file defines for others."""
    text = nvrtc.compile_source(item, target, options, include_dirs, lto=False).decode(errors="replace")
    return list(dict.fromkeys(_VARIABLE.findall(text)))


def _rename(item: LinkInput, names: Sequence[str]) -> LinkInput:
    if not names:
        return item
    suffix = hashlib.sha256(item.name.encode()).hexdigest()[:8]
    short_names = dict.fromkeys(map(_last_name, names))
    head = "".join(f"#define {name} {name}__{suffix}\n" for name in short_names)
    return replace(item, data=f'{head}#line 1 "{item.name}"\n'.encode() + item.data)


def _last_name(symbol: str) -> str:
    """Return the last name of a symbol, `table` of `_ZN7physics5tableE` (Itanium C++ ABI, 5.1.2)."""
    nested = re.fullmatch(r"_ZN(\d.*)E", symbol)
    remainder, name = nested[1] if nested else "", symbol
    while length := re.match(r"\d+", remainder):
        end = length.end() + int(length[0])
        name, remainder = remainder[length.end() : end], remainder[end:]
    return name
