"""Render the text of `aotcuda check`, at 100 columns: modules with equal predictions share a table of GPUs."""

from __future__ import annotations

import itertools
import re
import textwrap
from typing import TYPE_CHECKING

from aotcuda.common import gpu_facts
from aotcuda.common.foreign import escape
from aotcuda.tools import packs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aotcuda.tools.check.check import ModuleReport, Report
    from aotcuda.tools.check.predict import Cell

_WIDTH = 100
_LABEL = 11
_DRIVER = re.compile(r"^the driver supports CUDA [0-9.]+, and ")
_NOTE = (
    "sm_XY: machine code, for exactly this GPU or for a lower one of its major version. compute_XY: PTX that the "
    "driver compiles. JIT: compiled on the user's machine, if it has the compiler. -: nothing runs. Empty: the driver "
    "does not support the GPU. The drivers are for Linux. Jetson has other driver numbers; use the CUDA version. The "
    "facts are of {date}. Drivers older than 580 were not tested; their facts come from NVIDIA's tables."
)


def render(report: Report) -> str:
    """Return the text without a final line break; with `--require`, only the facts against it and the answer."""
    if report.required:
        lines = [f"{item.item}: {item.why}" for item in report.unmet]
        lines += [f"{module.name}: left out: {item}" for module in report.modules for item in module.left_out]
        lines += [line for pack in report.packs if not packs.is_served(pack) for line in packs.render(pack)]
        lines += [] if report.problem() else [report.answer()]
        return "\n".join(map(escape, lines))
    single = len(report.modules[0].cells) == 1
    groups: dict[object, list[ModuleReport]] = {}
    for module in report.modules:
        groups.setdefault(module.cells, []).append(module)
    blocks: list[list[str]] = []
    for modules in groups.values():
        *others, last = modules
        if single:
            blocks += [list(_single(module)) for module in modules]
        else:
            blocks += [list(_facts(module)) for module in others]
            blocks.append([*_facts(last), "", *_table(last)])
    if not single:
        blocks.append(textwrap.wrap(_NOTE.format(date=gpu_facts.data()["date"]), _WIDTH))
    blocks += [[escape(line) for line in packs.render(pack)] for pack in report.packs]
    problem = report.problem()
    if problem is None:  # a problem is the line of the error
        blocks.append([escape(report.answer())])
    return "\n\n".join("\n".join(block) for block in blocks)


def _single(module: ModuleReport) -> Iterator[str]:
    """Yield the prediction for the only pair, in sentences."""
    (cell,) = module.cells
    yield escape(module.name)
    yield from _field("GPU", f"{cell.gpu.name} (compute capability {gpu_facts.dotted(cell.gpu.capability)})")
    note = f"; {cell.driver.note}" if cell.driver.note else ""
    yield from _field("driver", f"{cell.driver.name} (CUDA {gpu_facts.dotted(cell.driver.cuda)}{note})")
    yield from _field("takes", f"{_text(cell) or 'nothing'}: {cell.why}")
    for image, why in cell.rejected:
        yield from _field("not", f"{image}: {why}")


def _facts(module: ModuleReport) -> Iterator[str]:
    """Yield the facts of a module."""
    yield escape(module.name)
    yield from _field("in", module.where)
    yield from _field("made from", module.pack)
    yield from _field("toolkit", " and ".join(f"CUDA {cuda}" for cuda in (module.toolkit, *module.others) if cuda))
    yield from _field("min driver", module.min_driver or "")
    images = (f"{image.arch} from {image.min_driver or 'an unknown driver'}" for image in module.images)
    yield from _field("images", ", ".join(images))
    recipe = "with" if module.recipe else "without"
    yield from _field("fallback", f"{module.fallback}, {recipe} a recipe to build from")
    if module.runtime == "bundled":
        yield from _field("run time", "in the wheel")
    for item in module.left_out:
        yield from _field("left out", escape(str(item)))


def _table(module: ModuleReport) -> Iterator[str]:
    """Yield the table of GPUs and drivers, and the notes below it."""
    rows = [list(row) for _, row in itertools.groupby(module.cells, key=lambda cell: cell.gpu)]
    groups = _groups(rows)
    yield from _grid(
        [
            ["", "driver", *(_drivers([rows[0][at].driver.name for at in group]) for group in groups)],
            ["", "CUDA", *(_span([gpu_facts.dotted(rows[0][at].driver.cuda) for at in group]) for group in groups)],
            *(
                [gpu_facts.dotted(row[0].gpu.capability), row[0].gpu.name, *(_text(row[group[0]]) for group in groups)]
                for row in rows
            ),
        ]
    )
    notes = list(_notes([cell for cell in module.cells if cell.exists and not cell.has_image]))
    yield from ["", *notes] if notes else ()


def _notes(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield the reasons for cells without an image, and the results of the JIT fallback there, each once."""
    # The table has the driver and the GPU, so the reasons omit them.
    reasons = dict.fromkeys(_DRIVER.sub("", cell.reason).replace(" on it", " on the GPU") for cell in cells)
    notes = [f"no image: {reason}" for reason in reasons]
    if compilers := list(dict.fromkeys(cell.compiler for cell in cells if cell.compiler)):
        notes.append(f"JIT: compiled where {' or '.join(compilers)} is installed")
    notes += [f"-: {refusal}" for refusal in dict.fromkeys(cell.refusal for cell in cells) if refusal]
    for note in notes:
        yield from textwrap.wrap(note, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def _groups(rows: Sequence[Sequence[Cell]]) -> list[list[int]]:
    """Return the columns; adjacent columns without a difference are merged."""
    columns = [tuple(_text(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [[at for at, _ in group] for _, group in itertools.groupby(enumerate(columns), key=lambda item: item[1])]


def _text(cell: Cell) -> str:
    if not cell.exists:
        return ""
    return cell.image or ("JIT" if cell.takes == "jit" else "-")


def _drivers(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else _span([name.partition(".")[0] for name in names])


def _span(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _field(label: str, value: str) -> list[str]:
    """Return the wrapped lines of a label and its value, none for an empty value."""
    first = f"  {label:<{_LABEL}} "
    rest = " " * len(first)
    return textwrap.wrap(value, _WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


def _grid(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        yield ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
