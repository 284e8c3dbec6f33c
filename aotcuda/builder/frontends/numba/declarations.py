"""Where a Python module declares a foreign function: the line of the call of `declare_device` that names it."""

from __future__ import annotations

import ast
import functools
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from aotcuda.common import foreign

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FunctionType

    from aotcuda.builder.frontends.protocol import External


def placed(externals: Iterable[External], python: FunctionType, root: str) -> tuple[External, ...]:
    """`externals` with the places where the module of `python` declares them, as `mypkg/_kernels.py:12`."""
    path = getattr(sys.modules.get(python.__module__ or ""), "__file__", None) or ""
    lines = _declared(path)
    inside = path.removeprefix(f"{root}/")
    return tuple(
        replace(item, place=f"{inside}:{lines[item.name]}" if item.name in lines else "") for item in externals
    )


@functools.cache
def _declared(path: str) -> dict[str, int]:
    try:
        tree = ast.parse(foreign.content(path))
    except (foreign.UnreadableError, SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("declare_device") and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                found.setdefault(first.value, node.lineno)
    return found
