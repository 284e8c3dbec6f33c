"""Recognise Triton's heuristics that only test if an argument is None, for the build and for launches in place."""

from __future__ import annotations

from types import FunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

Question = tuple[str, bool]
"""The question of a heuristic of the form `args["x"] is None`: the argument, and False for `is not None`."""


def question(function: object) -> Question | None:
    """Return the question of a function of the literal form `lambda args: args["x"] is None`, else None.

    The function's code is compared with a lambda and a `def` of that form that are compiled here. So this works with
    the bytecode of any Python, and a default, a closure, another constant or another operation makes a difference.
    """
    if type(function) is not FunctionType or function.__defaults__ or function.__kwdefaults__ or function.__closure__:
        return None
    code = function.__code__
    names = [constant for constant in code.co_consts if type(constant) is str]
    for name in names:
        for is_none in (True, False):
            body = f"{code.co_varnames[0] if code.co_varnames else 'args'}[{name!r}] is {'' if is_none else 'not '}None"
            if any(_is_same(code, form) for form in _forms(code, body)):
                return name, is_none
    return None


def computed_arguments(around: Iterable[Any], kind: type) -> dict[str, Question | None]:
    """Return the arguments that heuristics compute, in Triton's order, each with the question of its function.

    The question is None if the function has another form.

    Args:
        around: The objects that decorators made around a kernel, the outermost first.
        kind: Triton's class of heuristics.
    """
    found: dict[str, Question | None] = {}
    for item in around:
        if isinstance(item, kind):
            values: dict[str, object] = vars(item)["values"]
            for name, function in values.items():
                found.pop(name, None)  # the innermost heuristic runs last
                found[name] = question(function)
    return found


def _forms(code: Any, body: str) -> list[Any]:
    """Return the code of a lambda and of a `def` with one parameter and this body."""
    parameter = code.co_varnames[0] if code.co_varnames else "args"
    scope: dict[str, Any] = {}
    exec(f"def named({parameter}): return {body}\nunnamed = lambda {parameter}: {body}", scope)  # noqa: S102 (two lines of ours)
    return [scope["named"].__code__, scope["unnamed"].__code__]


def _is_same(one: Any, other: Any) -> bool:
    """Return True if two code objects do the same with one positional argument."""
    attributes = (
        *("co_code", "co_consts", "co_names", "co_varnames", "co_freevars", "co_cellvars"),
        *("co_argcount", "co_kwonlyargcount", "co_posonlyargcount", "co_exceptiontable"),
    )
    variadic = 0x0C  # *args, **kwargs; see CO_VARARGS in the documentation of `inspect`
    return not (one.co_flags ^ other.co_flags) & variadic and all(
        getattr(one, name) == getattr(other, name) for name in attributes
    )
