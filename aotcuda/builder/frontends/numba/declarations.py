"""Where a Python module declares a foreign function: the line of the call of `declare_device` that names it."""

from __future__ import annotations

import ast
import functools
from pathlib import Path


def line(path: str, name: str) -> int | None:
    """The line of the file `path` in which `name` is declared; None if there is none that can be found."""
    return _declared(path).get(name)


@functools.cache
def _declared(path: str) -> dict[str, int]:
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return {}
    found: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("declare_device") and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                found.setdefault(first.value, node.lineno)
    return found
