"""Describe everything that Numba reads when it compiles a function, so that the build cache can name the result.

Numba reads the bytecode of a function, its defaults and closure, and each global that the bytecode names; then the same
of every function that it calls. The sources have been imported, so the objects themselves are described: it makes no
difference how a value came about. An object of a kind that this module does not know has no description, and its
kernels are compiled in each build. The build's tools have versions, so objects of their packages are described by name.
"""

from __future__ import annotations

import sys
from enum import Enum
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from aotcuda.builder.frontends.numba.read_values import names_in
from aotcuda.manifest import digest

_TOOLS = frozenset(["numba", "numba_cuda", "numba_cuda_mlir", "llvmlite", "numpy", "cuda"])
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))
_TYPES = ("Array", "Boolean", "Complex", "CPointer", "Float", "Integer", "NoneType", "Record", "Tuple", "UniTuple")
"""Classes of Numba's types whose text has every fact of the type."""

_PARTS = ("dtype", "types")


class UnknownError(Exception):
    """An object has no description."""


def describe(function: FunctionType, types: object, dispatchers: Any) -> object:
    """Return a description of a function with its argument types, for `aotcuda.builder.cache.hashing`.

    Args:
        function: The plain Python function.
        types: The argument types as the compiler's objects.
        dispatchers: The classes of the objects that the compiler's decorators return.

    Raises:
        UnknownError: The function reads an object that has no description.
    """
    reader = _Reader(dispatchers)
    return [reader.value(types), reader.value(function), function.__doc__]


class _Reader:
    def __init__(self, dispatchers: Any) -> None:
        self._dispatchers = dispatchers
        self._functions: dict[int, int] = {}
        """The number of each function, by its identity."""

    def value(self, value: Any, names: frozenset[str] = frozenset()) -> object:
        """Return the description of a value; `names` are the attributes that its reader may use."""
        kind = type(value)
        if kind in _PLAIN:
            return [kind.__name__, repr(value)]
        if kind in (tuple, list):
            return [kind.__name__, [self.value(item, names) for item in value]]
        if kind is FunctionType:
            return ["tool", value.__module__, value.__qualname__] if _is_of_tools(value) else self._function(value)
        if isinstance(value, self._dispatchers):
            return self._dispatcher(value)
        if kind is ModuleType:
            return self._module(value, names)
        return _object(value)

    def _function(self, function: Any) -> object:
        if id(function) in self._functions:
            return ["function", self._functions[id(function)]]
        self._functions[id(function)] = len(self._functions)
        code = function.__code__
        names = frozenset(names_in(code))
        seen = {**function.__builtins__, **function.__globals__}
        outside = [[name, self.value(seen[name], names)] for name in sorted(names & seen.keys())]
        try:
            cells = [cell.cell_contents for cell in function.__closure__ or ()]
        except ValueError:
            raise UnknownError from None
        return [
            "function",
            function.__module__,
            function.__qualname__,
            _code(code),
            self.value(function.__defaults__, names),
            [[name, self.value(value, names)] for name, value in sorted((function.__kwdefaults__ or {}).items())],
            [self.value(cell, names) for cell in cells],
            outside,
        ]

    def _dispatcher(self, dispatcher: Any) -> object:
        if not getattr(dispatcher, "_can_compile", True):
            raise UnknownError
        options = [
            [name, self.value(value)]
            for name, value in sorted(dispatcher.targetoptions.items())
            if name != "link" or value
        ]
        if any(name == "link" for name, _ in options):
            raise UnknownError
        return ["dispatcher", type(dispatcher).__qualname__, options, self.value(dispatcher.py_func)]

    def _module(self, module: ModuleType, names: frozenset[str]) -> object:
        if _is_tool(module.__name__):
            return ["module", module.__name__]
        attributes = [[name, self.value(vars(module)[name], names)] for name in sorted(names & vars(module).keys())]
        return ["module", module.__name__, attributes]


def _code(code: CodeType) -> object:
    """Return the description of bytecode, without the numbers of its lines."""
    return [
        *(code.co_code, code.co_name, code.co_qualname, code.co_names, code.co_varnames),
        *(code.co_freevars, code.co_cellvars, code.co_flags, code.co_exceptiontable),
        *(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
        [_constant(item) for item in code.co_consts],
    ]


def _constant(value: Any) -> object:
    if isinstance(value, CodeType):
        return _code(value)
    if isinstance(value, tuple):
        return [_constant(item) for item in value]
    if isinstance(value, frozenset):
        return ["frozenset", sorted(repr(_constant(item)) for item in value)]
    return [type(value).__name__, repr(value)]


def _object(value: Any) -> object:
    """Return the description of a type, an array, or an object of the compiler."""
    kind = type(value)
    if isinstance(value, type | BuiltinFunctionType) and _is_of_tools(value):
        return ["tool", value.__module__, value.__qualname__]
    if isinstance(value, Enum) or not _is_tool(kind.__module__):
        raise UnknownError
    if kind.__module__.partition(".")[0] == "numpy":
        return _numpy(value)
    if kind.__name__ in _TYPES:
        parts = [getattr(value, name) for name in _PARTS if hasattr(value, name)]
        return ["type", kind.__qualname__, str(value), [_object_or_list(part) for part in parts]]
    raise UnknownError


def _object_or_list(value: Any) -> object:
    return [_object_or_list(item) for item in value] if isinstance(value, tuple | list) else _object(value)


def _numpy(value: Any) -> object:
    numpy: Any = sys.modules["numpy"]
    kind = type(value)
    if isinstance(value, numpy.dtype):
        if value.hasobject or value.metadata:
            raise UnknownError
        return ["dtype", repr(value), value.itemsize, value.alignment, value.isalignedstruct]
    if kind is numpy.ndarray or isinstance(value, numpy.generic):
        if value.dtype.hasobject:
            raise UnknownError
        return [kind.__name__, _numpy(value.dtype), value.shape, value.strides, digest(value.tobytes())]
    if kind is numpy.ufunc:
        return ["ufunc", value.__name__]
    raise UnknownError


def _is_tool(module: str | None) -> bool:
    """Return True for a module of the build's tools or of Python; their versions are in every name of the cache."""
    top = str(module).partition(".")[0]
    return top in _TOOLS or top in sys.stdlib_module_names


def _is_of_tools(value: Any) -> bool:
    """Return True for a function or class that is an attribute of a tool's module, by the name that it says."""
    found: Any = sys.modules.get(str(value.__module__)) if _is_tool(value.__module__) else None
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value
