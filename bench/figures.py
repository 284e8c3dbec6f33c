"""Draw charts of measured figures by matplotlib, as SVG with text, readable on light and dark pages.

Needs the extra `bench`.
"""

from __future__ import annotations

import html
import io
import textwrap
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

COLOURS = {"own": "#5a9a1e", "other": "#8b95a1", "base": "#4a76a8"}
INK = "#767e89"
_INK_OF_SITE = f"var(--color-foreground-secondary, {INK})"  # the site has a light and a dark style
_NOTE = 110
"""Characters of a note that fit into a line."""


@dataclass(frozen=True)
class Bar:
    """A bar, and the range of the measurements around its end.

    Attributes:
        label: The name of the measurement.
        value: Its length.
        kind: `own`, `other` or `base`: a key of `COLOURS`.
        spread: The range; None if it is unknown.
    """

    label: str
    value: float
    kind: str
    spread: tuple[float, float] | None = None


@dataclass(frozen=True)
class Dots:
    """Many values of a measurement, on a logarithmic scale, with their quartiles and median.

    Attributes:
        label: The name of the measurement.
        values: The values.
        kind: As for `Bar`.
        unit: Their unit.
    """

    label: str
    values: list[float]
    kind: str
    unit: str


@dataclass(frozen=True)
class Chart:
    """A picture: its title, its rows from top to bottom, and notes below them; `unit` and `digits` are of bars."""

    title: str
    rows: list[Bar] | list[list[Dots]]
    notes: list[str]
    unit: str = ""
    digits: int = 0


def render(chart: Chart) -> str:
    """Return the picture of a chart as SVG. The same chart and matplotlib give the same text."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    settings = {"svg.fonttype": "none", "svg.hashsalt": chart.title, "font.size": 10}
    settings |= dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor"), INK)
    with mpl.rc_context(settings):
        is_bars = isinstance(chart.rows[0], Bar)
        count = 1 if is_bars else len(chart.rows)
        size = (8.6, 0.9 + 0.3 * len(chart.rows) if is_bars else 1.0 + 1.3 * count)
        figure, axes = plt.subplots(count, 1, figsize=size, layout="constrained", squeeze=False)
        figure.suptitle(chart.title, x=0.01, ha="left", weight="bold")
        for axis, rows in zip(axes[:, 0], [chart.rows] if is_bars else chart.rows, strict=True):
            (_bars if is_bars else _dots)(axis, rows, chart)
            axis.spines[["top", "right", "left"]].set_visible(False)
            axis.tick_params(left=False)
            axis.invert_yaxis()
        notes = [line for note in chart.notes for line in textwrap.wrap(note, _NOTE)]
        figure.supxlabel("\n".join(notes), x=0.01, ha="left", size="small")
        out = io.StringIO()
        metadata = {"Title": chart.title, "Date": None, "Creator": None}
        figure.savefig(out, format="svg", transparent=True, metadata=metadata)
        plt.close(figure)
    text = "\n".join(line.rstrip() for line in out.getvalue().splitlines())
    text = text.replace(f": {INK}", f": {_INK_OF_SITE}")
    label = html.escape(chart.title, quote=True)
    return f'<svg role="img" aria-label="{label}"{text.partition("<svg")[2]}\n'


def _bars(axis: Any, rows: list[Bar], chart: Chart) -> None:
    for number, row in enumerate(rows):
        low, high = row.spread or (row.value, row.value)
        axis.barh(number, row.value, color=COLOURS[row.kind])
        if row.spread:
            middle = (low + high) / 2
            axis.errorbar(middle, number, xerr=(high - low) / 2, color=INK, capsize=3)
        text = f"  {row.value:.{chart.digits}f} {chart.unit}"
        axis.text(max(row.value, high), number, text, va="center", weight="bold" if row.kind == "own" else "normal")
    axis.set_yticks(range(len(rows)), [row.label for row in rows])
    axis.margins(x=0.12)
    axis.xaxis.set_visible(False)
    axis.spines["bottom"].set_visible(False)


def _dots(axis: Any, rows: list[Dots], _: Chart) -> None:
    for number, row in enumerate(rows):
        axis.plot(row.values, [number] * len(row.values), "o", ms=5, alpha=0.7, color=COLOURS[row.kind])
        quarters = quantiles(row.values, n=4)
        axis.plot(quarters, [number + 0.3] * 3, "|-", color=INK)
    axis.set_xscale("log")
    axis.set_yticks(range(len(rows)), [row.label for row in rows])
    axis.margins(y=0.3)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g} {rows[0].unit}")
    axis.xaxis.set_minor_formatter(lambda *_: "")
