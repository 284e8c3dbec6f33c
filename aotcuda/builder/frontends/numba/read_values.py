"""Find the values that a function reads when Numba compiles it: see `aotcuda.common.value_descriptions`."""

from __future__ import annotations

import dis
import sys
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from aotcuda.builder.compile import imports
from aotcuda.common import value_descriptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aotcuda.common.value_descriptions import Description

_FIRST = frozenset(["LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS"])
_NEXT = frozenset(["LOAD_ATTR", "LOAD_METHOD"])
_SKIPPED = frozenset(["EXTENDED_ARG", "CACHE", "NOP"])
_NUMBERS = (bool, int, float, complex)


def read_values(function: FunctionType, root: str) -> dict[str, Description]:
    """Return descriptions of the values that a function reads, by path; those of the helpers that it calls, too.

    Objects of the compiler do not count, and of other distributions only numbers, arrays and the names of functions.

    Args:
        function: The Python function of a kernel.
        root: The folder of the project.
    """
    return _Reader(root).read(function)


class _Reader:
    def __init__(self, root: str) -> None:
        self._roots = [root]

    def read(self, function: FunctionType) -> dict[str, Description]:
        found: dict[str, Description] = {}
        waiting = [("", function)]
        seen = {id(function)}
        while waiting:
            prefix, current = waiting.pop()
            for path, value in self._values(current):
                described = value_descriptions.describe(value)
                if described is None:
                    continue
                found[f"{prefix}{path}"] = described
                for suffix, inner in _functions(value):
                    if not self._is_of_project(inner.__code__.co_filename):
                        if not suffix:
                            described.pop()  # the line
                    elif id(inner) not in seen:
                        seen.add(id(inner))
                        waiting.append((f"{prefix}{path}{suffix}:", inner))
        return dict(sorted(found.items()))

    def _values(self, function: FunctionType) -> Iterator[tuple[str, Any]]:
        """Yield the values that a function itself reads, by path."""
        code = function.__code__
        for name in code.co_varnames[: code.co_argcount]:
            yield from _existing(name, value_descriptions.look_up(function, name))
        for first, *attributes in dict.fromkeys(_chains(code, frozenset(code.co_freevars))):
            path, value, is_foreign = first, value_descriptions.look_up(function, first), False
            for attribute in attributes:
                if not _has_members(value):
                    break
                is_foreign = is_foreign or self._is_foreign(value)
                path, value = f"{path}.{attribute}", getattr(value, attribute, value_descriptions.MISSING)
            if not is_foreign or isinstance(value, _NUMBERS) or hasattr(value, "tobytes"):
                yield from _existing(path, value)
            if isinstance(value, ModuleType | type) and _has_members(value) and not self._is_foreign(value):
                # The function gives the object another name, or calls getattr.
                for name in sorted({*names_in(code)} & vars(value).keys()):
                    yield from _existing(f"{path}.{name}", getattr(value, name, value_descriptions.MISSING))

    def _is_foreign(self, value: Any) -> bool:
        """Return True for a module or class that is not the project's."""
        if isinstance(value, type):
            value = sys.modules.get(value.__module__)
        return isinstance(value, ModuleType) and not self._is_of_project(getattr(value, "__file__", None))

    def _is_of_project(self, path: str | None) -> bool:
        return path is not None and imports.is_of_project(path, self._roots)


def _existing(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if value is not value_descriptions.MISSING and not _is_compilers(value):
        yield path, value


def _functions(value: Any) -> Iterator[tuple[str, FunctionType]]:
    """Yield a function, or the functions in a tuple, each with its path from the value."""
    items = enumerate(value) if isinstance(value, tuple | list) else [("", value)]
    for index, item in items:
        if (function := value_descriptions.python_function(item)) is not None:
            yield f".{index}" if isinstance(index, int) else "", function


def _chains(code: CodeType, free: frozenset[str]) -> Iterator[tuple[str, ...]]:
    """Yield each name that a function, or a function inside it, reads from outside, with the attributes that follow."""
    chain: tuple[str, ...] = ()
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if name in _SKIPPED:
            continue
        if chain and name in _NEXT:
            chain = (*chain, instruction.argval)
            continue
        if chain:
            yield chain
        is_outside = name in _FIRST and ("DEREF" not in name or instruction.argval in free)
        chain = (instruction.argval,) if is_outside else ()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _chains(constant, free)


def names_in(code: CodeType) -> Iterable[str]:
    """Yield the names of globals and attributes, and the strings, in bytecode and in the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from names_in(constant)


def _has_members(value: Any) -> bool:
    """Return True for an object whose attributes Numba compiles as constants: a module, a class, a named tuple."""
    return not _is_compilers(value) and (
        isinstance(value, ModuleType | type) or (isinstance(value, tuple) and hasattr(value, "_fields"))
    )


def _is_compilers(value: Any) -> bool:
    """Return True for a module, class or function of the compiler."""
    function = value_descriptions.python_function(value)
    if function is None and not isinstance(value, ModuleType | type):
        return False
    return value_descriptions.top_package(function or value) in value_descriptions.COMPILERS
