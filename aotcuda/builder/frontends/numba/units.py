"""Check a unit's Python function and read its signature."""

from __future__ import annotations

import inspect
import sys
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from aotcuda.builder.compile.imports import Placeholder
from aotcuda.builder.frontends.numba import other_compilers
from aotcuda.builder.frontends.numba.config import symbol
from aotcuda.builder.frontends.numba.user_lines import function_place
from aotcuda.errors import CompileError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aotcuda.builder.frontends.numba.config import NumbaUnit
    from aotcuda.builder.frontends.numba.resolve import LoadedFunction
    from aotcuda.builder.frontends.numba.type_notation import Notation


def namespace(unit: NumbaUnit, python: FunctionType) -> Mapping[str, object]:
    """Return the names that a unit's signature may use: those of the configured module before the function's module."""
    return {**python.__globals__, **vars(sys.modules[unit.source])}


class Signature(NamedTuple):
    """A resolved signature.

    Attributes:
        args: The argument types.
        result: The return type; None if the signature has none.
        text: The signature in Numba's notation.
    """

    args: tuple[Any, ...]
    result: Any
    text: str


def _parse(unit: NumbaUnit, loaded: LoadedFunction, notation: Notation) -> tuple[tuple[Any, ...], Any]:
    """Return argument types and return type of the unit's signature."""
    if unit.declared >= 0:
        return loaded.declared[unit.declared]
    try:
        return notation.parse(unit.signature, namespace(unit, loaded.python), dict(unit.types))
    except ValueError as error:
        message = f"{unit.signature_key}: {unit.signature!r} is not a signature in Numba's notation: {error}"
        raise CompileError(message) from None


def complete(unit: NumbaUnit, loaded: LoadedFunction, notation: Notation, root: str) -> list[NumbaUnit]:
    """Return the unit with the module of its function; without a signature, a unit for each signature of `@cuda.jit`.

    Raises:
        SourceError: There is no signature, or a device function has several.
    """
    unit = unit.in_module(loaded.module)
    if unit.signature:
        return [unit]
    where = f"{unit.python} ({function_place(loaded.python, root)})"
    texts = [notation.spell_signature(result or notation.types.none, args) for args, result in loaded.declared]
    if not texts:
        name = "signatures" if unit.kind == "kernel" else "signature"
        message = (
            f"{unit.key}: there is no signature, neither here nor in a @cuda.jit(...) of {where}; write {name} = "
            '"void(float32[::1])", with its types'
            + (", or let aotcuda record find them in a run" if unit.kind == "kernel" else "")
        )
        raise SourceError(message)
    different = [number for number, text in enumerate(texts) if text not in texts[:number]]
    if unit.kind == "function" and len(different) > 1:
        message = (
            f"{unit.key}: {where} has {len(different)} signatures, and a C name belongs to one function; choose "
            f'one: signature = "{texts[0]}"'
        )
        raise SourceError(message)
    return [
        unit.with_declared_signature(number, texts[number], symbol(unit.name, index, len(different)))
        for index, number in enumerate(different)
    ]


def resolve(unit: NumbaUnit, loaded: LoadedFunction, notation: Notation, root: str) -> Signature:
    """Check that a function can be compiled for the unit's signature, and return the resolved signature.

    Only this function parses the signatures of tables, in the worker; children inherit the types.

    Raises:
        SourceError: The function cannot be compiled.
        CompileError: The signature is invalid, or has the wrong number of arguments.
    """
    python = loaded.python
    args, result = _parse(unit, loaded, notation)
    _check_kind(unit, python, root)
    _check_globals(unit, python, other_compilers.front_end_of_module(notation.types.__name__), root)
    expected = len(inspect.signature(python).parameters)
    if len(args) != expected:
        defaults = [item for item in inspect.signature(python).parameters.values() if item.default is not item.empty]
        hint = "write a type for each parameter"
        if defaults and expected - len(defaults) <= len(args) < expected:
            hint += f", also for {defaults[-1].name}, since kernels have no default arguments"
        message = (
            f"{unit.signature_key}: {unit.signature!r} has {len(args)} argument{'s' * (len(args) != 1)} where "
            f"{unit.python} takes {expected} ({function_place(python, root)}); {hint}"
        )
        raise CompileError(message)
    none = notation.types.none
    if unit.kind == "kernel" and loaded.is_device:
        message = (
            f"{unit.key}: {unit.python} ({function_place(python, root)}) is a device function (device=True); list it "
            "under functions, or remove device=True"
        )
        raise SourceError(message)
    check_returns(unit, loaded, result, notation, root)
    if unit.kind == "kernel" and result not in (None, none):
        message = f"{unit.signature_key}: a kernel returns nothing; write void(...) where {unit.signature!r} stands"
        raise CompileError(message)
    text = unit.signature if unit.declared >= 0 else notation.spell_signature(result or none, args)
    return Signature(args, result, text)


def check_returns(unit: NumbaUnit, loaded: LoadedFunction, result: Any, notation: Notation, root: str) -> None:
    """Refuse a kernel among the functions: it is decorated with `@cuda.jit` and returns nothing.

    Raises:
        SourceError: It is one.
    """
    is_void = result == notation.types.none or unit.declared >= 0  # Numba refuses a result in @cuda.jit of a kernel
    if unit.kind == "function" and loaded.is_device is False and is_void:
        message = (
            f"{unit.key}: {unit.python} ({function_place(loaded.python, root)}) is a kernel, which returns nothing; "
            "list it under kernels, or write @cuda.jit(device=True) for a device function"
        )
        raise SourceError(message)


def _check_kind(unit: NumbaUnit, python: FunctionType, root: str) -> None:
    """Check that a function is not one that the compilers would compile with another meaning."""
    where = f"{unit.key}: {unit.python} ({function_place(python, root)})"
    if python.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        message = f"{where} is a generator or coroutine; name a plain function"
        raise SourceError(message)
    for parameter in inspect.signature(python).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            only = " by keyword only" if parameter.kind == parameter.KEYWORD_ONLY else ""
            message = f"{where} takes {parameter}{only}; use a fixed number of positional arguments"
            raise SourceError(message)


def _check_globals(unit: NumbaUnit, python: FunctionType, own: str | None, root: str) -> None:
    """Refuse objects of other compilers, and placeholders for modules of this build, among the globals."""
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
            where = f"{name} in {function.__name__} ({function_place(function, root)})"
            other = other_compilers.front_end_of(value)
            if other not in (None, own):
                raise other_compilers.other_compiler_error(unit, where, other, own)
            if (module := _being_built(value)) is not None:
                message = (
                    f"{unit.key}: {where} belongs to {module}, which this build packages; declare the function, "
                    f'cuda.declare_device(name, signature, abi="c"), and link the module: {{ module = "{module}" }}'
                )
                raise SourceError(message)


def _being_built(value: object) -> str | None:
    """Return the module of this build whose placeholder a value is or belongs to."""
    if isinstance(value, ModuleType) and isinstance(vars(value).get("__aotcuda__"), Placeholder):
        return value.__name__
    return value.__name__.rpartition(".")[0] if isinstance(value, Placeholder) else None


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes in a function, the functions inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
