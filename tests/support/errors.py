"""Read the corpora of errors in tests/data/errors: configurations with their error messages.

A file has sections (`== name`). A case is a piece of TOML, then the complete message, indented. `...` stands for any
text, and `{M}` for the key of the module `pkg.k`. Cases are separated by an empty line.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

MODULE = 'tool.aotcuda.modules."pkg.k"'
FOLDER = Path(__file__).parents[1] / "data" / "errors"


def cases(file: str, section: str) -> pytest.MarkDecorator:
    """Return a section's cases as the arguments `text` and `expected` of a test."""
    (_, content), *_ = (
        (title, body)
        for title, _, body in (part.partition("\n") for part in (FOLDER / file).read_text().split("== "))
        if title == section
    )
    pairs = []
    for case in content.strip("\n").split("\n\n"):
        lines = case.replace("{M}", MODULE).splitlines()
        text = "\n".join(line for line in lines if not line.startswith("    "))
        expected = " ".join(line.strip() for line in lines if line.startswith("    "))
        pairs.append(pytest.param(text, expected, id=textwrap.shorten(text, 60)))
    return pytest.mark.parametrize(("text", "expected"), pairs)


def assert_message(message: str, expected: str) -> None:
    """Check that a message is one line and fits the message of a case."""
    assert "\n" not in message
    pattern = ".*".join(map(re.escape, expected.split("...")))
    assert re.fullmatch(pattern, message), f"{message}\n{expected}"
