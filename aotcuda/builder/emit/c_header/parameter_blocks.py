"""Write the parameter blocks of kernels as C structs, for programs in C and C++ that launch packaged kernels.

The manifest describes a block word by word. Each word becomes a member of the same size and alignment, and therefore
has the same offset. An array becomes a struct of its words, a tuple the members of its items.
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import TYPE_CHECKING

from aotcuda import manifest
from aotcuda.builder.emit.c_header import c_types
from aotcuda.common.scalar_types import NAMED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aotcuda.manifest import Kernel, Overload, Parameter


_ONE_BY_ONE = "/* The offsets of its parameters depend on the GPU: pass them by cuLaunchKernel's kernelParams. */"


def struct_name(module: str, symbol: str) -> str:
    """Return the name of a block: `mypkg_kernels_axpy__0_parameters`."""
    return f"{module.replace('.', '_')}_{symbol}_parameters"


def render(module: str, kernels: Iterable[Kernel], header: c_types.Scope | None = None) -> Iterator[str]:
    """Yield the lines that declare the parameter block of each kernel and signature in a `header`."""
    header = header or c_types.Scope()
    kernels = list(kernels)
    symbols = Counter(overload["symbol"] for kernel in kernels for overload in kernel["overloads"])
    for kernel in kernels:
        for overload in kernel["overloads"]:
            symbol, fatbin = overload["symbol"], overload.get("fatbin", 0)
            place = f" in {manifest.fatbin_name(fatbin)}" if fatbin else ""
            yield c_types.comment(f'"{symbol}"{place}: {kernel["name"]}, {overload["signature"]}')
            for arch, launch in overload.get("launches", {}).items():
                yield f"/* {arch}: blocks of {launch['threads']} threads, {launch['shared']} bytes of shared memory */"
                if "scratch" in launch:
                    yield f"/* {arch}: reserved[0]: global memory, {launch['scratch']['bytes']} bytes for a block */"
            if overload.get("one_by_one"):
                yield from (_ONE_BY_ONE, "")
                continue
            # Kernels of several files may have one symbol; the names of kernels differ.
            name = struct_name(module, symbol if symbols[symbol] == 1 else f"{kernel['name']}_{symbol}")
            if members := _block(overload):
                yield from ("typedef struct {", *(f"    {line}" for line in members), f"}} {header.unique(name)};")
            size = header.unique(f"{name.removesuffix('s')}_bytes")
            yield f"enum {{ {size} = {overload['parameter_bytes']} }};"
            yield ""


def _reserved(overload: Overload, scope: c_types.Scope) -> Iterator[str]:
    """Yield extra members of a kernel with a fixed launch: pointers to memory that it does not use."""
    if "launches" not in overload:
        return
    parameters = [item for item in overload["parameters"] if item["kind"] in ("elements", "number")]
    end = max((item["offset"] + _bytes(item) for item in parameters), default=0)
    count = overload["parameter_bytes"] // 8 - -(-end // 8)
    if count:
        yield f"void *{scope.unique('reserved')}[{count}]; /* null */"


def _block(overload: Overload) -> list[str]:
    """Return the members of a block: the parameters, with the sizes of arrays between them."""
    parameters = [leaf for parameter in overload["parameters"] for leaf in _leaves(parameter)]
    sizes = [(parameter, size) for parameter in parameters for size in parameter.get("sizes", ())]
    scope = c_types.Scope(c_types.COMPLEX.values())
    # The items of a tuple `t` are called `t[0]`, `t[1]`...
    raw = [item["name"].replace("[", "_").replace("]", "") for item in (*parameters, *(size for _, size in sizes))]
    names = scope.identifiers(raw)
    members = [
        (parameter["offset"], _bytes(parameter), [*_members(parameter, name)])
        for parameter, name in zip(parameters, names, strict=False)
    ]
    for (parameter, size), name in zip(sizes, names[len(parameters) :], strict=True):
        about = c_types.comment(f"{size['type']}: {size['word']} of {parameter['name']}")
        declaration = f"{c_types.declare(c_types.SCALARS[size['format']], name)}; {about}"
        members.append((size["offset"], struct.calcsize(size["format"]), [declaration]))
    lines: list[str] = []
    end = gaps = 0
    scattered = any(_is_scattered(parameter) for parameter in parameters)
    for offset, length, text in sorted(members) if scattered else members:
        if scattered and offset - end >= _ALIGNMENT:  # more than the members' own alignment explains
            lines.append(f"unsigned char {scope.unique(f'aotcuda_gap{gaps}')}[{offset - end}];")
            gaps += 1
        end = offset + length
        lines += text
    return [*lines, *_reserved(overload, scope)]


def _leaves(parameter: Parameter) -> Iterator[Parameter]:
    """Yield the members for a parameter: the items of a tuple, none for a compiled-in constant."""
    if parameter["kind"] == "tuple":
        for member in parameter["members"]:
            yield from _leaves(member)
    elif parameter["kind"] != "constant":
        yield parameter


_ALIGNMENT = 8
"""The largest alignment of a member. A parameter with a larger alignment in C++ has a gap before it."""


def _is_scattered(parameter: Parameter) -> bool:
    return "sizes" in parameter or parameter["kind"] == "struct"


def _bytes(parameter: Parameter) -> int:
    kind = parameter["kind"]
    if kind == "struct":
        return parameter["bytes"]
    if kind == "small":
        return NAMED[parameter["dtype"]]
    if kind in ("scalar", "number", "complex"):
        return struct.calcsize(parameter["format"]) * (2 if kind == "complex" else 1)
    return 8 * len(parameter.get("words", "1"))


def _members(parameter: Parameter, name: str) -> Iterator[str]:
    kind = parameter["kind"]
    about = c_types.comment(parameter["type"])
    if kind == "array":
        yield "struct {"
        yield from (f"    {line}" for line in _words(parameter))
        yield f"}} {name}; {about}"
        return
    if kind == "struct":
        # Members are the largest integers that divide the size and the place; the record's own members are unknown.
        word = next(size for size in (8, 4, 2, 1) if parameter["bytes"] % size == 0 and parameter["offset"] % size == 0)
        declaration = c_types.declare(c_types.SCALARS[_WORDS[word]], name)
        yield f"{declaration}[{parameter['bytes'] // word}]; {about}"
        return
    yield f"{c_types.declare(_type(parameter), name)}; {about}"


_WORDS = {8: "Q", 4: "I", 2: "H", 1: "B"}


def _type(parameter: Parameter) -> str:
    kind = parameter["kind"]
    if kind in ("elements", "buffer"):
        return f"{'const ' if parameter.get('readonly') else ''}{c_types.element(parameter['dtype'])} *"
    if kind in ("scalar", "number"):
        return c_types.SCALARS[parameter["format"]]
    if kind == "small":
        return c_types.SCALARS[_WORDS[NAMED[parameter["dtype"]]]]
    if kind == "complex":
        return c_types.COMPLEX[parameter["format"]]
    if kind == "type" and "words" not in parameter:
        return c_types.element(parameter["dtype"])
    return "long long" if kind == "datetime" else "void *"


def _words(parameter: Parameter) -> Iterator[str]:
    words = parameter["words"]
    pointer = f"{c_types.element(parameter['dtype'])} *"
    for name, word in zip(_numbered(words), words, strict=True):
        yield f"{c_types.declare(pointer if word == 'data' else 'long long', name)};"


def _numbered(words: Sequence[str]) -> Iterator[str]:
    """Yield names for words of which some occur twice: `zero0`, `zero1`, `items`."""
    for index, word in enumerate(words):
        yield f"{word}{words[:index].count(word)}" if words.count(word) > 1 else word
