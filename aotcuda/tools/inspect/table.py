"""Render the report as text: one block per module, for 100 columns or the terminal's width."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from aotcuda.common.foreign import excerpt

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from aotcuda.tools.inspect.report import Module, Report, Symbol, SymbolImage

WIDTH = 100
"""Columns without a terminal."""

MOST_REGISTERS = 255
"""The maximum of registers per thread on all GPUs since Kepler. A kernel at the limit would probably use more."""

_DYNAMIC_AT = 4
"""The index of dynamic shared memory among a kernel's numbers."""

_LABEL_WIDTH = 11
_NOTE = (
    "Sizes are in bytes; a kernel's size is its machine code. spills: stored and loaded for lack of registers. shared: "
    "static, per block. local: stack, per thread. ?: unknown; for local, because of recursion. -: not compiled yet."
)
_DYNAMIC = " dynamic: dynamic shared memory, per block; the compiler fixed its size."
_MARKED = f" !: registers spilled, or all {MOST_REGISTERS} in use."


def render(report: Report, width: int = WIDTH) -> str:
    """Return the text without a final line break, wrapped to `width` columns."""
    return "\n".join(_report(report, width))


def numbers(image: SymbolImage) -> tuple[str, ...]:
    """Return a kernel's numbers in an image, from bytes to constant memory. Bad values are marked."""
    if image.kind != "sass":
        return ("-",) * 6
    registers = None if image.registers is None else _marked(image.registers, image.registers >= MOST_REGISTERS)
    spills = None if image.spills is None else _marked(image.spills, image.spills > 0)
    texts = (image.size, registers, spills, image.shared, image.local, image.constant)
    return tuple("?" if text is None else str(text) for text in texts)


def with_dynamic(cells: tuple[str, ...], dynamic_cell: str, *, has_column: bool) -> tuple[str, ...]:
    """Insert dynamic shared memory after static shared memory, if the table has this column."""
    return (*cells[:_DYNAMIC_AT], dynamic_cell, *cells[_DYNAMIC_AT:]) if has_column else cells


def dynamic(image: SymbolImage) -> str:
    """Return a kernel's dynamic shared memory in an image."""
    return "-" if image.dynamic is None else str(image.dynamic)


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], *, words: Container[int]) -> Iterator[str]:
    """Yield lines of columns, each as wide as its widest cell. Columns in `words` are left-aligned.

    In a column with marked numbers, the others get a space in place of the mark.
    """
    cells = [list(header), *map(list, rows)]
    for at in range(len(header)):
        if at not in words and any(row[at].endswith("!") for row in rows):
            for row in cells[1:]:
                row[at] += "" if row[at].endswith("!") else " "
    widths = [max(len(row[at]) for row in cells) for at in range(len(header))]
    for row in cells:
        aligned = (
            cell.ljust(width) if at in words else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(aligned).rstrip()


def _marked(number: int, bad: bool) -> str:
    return f"{number}!" if bad else str(number)


def _report(report: Report, width: int) -> Iterator[str]:
    for module in report.modules:
        yield from _module(module, width)
        yield ""
    kernels = [image for module in report.modules for symbol in module.symbols for image in symbol.images]
    marked = any("!" in text for image in kernels for text in numbers(image))
    has_dynamic = any(image.dynamic is not None for image in kernels)
    yield from textwrap.wrap(_NOTE + (_DYNAMIC if has_dynamic else "") + (_MARKED if marked else ""), width)


def _module(module: Module, width: int) -> Iterator[str]:
    yield excerpt(module.name)
    yield from _field("in", module.where, width)
    for number, versions in enumerate((module.toolchain, *module.toolchains)):
        text = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
        yield from _field("and" if number else "toolchain", text, width)
    yield from _field("min driver", module.min_driver or "", width)
    for name, value in module.settings.items():
        yield from _field(name, value, width)
    for item in module.left_out:
        yield from _field("left out", str(item), width)
    yield ""
    columns = [
        ("image", [image.arch for image in module.images]),
        ("kind", [image.kind for image in module.images]),
        ("bytes", [str(image.size) for image in module.images]),
        ("packed", [str(image.packed) for image in module.images]),
    ]
    if module.toolchains:
        columns.append(("by CUDA", [image.linker for image in module.images]))
    if any(image.fatbin for image in module.images):
        columns.append(("file", [excerpt(image.fatbin) for image in module.images]))
    header = tuple(name for name, _ in columns)
    yield from _table(header, list(zip(*(cells for _, cells in columns), strict=True)), indent="  ")
    for symbol in module.symbols:
        yield ""
        yield from _symbol(symbol, width)


def _symbol(symbol: Symbol, width: int) -> Iterator[str]:
    abi = f", {excerpt(symbol.abi)} ABI" if symbol.abi else ""
    linked = "" if symbol.images else "linked "
    yield f"  {excerpt(symbol.name)}  ({linked}{symbol.kind}{abi}, from {excerpt(symbol.origin)})"
    for text in (symbol.prototype, symbol.signature):
        if text:
            yield from textwrap.wrap(excerpt(text), width, initial_indent="    ", subsequent_indent="        ")
    if linked:
        return
    if symbol.symbol != symbol.name:
        yield f"    symbol {excerpt(symbol.symbol)}"
    if symbol.fatbin:
        yield f"    in {excerpt(symbol.fatbin)}"
    if symbol.kind == "kernel":
        has_dynamic = any(image.dynamic is not None for image in symbol.images)
        keys = ("bytes", "registers", "spills", "shared", "local", "constant")
        header = with_dynamic(keys, "dynamic", has_column=has_dynamic)
        cells = [with_dynamic(numbers(image), dynamic(image), has_column=has_dynamic) for image in symbol.images]
        rows = [(image.arch, image.kind, *row) for image, row in zip(symbol.images, cells, strict=True)]
        yield from _table(("arch", "kind", *header), rows, indent="    ")
    else:
        images = ", ".join(f"{image.arch} ({image.kind})" for image in symbol.images)
        yield from textwrap.wrap(images, width, initial_indent="    in ", subsequent_indent="       ")


def _field(label: str, value: str, width: int) -> list[str]:
    """Return the wrapped lines of a label and its value, none for an empty value."""
    first = f"  {label:<{_LABEL_WIDTH}} "
    text = excerpt(value)
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=" " * len(first)) if text else []


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], *, indent: str) -> Iterator[str]:
    """Yield the lines of a table whose first two columns hold words."""
    return (f"{indent}{line}" for line in columns(header, rows, words=(0, 1)))
