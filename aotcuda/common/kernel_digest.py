"""Identify a Triton kernel by the inputs of its compilation, to decide if a pack's code belongs to the kernel.

The digest covers the kernel's source from its `def` on, its parameters as `@triton.jit` describes them, the heuristics
that packaged code replaces, each global that the kernel reads, and all of these for each function that it calls.
Comments and formatting count. Line numbers, files and the release of Triton do not: Triton's own objects count by name.
Constants and options of a launch do not count, since a launch finds its variant by them.
"""

from __future__ import annotations

import enum
import hashlib
import inspect
import json
import textwrap
from types import CodeType, FunctionType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from aotcuda.common.heuristics import Question

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))


def digest(function: Any, computed: Mapping[str, Question | None]) -> str:
    """Return the SHA-256 that identifies a kernel.

    Args:
        function: The object that `@triton.jit` made.
        computed: The arguments that heuristics around it compute: the result of `heuristics.computed_arguments`.
    """
    questions = [[name, *(question or ())] for name, question in computed.items()]
    description = [_Describer(_top_package(function.fn)).function(function), questions]
    return hashlib.sha256(json.dumps(description).encode()).hexdigest()


class _Describer:
    """Describe functions and values as JSON; a later description of a function is its number.

    Args:
        package: The package of the kernel. Globals of functions in other packages, such as Triton, do not count.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self._numbers: dict[int, int] = {}

    def function(self, function: Any) -> list[object]:
        """Describe a kernel, or a function that kernels call."""
        if id(function) in self._numbers:
            return ["function", self._numbers[id(function)]]
        self._numbers[id(function)] = len(self._numbers)
        python = getattr(function, "fn", function)
        parameters = [
            [item.name, bool(item.do_not_specialize), bool(item.do_not_specialize_on_alignment)]
            for item in getattr(function, "params", ())
        ]
        values = [*(python.__defaults__ or ()), *(python.__kwdefaults__ or {}).values()]
        values += [value for value in python.__annotations__.values() if not isinstance(value, str)]
        return [
            *("function", textwrap.dedent(_text(function)).rstrip(), parameters),
            bool(getattr(function, "noinline", False)),
            [*map(self._value, values)],
            self._globals(python) if hasattr(function, "src") or _top_package(python) == self._package else [],
        ]

    def _globals(self, python: FunctionType) -> list[object]:
        """Describe the globals that a function reads, and the attributes that it reads from modules and classes.

        The code object lists names of globals and attributes together, so the result may have values that are not read.
        """
        names = sorted({*_names(python.__code__)})
        cells = zip(python.__code__.co_freevars, python.__closure__ or (), strict=True)
        scope = python.__globals__ | {name: cell.cell_contents for name, cell in cells}
        descriptions: list[object] = []
        for name in (name for name in names if name in scope):
            value = scope[name]
            descriptions.append([name, self._value(value)])
            if isinstance(value, ModuleType | type) and not _is_from_triton(value):
                attributes = [attribute for attribute in names if attribute in vars(value)]
                descriptions += [[name, attribute, self._value(vars(value)[attribute])] for attribute in attributes]
        return descriptions

    def _value(self, value: Any) -> object:
        kind: Any = type(value)
        if kind in _PLAIN:
            return [kind.__name__, repr(value)]
        if kind.__name__ == "constexpr" and _is_from_triton(kind):
            return ["constexpr", self._value(value.value)]
        if isinstance(value, ModuleType):
            return ["module", value.__name__]
        if hasattr(value, "src") and hasattr(value, "fn"):  # the object of @triton.jit and similar decorators
            return self._triton_object(value.fn) if _is_from_triton(value.fn) else self.function(value)
        if _is_from_triton(value) or _is_from_triton(kind):
            return self._triton_object(value)
        if isinstance(value, enum.Enum):
            return ["enum", kind.__qualname__, value.name, self._value(value.value)]
        if isinstance(value, FunctionType):
            return self.function(value)
        if kind in (tuple, list):
            return [kind.__name__, *map(self._value, value)]
        if kind is dict:
            return ["dict", *([self._value(key), self._value(item)] for key, item in value.items())]
        if isinstance(value, type):
            return ["type", value.__module__, value.__qualname__, *self._methods(value)]
        name = getattr(value, "__qualname__", "")
        return ["object", kind.__module__, kind.__qualname__, name]  # Triton refuses kernels that read such objects

    def _methods(self, kind: type) -> list[object]:
        """Describe the annotated fields of a class, and its functions for kernels."""
        fields = [[name, str(item)] for name, item in getattr(kind, "__annotations__", {}).items()]
        return [*fields, *([name, self._value(item)] for name, item in vars(kind).items() if hasattr(item, "src"))]

    def _triton_object(self, value: Any) -> list[object]:
        """Describe an object of Triton by name and module, since `math` and `libdevice` both have `exp`."""
        home = str(getattr(value, "__module__", "")).rpartition(".")[2]
        return ["Triton", str(getattr(value, "__qualname__", value)), home]


def _is_from_triton(value: Any) -> bool:
    """Return True for a module, class or function of Triton."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return str(name).partition(".")[0] == "triton"


def _top_package(function: Any) -> str:
    return str(function.__module__).partition(".")[0]


def _text(function: Any) -> str:
    """Return the source of a function; for a function of `@triton.jit` the text that Triton compiles."""
    try:
        return str(function.src) if hasattr(function, "src") else inspect.getsource(function)
    except (OSError, TypeError):  # a function without a source file; its bytecode depends on Python's release
        return str(function.__code__.co_code.hex())


def _names(code: CodeType) -> Iterator[str]:
    yield from (*code.co_names, *code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
