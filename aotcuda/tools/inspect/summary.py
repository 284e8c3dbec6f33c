"""Render one line for each kernel over all targets; filter and sort symbols."""

from __future__ import annotations

import fnmatch
import textwrap
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from aotcuda.common.foreign import excerpt
from aotcuda.errors import TargetError
from aotcuda.tools.inspect.report import Report, SymbolImage
from aotcuda.tools.inspect.table import MOST_REGISTERS, WIDTH, columns, dynamic, numbers, with_dynamic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.tools.inspect.report import Module, Symbol

SORT_KEYS = ("name", "bytes", "registers", "spills", "shared", "dynamic", "local")
"""The keys of `--sort`. The largest number comes first."""

_FIELDS = {"bytes": "size"}
_SHORTEST = 16
"""The shortest useful width of a name or signature."""


def select(report: Report, *, pattern: str | None = None, sort: str | None = None) -> Report:
    """Return the report with the symbols that match `pattern`, sorted within each module.

    Args:
        report: The report.
        pattern: A pattern of the shell, `axpy*`, for the name, the symbol, or `mypkg.kernels.axpy`.
        sort: One of `SORT_KEYS`. The largest number over all images comes first.

    Raises:
        TargetError: Nothing matches.
    """
    modules = report.modules
    if pattern is not None:
        filtered = (
            replace(module, symbols=tuple(symbol for symbol in module.symbols if _matches(module, symbol, pattern)))
            for module in modules
        )
        modules = tuple(module for module in filtered if module.symbols)
        if not modules:
            message = f"--filter {excerpt(pattern)!r} matches nothing; there is {_names(report)}"
            raise TargetError(message)
    if sort is not None:
        modules = tuple(
            replace(module, symbols=tuple(sorted(module.symbols, key=lambda symbol: _order(symbol, sort))))
            for module in modules
        )
    return Report(modules=modules)


def render(report: Report, *, sort: str | None = None, width: int | None = None) -> str:
    """Return a table with a line for each kernel and signature: the largest number of any target, and the worst target.

    Args:
        report: The report.
        sort: As for `select`, over all modules.
        width: The width of the terminal, for which names and signatures are cut; None cuts nothing.
    """
    kernels = [(module, symbol) for module in report.modules for symbol in module.symbols if symbol.kind == "kernel"]
    if sort is not None:
        kernels.sort(key=lambda item: _order(item[1], sort))
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


def _matches(module: Module, symbol: Symbol, pattern: str) -> bool:
    return any(
        fnmatch.fnmatchcase(name, pattern) for name in (symbol.name, symbol.symbol, _qualified_name(module, symbol))
    )


def _qualified_name(module: Module, symbol: Symbol) -> str:
    return f"{module.name}.{symbol.name}"


def _names(report: Report) -> str:
    names = list(dict.fromkeys(symbol.name for module in report.modules for symbol in module.symbols))
    most = 10
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(excerpt, names[:most])) + more or "no symbol"


def _order(symbol: Symbol, sort: str) -> tuple[int, str]:
    """Return a sort key: the name, or a number with the largest first."""
    return (0, symbol.name) if sort == "name" else (-_number(_largest(symbol), sort), "")


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
