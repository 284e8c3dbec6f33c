"""Reports in colour, by rich where it is installed: the text is the same without."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

_STYLES = (
    (r"(?m)^\S[^\n]*$(?=\n  in )", "bold green"),  # a module
    (r"(?m)^  \S+(?=  \((?:linked )?(?:kernel|function)\b)", "bold"),
    (r"(?m)^ *(?:arch|image|kernel)  [^\n]*$", "dim"),  # headers of columns
    (r"(?<![\w.])\d+!", "bold red"),
)
"""What is painted, as it stands in the text."""

_LARGEST = 1 << 20
"""Characters of a text that is worth its colours."""


def write(text: str, stream: TextIO) -> None:
    """Write `text` and a line break; in colour on a terminal, unless `NO_COLOR` is set or rich is not installed."""
    if stream.isatty() and not os.environ.get("NO_COLOR") and len(text) <= _LARGEST:
        try:
            from rich.console import Console  # noqa: PLC0415 (an extra, and 0.1 s)
            from rich.text import Text  # noqa: PLC0415
        except ImportError:
            pass
        else:
            painted = Text(text, no_wrap=True)
            for pattern, style in _STYLES:
                painted.highlight_regex(pattern, style)
            Console(file=stream).print(painted, soft_wrap=True, highlight=False)
            return
    stream.write(text + "\n")
