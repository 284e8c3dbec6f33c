"""Recognise Triton's heuristics that only test if an argument is None, for the build and for launches in place."""

from __future__ import annotations

from types import FunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

Question = tuple[str, bool]
"""The question that a heuristic answers: `("x", True)` for `args["x"] is None`, `("x", False)` for `is not None`."""


def question(function: object) -> Question | None:
    """Return the question of a function of the literal form `lambda args: args["x"] is None`, else None.

    The function's code is compared with a lambda and a `def` of this form that the running Python compiles. So a
    default, a closure, another constant or another operation makes a difference.
    """
    if type(function) is not FunctionType or function.__defaults__ or function.__kwdefaults__ or function.__closure__:
        return None
    code = function.__code__
    for name in [constant for constant in code.co_consts if type(constant) is str]:
        for is_none in (True, False):
            if any(_is_equal(code, form) for form in _forms(code, name, is_none=is_none)):
                return name, is_none
    return None


def computed_arguments(layers: Iterable[Any], kind: type) -> dict[str, Question | None]:
    """Return the arguments that heuristics compute, in Triton's order, each with the question of its function.

    The question is None if the function has another form.

    Args:
        layers: The objects that decorators made around a kernel, the outermost first.
        kind: Triton's class of heuristics.
    """
    questions: dict[str, Question | None] = {}
    for layer in layers:
        if isinstance(layer, kind):
            values: dict[str, object] = vars(layer)["values"]
            for name, function in values.items():
                questions.pop(name, None)  # the innermost heuristic runs last
                questions[name] = question(function)
    return questions


def _forms(code: Any, name: str, *, is_none: bool) -> list[Any]:
    """Return the code of a `def` and of a lambda that answer a question, with the parameter's name in `code`."""
    parameter = code.co_varnames[0] if code.co_varnames else "args"
    body = f"{parameter}[{name!r}] is {'' if is_none else 'not '}None"
    scope: dict[str, Any] = {}
    exec(f"def named({parameter}): return {body}\nunnamed = lambda {parameter}: {body}", scope)  # noqa: S102 (names and `repr`)
    return [scope["named"].__code__, scope["unnamed"].__code__]


def _is_equal(one: Any, other: Any) -> bool:
    """Return True if two code objects do the same with one positional argument."""
    attributes = (
        *("co_code", "co_consts", "co_names", "co_varnames", "co_freevars", "co_cellvars"),
        *("co_argcount", "co_kwonlyargcount", "co_posonlyargcount", "co_exceptiontable"),
    )
    variadic = 0x0C  # *args, **kwargs; see CO_VARARGS in the documentation of `inspect`
    return not (one.co_flags ^ other.co_flags) & variadic and all(
        getattr(one, name) == getattr(other, name) for name in attributes
    )
