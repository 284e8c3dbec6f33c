"""Turn exceptions and output of Triton's compiler into errors that name the key and the user's line."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from aotcuda.builder.compile import captured
from aotcuda.builder.frontends import error_table
from aotcuda.errors import AotcudaError, CompileError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from triton.compiler.errors import CompilationError

    from aotcuda.arch import Target
    from aotcuda.builder.frontends.triton.config import TritonUnit


@contextlib.contextmanager
def explain_errors(unit: TritonUnit, function: Any, target: Target, root: str) -> Iterator[None]:
    """Turn an exception of Triton in this block into an error that names the key and the user's line.

    Raises:
        CompileError: Triton refuses the kernel.
    """
    from triton.compiler.errors import CompilationError  # noqa: PLC0415 (only workers have Triton)

    texts: list[str] = []
    head = f"{unit.head}: Triton cannot compile it for {target}"
    try:
        with captured.capturing() as texts:
            yield
    except AotcudaError:
        raise
    except CompilationError as error:
        inner = error  # the error of a helper function
        while isinstance(inner.__cause__, CompilationError):
            inner = inner.__cause__
        reason, place = _reason(inner).partition("\n")[0], _place(inner, function, root)
        failure = CompileError(error_table.explain(head, reason, place))
        failure.fault = error_table.explain(unit.key, reason, place)
        raise failure from error
    except Exception as error:
        lines = [line for text in texts for line in _ERROR_LINE.findall(text)]
        text = "\n".join([error_table.error_text(error), *lines])
        raise CompileError(error_table.explain(head, text)) from error


_ERROR_LINE = re.compile(r"error: (?!Failures have been detected)(.*)")
"""A line with an error of Triton's passes. After the line they print their whole input."""


def _reason(error: CompilationError) -> str:
    """Return the reason of an error: Triton's message, or the exception that the source raised."""
    raised = error.__cause__ or error.__context__
    message = error.error_message
    if raised is not None and message in (None, repr(raised)):
        return first_line(raised)
    return str(message) if message else first_line(error)


def _place(error: CompilationError, function: Any, root: str) -> str:
    """Return the line of the kernel or its callees that Triton names: `mypkg/_kernels.py:12: tl.store(x, y)`."""
    line = getattr(error.node, "lineno", None)
    source = (error.src or "").splitlines()
    if not line or line > len(source):
        return ""
    text: str = source[line - 1].strip()
    owner = next((callee for callee in _callees(function) if callee.src == error.src), None)
    if owner is None:
        return text
    lines = owner.raw_src if isinstance(owner.raw_src, list) else owner.raw_src.splitlines()
    decorators = next((at for at, item in enumerate(lines) if item.lstrip().startswith("def ")), 0)
    path = Path(owner.fn.__code__.co_filename)
    name = path.relative_to(root) if root and path.is_relative_to(root) else path
    return f"{name}:{owner.starting_line_number + decorators + line - 1}: {text}"


def _callees(function: Any) -> Iterator[Any]:
    """Yield a function of `@triton.jit` and the functions that it calls by name or as attributes of modules."""
    from triton.runtime import JITFunction  # noqa: PLC0415 (only workers have Triton)

    seen: set[object] = set()
    waiting = [function]
    while waiting:
        callee = waiting.pop(0)
        if callee.fn in seen:
            continue
        seen.add(callee.fn)
        yield callee
        code = callee.fn.__code__
        cells = zip(code.co_freevars, callee.fn.__closure__ or (), strict=True)
        named = {**callee.fn.__globals__, **{name: cell.cell_contents for name, cell in cells}}
        values = [named[name] for name in (*code.co_names, *code.co_freevars) if name in named]
        modules = [value for value in values if isinstance(value, ModuleType)]
        values += [getattr(module, name, None) for module in modules for name in code.co_names]
        waiting += [value for value in values if isinstance(value, JITFunction)]


def first_line(error: BaseException) -> str:
    """Return an error's class and the first line of its text."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
