"""Draw diagrams as SVG: text, boxes and arrows, in the colours of the page that contains them.

Inside a page of the site, the variables of its theme give the colours of ink and paper. As an `<img>` a picture has no
variables, and takes the light or dark colours that the reader's system prefers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

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
.aotcuda-picture .base { fill: #4a76a8; }
.aotcuda-picture .box { fill: none; stroke: var(--color-foreground-border, #878d96); stroke-width: 1.5; }
.aotcuda-picture .box.ours { stroke: #5a9a1e; }
.aotcuda-picture .rule { stroke: var(--line); stroke-width: 1; }
.aotcuda-picture .arrow { stroke: var(--faint); stroke-width: 1.5; fill: none; }
.aotcuda-picture .head { fill: var(--faint); }
.aotcuda-picture .dashed { stroke-dasharray: 5 4; }
"""


@dataclass
class Picture:
    """A picture with its size in pixels, and a title that describes it."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        """Draw a line of text on its base line; `kind` has classes of `STYLE`."""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>')

    def lines(self, x: float, y: float, lines: list[tuple[str, str]], step: float = 18) -> None:
        """Draw lines of text below each other, each with its classes."""
        for number, (text, kind) in enumerate(lines):
            self.text(x, y + number * step, text, kind)

    def rectangle(self, x: float, y: float, width: float, height: float, kind: str, radius: float = 0) -> None:
        """Draw a rectangle."""
        corner = f' rx="{radius:g}"' if radius else ""
        size = f'width="{max(width, 0):.1f}" height="{height:g}"'
        self.parts.append(f'<rect x="{x:.1f}" y="{y:g}" {size}{corner} class="{kind}"/>')

    def line(self, points: list[tuple[float, float]], kind: str) -> None:
        """Draw a line through points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" class="{kind}" fill="none"/>')

    def arrow(self, points: list[tuple[float, float]]) -> None:
        """Draw a line with a head at its last point; the last part runs straight across or straight down."""
        (x0, y0), (x, y) = points[-2:]
        self.line(points, "arrow")
        across = abs(x - x0) > abs(y - y0)
        back = 7 if (x > x0 if across else y > y0) else -7
        head = (
            [(x, y), (x - back, y - 4), (x - back, y + 4)] if across else [(x, y), (x - 4, y - back), (x + 4, y - back)]
        )
        self.parts.append(f'<polygon points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in head)}" class="head"/>')

    def render(self) -> str:
        """Return the file's text."""
        size = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        label = escape(self.title, quote=True)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="aotcuda-picture" role="img" aria-label="{label}" {size}>'
        )
        paper = '<rect width="100%" height="100%" class="paper"/>'
        return "\n".join([head, f"<style>\n{STYLE}</style>", paper, *self.parts, "</svg>\n"])
