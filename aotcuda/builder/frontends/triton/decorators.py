"""Look through the decorators around a `@triton.jit` function: autotuners, heuristics, and packages' own of either."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEEPEST = 32
"""The most decorators around one function: an object may be its own `fn`."""


class Asked(NamedTuple):
    """The question of a heuristic of the form `args["x"] is None`.

    Attributes:
        name: The argument.
        is_none: False for `is not None`.
    """

    name: str
    is_none: bool


def layers(value: Any) -> tuple[list[Any], Any]:
    """Return the decorators' objects around a function, the outermost first, and the innermost object.

    A decorator's object has the object below it as `fn`, and launches by `run`, as Triton's `KernelInterface` does.
    """
    from triton.runtime import JITFunction  # noqa: PLC0415 (as late as in every front end)

    found: list[Any] = []
    while not isinstance(value, JITFunction) and hasattr(value, "fn") and hasattr(value, "run"):
        if len(found) == _DEEPEST:
            break
        found.append(value)
        value = value.fn
    return found, value


def tuners(around: Sequence[Any]) -> list[Any]:
    """Return the autotuners among decorators' objects: they have `configs` with `kwargs`."""
    return [
        item
        for item in around
        if isinstance(getattr(item, "configs", None), list | tuple)
        and all(isinstance(getattr(config, "kwargs", None), dict) for config in item.configs)
    ]


def heuristics(around: Sequence[Any]) -> dict[str, Asked | None]:
    """Return the arguments that heuristics compute, in Triton's order, each with the question of its function.

    The question is None where the function is of another form.
    """
    from triton.runtime.autotuner import Heuristics  # noqa: PLC0415 (as late as in every front end)

    found: dict[str, Asked | None] = {}
    for item in around:
        if isinstance(item, Heuristics):
            for name, function in item.values.items():
                found.pop(name, None)  # the innermost one has the last word
                found[name] = question(function)
    return found


def question(function: object) -> Asked | None:
    """Return the question of a function of the literal form `lambda args: args["x"] is None`, else None.

    The function's code is compared with that of such a lambda, or of such a `def`, that is compiled here: so nothing is
    known of bytecode, and a default, a closure, another constant or another operation makes a difference.
    """
    if type(function) is not FunctionType or function.__defaults__ or function.__kwdefaults__ or function.__closure__:
        return None
    code = function.__code__
    names = [constant for constant in code.co_consts if type(constant) is str]
    for name in names:
        for is_none in (True, False):
            body = f"{code.co_varnames[0] if code.co_varnames else 'args'}[{name!r}] is {'' if is_none else 'not '}None"
            if any(_is_same(code, form) for form in _forms(code, body)):
                return Asked(name, is_none)
    return None


def _forms(code: Any, body: str) -> list[Any]:
    """Return the code of a lambda and of a `def` whose one parameter and whose body are given."""
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
    variable = 0x0C  # *args, **kwargs; see CO_VARARGS in the documentation of `inspect`
    return not (one.co_flags ^ other.co_flags) & variable and all(
        getattr(one, name) == getattr(other, name) for name in attributes
    )
