"""Pictures as SVG: text, boxes, arrows, bars and points, in the colours of whatever page they stand in.

Inside a page of the site the variables of its theme give ink and paper, so its switch for light and dark holds. As an
`<img>` a picture sees no variables: it takes what the reader's system prefers, on a paper of its own.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from html import escape

_NOTE = 140
"""Characters of a note that fit into a line."""

STYLE = """\
.aotcuda-picture { --ink: var(--color-foreground-primary, #1f2328); --faint: var(--color-foreground-muted, #656d76);
 --paper: var(--color-background-primary, #ffffff); --line: var(--color-background-border, #c9d1d9);
 font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", Arial, sans-serif; }
@media (prefers-color-scheme: dark) { .aotcuda-picture { --ink: var(--color-foreground-primary, #e6edf3);
 --faint: var(--color-foreground-muted, #9198a1); --paper: var(--color-background-primary, #131416);
 --line: var(--color-background-border, #3d444d); } }
.aotcuda-picture .paper { fill: var(--paper); }
.aotcuda-picture text { fill: var(--ink); }
.aotcuda-picture .faint { fill: var(--faint); }
.aotcuda-picture .small { font-size: 11px; }
.aotcuda-picture .strong { font-weight: 600; }
.aotcuda-picture .code { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 12px; }
.aotcuda-picture .own { fill: #5a9a1e; }
.aotcuda-picture .other { fill: #8b95a1; }
.aotcuda-picture .base { fill: #4a76a8; }
.aotcuda-picture .box { fill: none; stroke: var(--color-foreground-border, #878d96); stroke-width: 1.5; }
.aotcuda-picture .box.ours { stroke: #5a9a1e; }
.aotcuda-picture .rule { stroke: var(--line); stroke-width: 1; }
.aotcuda-picture .spread { stroke: var(--ink); stroke-width: 1.5; }
.aotcuda-picture .arrow { stroke: var(--faint); stroke-width: 1.5; fill: none; }
.aotcuda-picture .head { fill: var(--faint); }
.aotcuda-picture .dashed { stroke-dasharray: 5 4; }
"""


@dataclass
class Picture:
    """A picture of a size in pixels, and what says in words what it shows."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        """Return a line of text on its base line; `kind` has classes of `STYLE`."""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>')

    def lines(self, x: float, y: float, lines: list[tuple[str, str]], step: float = 18) -> None:
        """Lines of text below each other, each with its classes."""
        for number, (text, kind) in enumerate(lines):
            self.text(x, y + number * step, text, kind)

    def rectangle(self, x: float, y: float, width: float, height: float, kind: str, radius: float = 0) -> None:
        """Return a rectangle."""
        corner = f' rx="{radius:g}"' if radius else ""
        size = f'width="{max(width, 0):.1f}" height="{height:g}"'
        self.parts.append(f'<rect x="{x:.1f}" y="{y:g}" {size}{corner} class="{kind}"/>')

    def line(self, points: list[tuple[float, float]], kind: str) -> None:
        """Return a line through points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" class="{kind}" fill="none"/>')

    def arrow(self, points: list[tuple[float, float]]) -> None:
        """Return a line with a head at its last point, where it runs straight across or straight down."""
        (x0, y0), (x, y) = points[-2:]
        self.line(points, "arrow")
        across = abs(x - x0) > abs(y - y0)
        back = 7 if (x > x0 if across else y > y0) else -7
        head = (
            [(x, y), (x - back, y - 4), (x - back, y + 4)] if across else [(x, y), (x - 4, y - back), (x + 4, y - back)]
        )
        self.parts.append(f'<polygon points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in head)}" class="head"/>')

    def point(self, x: float, y: float, kind: str) -> None:
        """Return a dot."""
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" class="{kind}" fill-opacity="0.7"/>')

    def render(self) -> str:
        """Return the file's text."""
        size = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        label = escape(self.title, quote=True)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="aotcuda-picture" role="img" aria-label="{label}" {size}>'
        )
        paper = '<rect width="100%" height="100%" class="paper"/>'
        return "\n".join([head, f"<style>\n{STYLE}</style>", paper, *self.parts, "</svg>\n"])


@dataclass(frozen=True)
class Bar:
    """A bar, and how far what was measured spreads around its end.

    Attributes:
        label: What it is.
        value: Its length.
        kind: `own`, `other` or `base`.
        spread: The range; None if it is unknown.
        start: A part at its beginning that is the base's.
    """

    label: str
    value: float
    kind: str
    spread: tuple[float, float] | None = None
    start: float = 0.0


def bars(title: str, rows: list[Bar], notes: list[str], *, unit: str, digits: int) -> str:
    """Horizontal bars, and notes below them."""
    width, height, gap, top, label = 860, 18, 8, 40, 250
    notes = [line for note in notes for line in textwrap.wrap(note, _NOTE)]
    picture = Picture(width, top + len(rows) * (height + gap) + 18 * len(notes) + 16, title)
    picture.text(12, 24, title, "strong")
    longest = max(max(row.value, row.spread[1] if row.spread else 0) for row in rows)
    scale = (width - label - 90) / longest
    for number, row in enumerate(rows):
        y = top + number * (height + gap)
        middle = y + height / 2
        picture.text(label - 10, y + 13.5, row.label, "strong" if row.kind == "own" else "", "end")
        picture.rectangle(label, y, row.start * scale, height, "base")
        picture.rectangle(label + row.start * scale, y, (row.value - row.start) * scale, height, row.kind)
        end = row.value
        if row.spread is not None:
            low, high = (label + value * scale for value in row.spread)
            end = max(end, row.spread[1])
            picture.line([(low, middle), (high, middle)], "spread")
            for x in (low, high):
                picture.line([(x, middle - 4), (x, middle + 4)], "spread")
        picture.text(label + end * scale + 8, y + 13.5, f"{row.value:.{digits}f} {unit}")
    for number, note in enumerate(notes):
        picture.text(12, top + len(rows) * (height + gap) + 14 + number * 18, note, "faint small")
    return picture.render()
