"""What a unit asks of a compiler: its Python function, its signature, and the options of `@cuda.jit` that matter."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass, replace
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from aotcuda import frontends
from aotcuda.builder.frontends.numba import gpu
from aotcuda.builder.frontends.numba.messages import place
from aotcuda.builder.worker.imports import Placeholder
from aotcuda.errors import CompileError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.numba.tables import NumbaUnit
    from aotcuda.builder.frontends.numba.type_notation import Notation


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


class Vectorized:
    """Stands for what `@vectorize` makes for a GPU, while a build imports it."""

    def __init__(self, function: FunctionType) -> None:
        self.py_func = function
        self.__name__ = function.__name__

    def __call__(self, *_: object, **__: object) -> Any:
        """Refuse.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError(gpu.MISSING)


def _is_vectorized(kind: str) -> bool:
    return kind == Vectorized.__name__ or kind.lower().endswith(("ufunc", "ufuncdispatcher"))


def python_function(unit: NumbaUnit, function: object, dispatcher: Any, notation: Notation, root: str) -> FunctionType:
    """The plain Python function behind `function`, which may be of class `dispatcher`.

    Raises:
        SourceError: It is no function.
    """
    python = function.py_func if isinstance(function, dispatcher) else function
    if not isinstance(python, FunctionType):
        other, own = _made_by(python), _compiler(notation.types.__name__)
        if other not in (None, own):
            raise _foreign(unit, f"{unit.source}.{unit.python}", other, own)
        name = f"{unit.source}.{unit.python}"
        if _is_vectorized(type(function).__name__):
            made_of = getattr(function, "_dispatcher", function)
            vectorized = getattr(made_of, "py_func", None) or getattr(made_of, "pyfunc", None)
            where = f" ({place(vectorized, root)})" if isinstance(vectorized, FunctionType) else ""
            message = (
                f"{unit.key}: {name}{where} is made by @vectorize or @guvectorize, which launch kernels of their own; "
                "write a kernel that calls the plain function for each element, and name that"
            )
            raise SourceError(message)
        message = (
            f"{unit.key}: {name} is a {type(function).__name__}, not a function; name a Python function, plain or "
            "decorated with @cuda.jit"
        )
        raise SourceError(message)
    return python


def namespace(unit: NumbaUnit, python: FunctionType) -> Mapping[str, object]:
    """What a unit's signature may name: what the module has that the configuration names, then the function's own."""
    return {**python.__globals__, **vars(sys.modules[unit.source])}


def signature(unit: NumbaUnit, python: FunctionType, notation: Notation) -> tuple[tuple[Any, ...], Any]:
    """Argument types and return type (None if not given) of the unit's signature.

    Raises:
        CompileError: It does not parse.
    """
    try:
        return notation.parse(unit.signature, namespace(unit, python))
    except ValueError as error:
        message = f"{unit.signature_key}: {unit.signature!r} is no signature in Numba's notation: {error}"
        raise CompileError(message) from None


def resolve(unit: NumbaUnit, python: FunctionType, notation: Notation, root: str) -> str:
    """Check that `python` can be compiled and that the unit's signature fits it; the signature as understood.

    Raises:
        SourceError: `python` is none that can be compiled.
        CompileError: The signature is not one, or has the wrong number of arguments.
    """
    args, result = signature(unit, python, notation)
    _check_kind(unit, python, root)
    _check_globals(unit, python, _compiler(notation.types.__name__), root)
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


def _check_kind(unit: NumbaUnit, python: FunctionType, root: str) -> None:
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


def _check_globals(unit: NumbaUnit, python: FunctionType, own: str | None, root: str) -> None:
    """Refuse what no compiler would explain: another compiler's names, and what the wheel is only about to gain."""
    waiting, seen = [python], set()
    while waiting:
        function = waiting.pop()
        seen.add(function)
        for name in _names(function.__code__):
            value = function.__globals__.get(name)
            if isinstance(value, FunctionType):
                if value not in seen:
                    waiting.append(value)
                continue
            where = f"{name} in {function.__name__} ({place(function, root)})"
            other = _made_by(value)
            if other not in (None, own):
                raise _foreign(unit, where, other, own)
            if (module := _being_built(value)) is not None:
                message = (
                    f"{unit.key}: {where} is of {module}, which this build makes; declare the function, "
                    f'cuda.declare_device(name, signature, abi="c"), and link the module: {{ module = "{module}" }}'
                )
                raise SourceError(message)


def _being_built(value: object) -> str | None:
    """The module of this build that a value stands for, or is a part of."""
    if isinstance(value, ModuleType) and isinstance(vars(value).get("__aotcuda__"), Placeholder):
        return value.__name__
    return value.__name__.rpartition(".")[0] if isinstance(value, Placeholder) else None


def _names(code: CodeType) -> Iterator[str]:
    """The names of globals and attributes in a function, the functions inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _made_by(value: object) -> str | None:
    """The front end whose compiler a value belongs to, a module or an object; None if to none."""
    return _compiler(value.__name__ if isinstance(value, ModuleType) else type(value).__module__)


def _compiler(module: str) -> str | None:
    found = frontends.owning(module)
    return None if found is None else found.name


def _foreign(unit: NumbaUnit, what: str, other: str | None, own: str | None) -> SourceError:
    registered = frontends.find(own) if own else None
    imports = registered.imports if registered is not None else "its own compiler"
    return SourceError(
        f"{unit.key}: {what} is made by {other}, and the front end of {unit.module} is {own}; "
        f'set frontend = "{other}" for the module, or import it from {imports}'
    )


def jit_options(unit: NumbaUnit, given: Mapping[str, Any]) -> JitOptions:
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
