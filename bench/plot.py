"""Draws the launch times of `bench/launch.py` as bars: `python bench/plot.py launch.json`, an SVG beside it."""

from __future__ import annotations

import json
import sys
from html import escape
from pathlib import Path

_BAR, _GAP, _LABEL, _WIDTH = 16, 6, 330, 900
_COLOURS = (("C,", "#666666"), ("aotcuda", "#2a7de1"), ("", "#c9c9c9"))


def main() -> None:
    source = Path(sys.argv[1])
    result = json.loads(source.read_text(encoding="utf-8"))
    target = source.with_suffix(".svg")
    times = {name: item["median"] for name, item in result["figures"]["axpy"].items()}
    title = f"Host time of one launch, microseconds: 1 scalar, 3 arrays ({result['machine'].get('gpu', '')})"
    target.write_text(draw(title, times), encoding="utf-8")
    print(target)


def draw(title: str, times: dict[str, float]) -> str:
    """The bars, shortest first."""
    rows = sorted(times.items(), key=lambda item: item[1])
    scale = (_WIDTH - _LABEL - 60) / rows[-1][1]
    parts = [f'<text x="8" y="20" font-weight="bold">{escape(title)}</text>']
    for number, (name, value) in enumerate(rows):
        top = 34 + number * (_BAR + _GAP)
        middle = top + _BAR - 4
        colour = next(colour for start, colour in _COLOURS if name.startswith(start))
        length = value * scale
        parts += [
            f'<text x="{_LABEL - 8}" y="{middle}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{_LABEL}" y="{top}" width="{length:.1f}" height="{_BAR}" fill="{colour}"/>',
            f'<text x="{_LABEL + length + 6:.1f}" y="{middle}">{value:.2f}</text>',
        ]
    height = 44 + len(rows) * (_BAR + _GAP)
    style = 'font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" {style}>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>\n"])


if __name__ == "__main__":
    main()
