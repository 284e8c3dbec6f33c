"""The report as text for people: one block a module, aligned, and readable at 100 columns."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from aotcuda.binary.text import brief

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aotcuda.inspect.report import Module, Report, Symbol, SymbolImage

_WIDTH = 100
_LABEL_WIDTH = 11
_NOTE = (
    "Sizes are in bytes. Of a kernel in a sass image: its machine code; otherwise the whole image before compression. "
    "shared: static, a block. local: stack, a thread; ? where it cannot be known, as with recursion. -: decided when "
    "the image is compiled."
)


def render(report: Report) -> str:
    """The whole text, with no line break at its end."""
    return "\n".join(_report(report))


def _report(report: Report) -> Iterator[str]:
    for module in report.modules:
        yield from _module(module)
        yield ""
    yield from textwrap.wrap(_NOTE, _WIDTH)


def _module(module: Module) -> Iterator[str]:
    yield brief(module.name)
    yield from _field("in", module.where)
    for number, versions in enumerate((module.toolchain, *module.toolchains)):
        text = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
        yield from _field("and" if number else "toolchain", text)
    yield from _field("min driver", module.min_driver or "")
    for name, value in module.settings.items():
        yield from _field(name, value)
    yield ""
    rows = [(image.arch, image.kind, str(image.size), str(image.packed), image.cuda) for image in module.images]
    columns = ("image", "kind", "bytes", "packed", "by CUDA")
    several = len(columns) if module.toolchains else -1  # of one toolkit there is no more to say
    yield from _table(columns[:several], [row[:several] for row in rows], indent="  ")
    for symbol in module.symbols:
        yield ""
        yield from _symbol(symbol)


def _symbol(symbol: Symbol) -> Iterator[str]:
    abi = f", {brief(symbol.abi)} ABI" if symbol.abi else ""
    linked = "" if symbol.images else "linked "
    yield f"  {brief(symbol.name)}  ({linked}{symbol.kind}{abi}, from {brief(symbol.origin)})"
    for text in (symbol.prototype, symbol.signature):
        if text:
            yield from textwrap.wrap(brief(text), _WIDTH, initial_indent="    ", subsequent_indent="        ")
    if linked:
        return
    if symbol.symbol != symbol.name:
        yield f"    symbol {brief(symbol.symbol)}"
    if symbol.kind == "kernel":
        header = ("arch", "kind", "bytes", "registers", "shared", "local", "constant")
        yield from _table(header, [_resources(image) for image in symbol.images], indent="    ")
    else:
        rows = [(image.arch, image.kind, str(image.size)) for image in symbol.images]
        yield from _table(("arch", "kind", "bytes"), rows, indent="    ")


def _resources(image: SymbolImage) -> tuple[str, ...]:
    compiled = image.kind == "sass"
    numbers = (image.registers, image.shared, image.local, image.constant)
    texts = (str(number) if number is not None else "?" if compiled else "-" for number in numbers)
    return (image.arch, image.kind, str(image.size), *texts)


def _field(label: str, value: str) -> list[str]:
    """A line `label  value`, with as many more as the value needs; none for an empty value."""
    first = f"  {label:<{_LABEL_WIDTH}} "
    text = brief(value)
    return textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=" " * len(first)) if text else []


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], *, indent: str) -> Iterator[str]:
    """Columns as wide as their widest cell; the first two hold words and are aligned to the left."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    for row in (header, *rows):
        cells = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield (indent + "  ".join(cells)).rstrip()
