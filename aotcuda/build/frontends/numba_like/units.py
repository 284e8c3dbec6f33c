"""What a unit asks of a compiler: its Python function, its signature, and the options of `@cuda.jit` that matter."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

from aotcuda.build.frontends.numba_like.messages import place
from aotcuda.errors import CompileError, SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aotcuda.build.config import Options
    from aotcuda.build.frontends.numba_like.notation import Notation
    from aotcuda.build.plan import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class JitOptions:
    """The options of `@cuda.jit` that matter to code, joined with those of the configuration."""

    options: Options
    launch_bounds: tuple[int, ...]
    max_registers: int
    carveout: int | None
    link: tuple[Any, ...]
    inline: str
    forceinline: bool


def python_function(unit: Unit, function: object, dispatcher: Any) -> FunctionType:
    """The plain Python function behind `function`, which may be of class `dispatcher`.

    Raises:
        SourceError: It is no function.
    """
    python = function.py_func if isinstance(function, dispatcher) else function
    if not isinstance(python, FunctionType):
        message = (
            f"{unit.key}: {unit.source}.{unit.python} is a {type(function).__name__}, not a function; name a Python "
            "function, plain or decorated with @cuda.jit"
        )
        raise SourceError(message)
    return python


def signature(unit: Unit, python: FunctionType, notation: Notation) -> tuple[tuple[Any, ...], Any]:
    """Argument types and return type (None if not given) of the unit's signature.

    Raises:
        CompileError: It does not parse.
    """
    try:
        return notation.parse(unit.signature, python.__globals__)
    except ValueError as error:
        message = f"{unit.signature_key}: {unit.signature!r} is no signature in Numba's notation: {error}"
        raise CompileError(message) from None


def resolve(unit: Unit, python: FunctionType, notation: Notation, root: str) -> str:
    """Check that `python` can be compiled and that the unit's signature fits it; the signature as understood.

    Raises:
        SourceError: `python` is none that can be compiled.
        CompileError: The signature is not one, or has the wrong number of arguments.
    """
    args, result = signature(unit, python, notation)
    _check_kind(unit, python, root)
    expected = len(inspect.signature(python).parameters)
    if len(args) != expected:
        message = (
            f"{unit.signature_key}: {unit.signature!r} has {len(args)} argument{'s' * (len(args) != 1)} where "
            f"{unit.python} takes {expected} ({place(python, root)})"
        )
        raise CompileError(message)
    none = notation.types.none
    if unit.kind == "kernel" and result not in (None, none):
        message = f"{unit.signature_key}: a kernel returns nothing; write void(...) where {unit.signature!r} stands"
        raise CompileError(message)
    return notation.spell_signature(result or none, args)


def _check_kind(unit: Unit, python: FunctionType, root: str) -> None:
    """Refuse what would be compiled to something else than what was written."""
    where = f"{unit.key}: {unit.python} ({place(python, root)})"
    if python.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        message = f"{where} is a generator or coroutine; name a plain function"
        raise SourceError(message)
    for parameter in inspect.signature(python).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            only = " by keyword only" if parameter.kind == parameter.KEYWORD_ONLY else ""
            message = f"{where} takes {parameter}{only}; take a fixed number of arguments, each by its position"
            raise SourceError(message)


def jit_options(unit: Unit, given: Mapping[str, Any]) -> JitOptions:
    """The options that a decorator was `given`, joined with those of the unit."""
    bounds = given.get("launch_bounds") or ()
    unoptimised = given.get("opt") is False or given.get("opt_level") == 0
    options = replace(
        unit.options,
        fastmath=unit.options.fastmath or bool(given.get("fastmath")),
        debug=unit.options.debug or bool(given.get("debug")),
        lineinfo=unit.options.lineinfo or bool(given.get("lineinfo")),
        opt_level=0 if unoptimised else unit.options.opt_level,
    )
    carveout = given.get("shared_memory_carveout")
    if isinstance(carveout, str):
        carveout = {"default": -1, "maxl1": 0, "maxshared": 100}[carveout.lower()]
    return JitOptions(
        options=options,
        launch_bounds=unit.launch_bounds or ((bounds,) if isinstance(bounds, int) else tuple(bounds)),
        max_registers=int(given.get("max_registers") or 0),
        carveout=carveout,
        link=tuple(given.get("link") or ()),
        inline=given.get("inline") or "never",
        forceinline=bool(given.get("forceinline")),
    )
