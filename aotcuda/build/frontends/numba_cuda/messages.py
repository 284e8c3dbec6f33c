"""Errors of Numba as errors of the build: with the configuration's key, and the user's file and line."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from numba.cuda.core.errors import NumbaError

from aotcuda.build.frontends.numba_cuda.adapt import RaisesError
from aotcuda.errors import AotcudaError, CompileError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FunctionType

    from aotcuda.build.plan import Unit

_RETURNS = re.compile(r"No conversion from (.+) to none for '\$.*return_value")
_FILE_LINE = re.compile(r'File "([^"]+)", line (\d+)')
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NOISE = re.compile(r"^(Failed in \w+ mode pipeline.*|During: .*|<source elided>|\s*\^+|\s*)$")


@contextmanager
def explained(unit: Unit, root: str) -> Iterator[None]:
    """Turn what is raised inside into a CompileError that names the unit; paths are shown relative to `root`."""
    head = f"{unit.key}: {unit.signature}"
    try:
        yield
    except AotcudaError as error:
        if str(error).startswith("tool.aotcuda"):
            raise
        message = f"{head}: {error}"
        raise type(error)(message) from error
    except RaisesError as error:
        message = f"{head}: a function with the C ABI {relative(str(error), root)}"
        raise CompileError(message) from error
    except NumbaError as error:
        raise CompileError(_numba_message(head, str(error), unit, root)) from error
    except Exception as error:
        message = f"{head}: {type(error).__name__}: {error}"
        raise CompileError(message) from error


def relative(text: str, root: str) -> str:
    """`text` with the paths in it made relative to `root`."""
    prefix = root.rstrip("/")
    return text.replace(f"{prefix}/", "") if prefix else text


def place(function: FunctionType, root: str) -> str:
    """`mypkg/_kernels.py:12`, where `function` begins."""
    return f"{relative(function.__code__.co_filename, root)}:{function.__code__.co_firstlineno}"


def _numba_message(head: str, text: str, unit: Unit, root: str) -> str:
    """Numba's reason and the user's file and line in the first line; Numba's whole message, indented, below it."""
    plain = relative(_COLOUR.sub("", text), root)
    places = [f"{path}:{line}" for path, line in _FILE_LINE.findall(plain)]
    where = f" ({places[-1]})" if places else ""
    if unit.kind == "kernel" and (found := _RETURNS.search(plain)):
        return f"{head}: a kernel returns nothing, and this one returns {found[1]}{where}; store the result in an array"
    lines = [line.strip() for line in plain.splitlines() if not _NOISE.match(line)]
    inner = [line for line in lines if line.startswith(("No implementation", "Unknown attribute", "Untyped global"))]
    reason = (inner[-1:] or lines[:1] or ["Numba refuses it"])[0]
    details = "\n".join(f"    {line}".rstrip() for line in plain.splitlines())
    return f"{head}: {reason}{where}\n{details}"
