"""Render one line for each kernel over all targets."""

from __future__ import annotations

import textwrap
from pathlib import PurePath
from typing import TYPE_CHECKING

from aotcuda.common.foreign import excerpt
from aotcuda.tools.inspect.report import SymbolImage
from aotcuda.tools.inspect.table import MOST_REGISTERS, WIDTH, columns, dynamic, numbers, with_dynamic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.tools.inspect.report import Module, Report, Symbol

_FIELDS = {"bytes": "size"}
_SHORTEST = 16
"""The shortest useful width of a name or signature."""


def render(report: Report, *, width: int | None = None) -> str:
    """Return a table with a line for each kernel and signature: the largest number of any target, and the worst target.

    Args:
        report: The report.
        width: The width of the terminal, for which names and signatures are cut; None cuts nothing.
    """
    kernels = [(module, symbol) for module in report.modules for symbol in module.symbols if symbol.kind == "kernel"]
    names = [module.name for module in report.modules]
    has_place = len(set(names)) < len(names)  # two targets have a module of the same name
    largest = [_largest(symbol) for _, symbol in kernels]
    has_dynamic = any(image.dynamic is not None for image in largest)
    keys = with_dynamic(("bytes", "registers", "spills", "shared", "local"), "dynamic", has_column=has_dynamic)
    header = ("kernel", *(("in",) if has_place else ()), *keys, "worst")
    rows = [_row(module, symbol, has_place=has_place, has_dynamic=has_dynamic) for module, symbol in kernels]
    words = {0, len(header) - 1, *((1,) if has_place else ())}
    if width is not None:
        limit = max(width // 3, _SHORTEST)
        rows = [tuple(_cut(cell, limit) if at in words else cell for at, cell in enumerate(row)) for row in rows]
    lines = list(columns(header, rows, words=words))
    start = max(map(len, lines)) + 2
    signatures = ["signature", *(excerpt(symbol.signature or symbol.prototype or "") for _, symbol in kernels)]
    if width is None or width - start >= _SHORTEST:
        lines = [
            f"{line:<{start}}{text if width is None else _cut(text, width - start)}".rstrip()
            for line, text in zip(lines, signatures, strict=True)
        ]
    spilling = f"{sum(bool(image.spills) for image in largest)} spill registers"
    if unknown := sum(image.spills is None for image in largest):
        spilling += f" ({unknown} unknown)"
    full = sum((image.registers or 0) >= MOST_REGISTERS for image in largest)
    note = (
        f"{len(kernels)} kernels and signatures; {spilling}, {full} use all {MOST_REGISTERS}. Each "
        "number is the largest of any target, and worst is the target that spills most or has the most registers."
    )
    return "\n".join([*lines, "", *textwrap.wrap(note, width or WIDTH)])


def _qualified_name(module: Module, symbol: Symbol) -> str:
    return f"{module.name}.{symbol.name}"


def _number(image: SymbolImage, key: str) -> int:
    value = getattr(image, _FIELDS.get(key, key))
    return -1 if value is None else int(value)


def _largest(symbol: Symbol) -> SymbolImage:
    """Return the largest numbers of a symbol over all machine code, with the worst target as `arch`.

    The worst target spills most. Ties are broken by registers, then stack, shared memory and code.
    """
    images = [image for image in symbol.images if image.kind == "sass"]
    if not images:
        return SymbolImage(arch="-", kind="ptx", size=0)
    order = ("spills", "registers", "local", "shared", "bytes")
    worst = max(images, key=lambda image: [_number(image, key) for key in order])
    return SymbolImage(
        arch=worst.arch,
        kind="sass",
        size=max(image.size for image in images),
        registers=_most(images, "registers"),
        spills=_most(images, "spills"),
        shared=_most(images, "shared"),
        dynamic=_most(images, "dynamic"),
        local=_most(images, "local"),
    )


def _most(images: Sequence[SymbolImage], key: str) -> int | None:
    """Return the largest value; None if one is unknown."""
    values = [getattr(image, key) for image in images]
    return None if None in values else max(values)


def _row(module: Module, symbol: Symbol, *, has_place: bool, has_dynamic: bool) -> tuple[str, ...]:
    image = _largest(symbol)
    cells = with_dynamic(numbers(image)[:-1], dynamic(image), has_column=has_dynamic)
    name = excerpt(_qualified_name(module, symbol))
    place = (excerpt(_place(module)),) if has_place else ()
    return (name, *place, *cells, image.arch)


def _place(module: Module) -> str:
    """Return the name of a module's wheel, else the module's folder."""
    return next((part for part in PurePath(module.where).parts if part.endswith(".whl")), module.where)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
