"""Add the key and the user's file and line to errors of Numba's compilers, and places to declared functions."""

from __future__ import annotations

import ast
import functools
import os
import re
import traceback
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda.builder.frontends import error_table
from aotcuda.builder.frontends.error_table import relative
from aotcuda.common import foreign
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType, FunctionType

    from aotcuda.builder.frontends.numba.config import NumbaUnit
    from aotcuda.builder.frontends.protocol import External

_PLACES = re.compile(r'File "([^"]+)", line (\d+)|(?: at|Raised from) (\S+) \((\d+)\)|\((\S+):(\d+)\)')
_COMPILERS = frozenset(["numba", "numba_cuda", "numba_cuda_mlir", "llvmlite", "numpy"])


class RaisesError(Exception):
    """A function with the C ABI raises or returns None, which this ABI cannot report."""


@contextmanager
def add_context(unit: NumbaUnit, python: FunctionType, root: str) -> Iterator[None]:
    """Turn exceptions of the compilation of `python` into CompileErrors that name the unit; paths begin at `root`."""
    head = f"{unit.key}: {unit.signature}"
    try:
        yield
    except CompileError as error:
        text = relative(str(error), root)
        if text.startswith("tool.aotcuda"):
            raise
        where = "" if _line_in_text(text, root) else f" ({_place('', error, python, root)})"
        first, *rest = text.split("\n")
        reason, mark, remedy = first.partition("; ")
        raise CompileError("\n".join([f"{head}: {reason}{where}{mark}{remedy}", *rest])) from error
    except RaisesError as error:
        message = f"{head}: a function with the C ABI cannot {relative(str(error), root)}"
        raise CompileError(message) from error
    except Exception as error:
        raise CompileError(_message(head, error, python, root)) from error


def function_place(function: FunctionType, root: str) -> str:
    """Return the place where `function` begins, `mypkg/_kernels.py:12`."""
    return f"{relative(function.__code__.co_filename, root)}:{function.__code__.co_firstlineno}"


def _message(head: str, error: Exception, python: FunctionType, root: str) -> str:
    text = relative(error_table.error_text(error), root)
    return error_table.explain(head, text, lambda rest: _place(rest, error, python, root))


def _place(text: str, error: Exception, python: FunctionType, root: str) -> str:
    """Return the place of the code that the compiler refuses: the first line of the user in the message.

    Some messages have no line, or only lines of the compiler's library. For these, the compiler's objects in the
    traceback, such as statements, have the user's line.
    """
    if line := _line_in_text(text, root):
        return line
    seen = [error, *(value for frame in _frames(error) for value in _local_objects(frame))]
    places = [where for value in seen if (where := _user_line(_location(value), root))]
    first_lines = _first_lines(python, root)
    return next(
        (where for where in places if where not in first_lines), next(iter(places), function_place(python, root))
    )


def _frames(error: Exception) -> list[FrameType]:
    """Return the frames of an error and of its causes, the innermost first."""
    found: list[FrameType] = []
    cause: BaseException | None = error
    while cause is not None:
        found = [*found, *reversed([frame for frame, _ in traceback.walk_tb(cause.__traceback__)])]
        cause = cause.__cause__ or cause.__context__
    return found


def _local_objects(frame: FrameType) -> Iterator[object]:
    """Yield the local objects of a compiler's function: statements and expressions first."""
    for name, value in frame.f_locals.items():
        if name != "self":
            yield value
    yield frame.f_locals.get("self")


def _line_in_text(text: str, root: str) -> str | None:
    """Return the first line of the user that a message names."""
    for parts in _PLACES.findall(text):
        path, line = filter(None, parts)
        if user_path := _user_path(path, root):
            return f"{user_path}:{line}"
    return None


def _location(value: object) -> object:
    if type(value).__module__.partition(".")[0] in _COMPILERS:
        with suppress(Exception):  # attributes of some objects raise other exceptions
            return getattr(value, "loc", None)
    return None


def _user_line(loc: object, root: str) -> str | None:
    path = _user_path(getattr(loc, "filename", None), root)
    return f"{path}:{loc.line}" if path else None  # type: ignore[attr-defined]


def _user_path(path: object, root: str) -> str | None:
    """Return the path of a user's file relative to `root`; None for files of compilers or installed packages."""
    if not isinstance(path, str) or not path or path.startswith("<"):
        return None
    absolute = Path(os.path.normpath(Path(root, path)))
    if not absolute.is_relative_to(root):
        return None
    parts = absolute.relative_to(root).parts
    installed = parts[0] in _COMPILERS or "site-packages" in parts or "dist-packages" in parts
    return None if installed else absolute.relative_to(root).as_posix()


def _first_lines(python: FunctionType, root: str) -> set[str]:
    """Return the first lines of a function, which the compiler names if it knows no better line."""
    code = python.__code__
    lines = [line for _, _, line in code.co_lines() if line is not None]
    first = range(code.co_firstlineno, min((line for line in lines if line > code.co_firstlineno), default=0))
    path = relative(code.co_filename, root)
    return {f"{path}:{line}" for line in (*first, code.co_firstlineno)}


def add_places(externals: Iterable[External], python: FunctionType, root: str) -> tuple[External, ...]:
    """Return `externals` with the places of their declarations in the module of `python`, as `mypkg/_kernels.py:12`."""
    externals = tuple(externals)
    if not externals:
        return ()
    path = python.__globals__.get("__file__") or ""
    lines = _declaration_lines(path)
    inside = path.removeprefix(f"{root}/")
    return tuple(
        replace(item, place=f"{inside}:{lines[item.name]}" if item.name in lines else "") for item in externals
    )


@functools.cache
def _declaration_lines(path: str) -> dict[str, int]:
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
