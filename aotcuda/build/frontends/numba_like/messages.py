"""A compiler's errors as errors of the build: with the configuration's key, and the user's file and line."""

from __future__ import annotations

import re
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FunctionType

    from aotcuda.build.plan import Unit

_RETURNS = re.compile(r"No conversion from (.+) to (.+) for '\$.*return_value")
_FILE_LINE = re.compile(r'File "([^"]+)", line (\d+)')
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NOISE = re.compile(r"^(Failed in \w+ mode pipeline.*|During: .*|<source elided>|\s*\^+|\s*)$")
_REASON = re.compile(r"^\s*(No implementation|Unknown attribute|Untyped global)", re.MULTILINE)
_CALL = re.compile(r"^No implementation of .* found for signature:\s*>>> (.*)")


class RaisesError(Exception):
    """A function with the C ABI raises or returns None, for which that ABI has no channel."""


@contextmanager
def explained(unit: Unit, python: FunctionType, root: str, compiler_error: type[Exception]) -> Iterator[None]:
    """Turn what is raised while `python` is compiled into a CompileError that names the unit.

    Paths are shown relative to `root`; `compiler_error` is the class of the errors that the compiler words for users.
    """
    head = f"{unit.key}: {unit.signature}"
    try:
        yield
    except CompileError as error:
        if str(error).startswith("tool.aotcuda"):
            raise
        message = f"{head}: {relative(str(error), root)}"
        raise CompileError(message) from error
    except RaisesError as error:
        message = f"{head}: a function with the C ABI cannot {relative(str(error), root)}"
        raise CompileError(message) from error
    except compiler_error as error:
        raise CompileError(_compiler_message(head, error, unit, python, root)) from error
    except Exception as error:
        first, _, rest = relative(str(error), root).removesuffix(". Raised from None").partition("\n")
        message = f"{head}: {type(error).__name__}: {first} ({_place('', error, python, root)})"
        raise CompileError("\n".join(filter(None, [message, _indented(rest)]))) from error


def relative(text: str, root: str) -> str:
    """`text` with the paths in it made relative to `root`."""
    prefix = root.rstrip("/")
    return text.replace(f"{prefix}/", "") if prefix else text


def place(function: FunctionType, root: str) -> str:
    """`mypkg/_kernels.py:12`, where `function` begins."""
    return f"{relative(function.__code__.co_filename, root)}:{function.__code__.co_firstlineno}"


def _compiler_message(head: str, error: Exception, unit: Unit, python: FunctionType, root: str) -> str:
    """The reason and the user's file and line in the first line; the compiler's whole message, indented, below it."""
    plain = relative(_COLOUR.sub("", str(error)), root)
    start = found.start() if (found := _REASON.search(plain)) else 0
    where = _place(plain[start:], error, python, root)
    if returned := _RETURNS.search(plain):
        return f"{head}: {_returned(unit, *returned.groups())} ({where}); {_remedy(unit)}"
    if "_array_allocate" in plain:
        return f"{head}: it makes an array on the device, which a packaged kernel cannot do ({where}); pass one in"
    lines = [line.strip() for line in plain[start:].splitlines() if not _NOISE.match(line)]
    reason = (lines or ["the compiler refuses it"])[0].rstrip(".")
    if call := _CALL.search(plain[start:].lstrip()):
        reason = f"No implementation of {call[1]}"
    return f"{head}: {reason} ({where})\n{_indented(plain)}"


def _place(text: str, error: Exception, python: FunctionType, root: str) -> str:
    """File and line of what could not be compiled: in the compiler's message those come first, and callers follow.

    Some errors have no line. The compiler was looking at one, though, and the objects that worked on it know it.
    """
    for path, line in _FILE_LINE.findall(text):
        if not Path(path).is_absolute() or Path(path).is_relative_to(root):
            return f"{path}:{line}"
    workers = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
    for loc in (getattr(worker, "loc", None) for worker in (error, *reversed(workers))):
        name = getattr(loc, "filename", None)
        if name is not None and Path(name).is_relative_to(root):
            return f"{relative(name, root)}:{loc.line}"  # type: ignore[union-attr]
    return place(python, root)


def _returned(unit: Unit, found: str, promised: str) -> str:
    if unit.kind == "kernel":
        return f"a kernel returns nothing, and this one returns {found}"
    if found == "none":
        return f"it returns nothing in some cases, where its signature says {promised}"
    return f"it returns {found}, where its signature says {promised}"


def _remedy(unit: Unit) -> str:
    return "store the result in an array" if unit.kind == "kernel" else "make the two agree"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())
