"""Render the text of `aotcuda check`: a table of GPUs and drivers for each module, at 100 columns."""

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

    from aotcuda.tools.check.check import Checked, Report
    from aotcuda.tools.check.predict import Cell

_WIDTH = 100
_LABEL = 11
_DRIVER = re.compile(r"^the driver supports CUDA [0-9.]+, and ")
_NOTE = (
    "sm_XY: machine code, for exactly this GPU or for a lower one of its major version. compute_XY: PTX that the "
    "driver compiles. JIT: compiled on that machine, where the compiler is installed. -: nothing runs. Empty: no such "
    "driver for that GPU. Drivers are those for Linux; Jetson's are numbered otherwise, so go by the CUDA version "
    "there. As known on {date}; drivers older than 580 were never run; NVIDIA's tables describe them."
)


def render(report: Report) -> str:
    """Return the text without a final line break."""
    single = len(report.modules[0].cells) == 1
    blocks = [list(_single(module) if single else _module(module)) for module in report.modules]
    if not single:
        blocks.append(textwrap.wrap(_NOTE.format(date=gpu_facts.data()["date"]), _WIDTH))
    blocks += [[escape(line) for line in packs.render(pack)] for pack in report.packs]
    return "\n\n".join("\n".join(block) for block in blocks)


def _single(module: Checked) -> Iterator[str]:
    """Render a single pair in sentences."""
    (cell,) = module.cells
    yield escape(module.name)
    yield from _field("GPU", f"{cell.gpu.name} (compute capability {gpu_facts.dotted(cell.gpu.capability)})")
    note = f"; {cell.driver.note}" if cell.driver.note else ""
    yield from _field("driver", f"{cell.driver.name} (CUDA {gpu_facts.dotted(cell.driver.cuda)}{note})")
    yield from _field("takes", f"{_text(cell) or 'nothing'}: {cell.why}")
    for image, why in cell.rejected:
        yield from _field("not", f"{image}: {why}")


def _module(module: Checked) -> Iterator[str]:
    yield escape(module.name)
    yield from _field("in", module.where)
    yield from _field("made from", module.pack)
    yield from _field("toolkit", " and ".join(f"CUDA {cuda}" for cuda in (module.toolkit, *module.others) if cuda))
    yield from _field("min driver", module.min_driver or "")
    images = (f"{image.arch} from {image.min_driver or 'a driver that is not known'}" for image in module.images)
    yield from _field("images", ", ".join(images))
    recipe = "with" if module.recipe else "without"
    yield from _field("fallback", f"{module.fallback}, {recipe} a recipe to build from")
    if module.runtime == "bundled":
        yield from _field("run time", "in the wheel")
    for item in module.left_out:
        yield from _field("left out", escape(str(item)))
    yield ""
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
    # The table has the driver, so the reasons omit it.
    without = (cell for row in rows for cell in row if cell.exists and not cell.packaged)
    reasons = dict.fromkeys(_DRIVER.sub("", cell.why) for cell in without)
    if reasons:
        yield ""
    for why in reasons:
        yield from textwrap.wrap(f"no image: {why}", _WIDTH, initial_indent="  ", subsequent_indent="    ")


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
    first = f"  {label:<{_LABEL}} "
    return textwrap.wrap(value, _WIDTH, initial_indent=first, subsequent_indent=" " * len(first)) if value else []


def _grid(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        yield ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
