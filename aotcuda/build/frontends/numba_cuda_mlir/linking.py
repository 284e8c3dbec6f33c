"""What compiled functions need beside their own code: files and objects to link, their callbacks, foreign functions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_cuda_mlir.numba_cuda.core import config

from aotcuda.build.frontends import Callbacks, External, LinkInput
from aotcuda.build.frontends.numba_like import items

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aotcuda.build.frontends import CType

# What NVVM, libdevice and the device side of the driver define.
_PROVIDED = re.compile(r"llvm\.|__nv_|nvvm|vprintf$|__assertfail$|malloc$|free$|memcpy$|memset$")

# `declare float @name(float, i8*)` in both dialects of LLVM IR, with attributes before and after.
_DECLARATION = re.compile(r'^declare\s+(?P<head>.*?)@(?P<name>"[^"]+"|[\w.$-]+)\((?P<parameters>.*)\)', re.MULTILINE)
_DEFINITION = re.compile(r'^define\s.*?@("[^"]+"|[\w.$-]+)\(', re.MULTILINE)
_SCALARS = {"void": "void", "float": "float32", "double": "float64", "half": "float16", "ptr": "pointer"}

# The library behind grid synchronisation; `items.GRID_GROUP` takes its place.
_DEVICE_RUNTIME = "cudadevrt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What one unit needs."""

    inputs: tuple[LinkInput, ...]
    callbacks: tuple[Callbacks, ...]


def needs(given: Iterable[Any], root: str, *, cooperative: bool) -> Needs:
    """What a unit needs that reached the link items `given`.

    Raises:
        CompileError: An item cannot be linked.
        SourceError: A callback cannot be found by name.
    """
    found = [item for item in given if not (isinstance(item, str) and _DEVICE_RUNTIME in Path(item).name)]
    inputs = [items.link_input(item, Path(root)) for item in found]
    if cooperative:
        inputs.append(items.GRID_GROUP)
    callbacks = [named for item in found for named in items.callbacks(item)]
    return Needs(inputs=tuple(inputs), callbacks=tuple(callbacks))


def include_dirs() -> list[str]:
    """Folders for CUDA C++ sources beside the toolkit's: the extra ones that the compiler is told of."""
    extra = getattr(config, "CUDA_NVRTC_EXTRA_SEARCH_PATHS", "") or ""
    return [path for path in extra.split(":") if path]


def externals(text: str) -> tuple[External, ...]:
    """The functions that a module in LLVM IR calls and that something linked has to define."""
    defined = {name.strip('"') for name in _DEFINITION.findall(text)}
    found: dict[str, External] = {}
    for match in _DECLARATION.finditer(text):
        name = match["name"].strip('"')
        if name in defined or _PROVIDED.match(name):
            continue
        parameters = tuple(_c_type(part) for part in _split(match["parameters"]))
        found.setdefault(name, External(name=name, result=_c_type(match["head"]), parameters=parameters))
    return tuple(found.values())


def _split(text: str) -> Iterator[str]:
    """The parameters of a declaration; commas inside of braces and brackets separate members."""
    depth, start = 0, 0
    for position, character in enumerate(text):
        depth += (character in "{[(<") - (character in "}])>")
        if character == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    if text[start:].strip():
        yield text[start:]


def _c_type(text: str) -> CType:
    """The type in `float`, `i8* nocapture` or `noundef zeroext i1`."""
    text = text.strip()
    if text.startswith(("{", "[", "<", "%")):
        return "pointer" if text.rstrip().endswith("*") else "struct"
    for word in text.split():
        if word.endswith("*"):
            return "pointer"
        if word in _SCALARS:
            return _SCALARS[word]
        if word.startswith("i") and word[1:].isdigit():
            return f"int{max(int(word[1:]), 8)}"
    return "struct"
