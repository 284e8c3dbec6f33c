"""Identify a Triton kernel by the inputs of its compilation, to decide if a pack's code belongs to the kernel.

The digest covers the text that Triton compiles, the parameters as `@triton.jit` describes them, the heuristics that
packaged code replaces, and each chain of names in the text that begins with a global, such as `helpers.CFG.N`. A chain
counts by the value at its end: a number, a function with all of these facts, a class with its members and methods.
Objects of other packages count by name, unless they are plain values, containers of these, or functions that are
compiled into the kernel. Objects of Triton always count by name, since a pack serves one release of Triton.

Comments and formatting count. Line numbers, files, and the releases of Python, PyTorch and Triton do not. Constants and
options of a launch do not count, since a launch finds its variant by them.
"""

from __future__ import annotations

import ast
import builtins
import enum
import hashlib
import inspect
import json
import textwrap
from contextlib import suppress
from types import FunctionType, MethodType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from .heuristics import Question

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))
_NUMBERS = (bool, int, float, complex, str, bytes)
_DEEPEST = 24
"""The most values in each other, as a list of lists."""

_MISSING = object()


class UndescribableError(ValueError):
    """A value that a kernel reads cannot be described, so no pack can serve the kernel; the text names the value."""


def digest(function: Any, computed: Mapping[str, Question | None]) -> str:
    """Return the SHA-256 that identifies a kernel.

    Args:
        function: The object that `@triton.jit` made.
        computed: The arguments that heuristics around it compute: the result of `heuristics.computed_arguments`.

    Raises:
        UndescribableError: The kernel reads a value that has no description.
    """
    return hashlib.sha256(json.dumps(describe(function, computed)).encode()).hexdigest()


def describe(function: Any, computed: Mapping[str, Question | None]) -> list[object]:
    """Return the description of a kernel, of which `digest` is the SHA-256. `digest` documents arguments and errors."""
    questions = [[name, *(question or ())] for name, question in computed.items()]
    return [_Describer().function(function), questions]


class _Describer:
    """Describe functions and values as JSON; a later description of a function is its number."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._packages: list[str] = []
        self._chain = ""

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
        values += [value for value in inspect.get_annotations(python).values() if not isinstance(value, str)]
        text = self._text(function)
        self._packages.append(_top_package(python))
        try:
            return [
                *("function", text, parameters),
                bool(getattr(function, "noinline", False)),
                [self._value(value) for value in values],
                self._globals(python, text),
            ]
        finally:
            self._packages.pop()

    def _text(self, function: Any) -> str:
        """Return the source of a function; for a function of `@triton.jit` the text that Triton compiles."""
        try:
            text = function.src if hasattr(function, "src") else inspect.getsource(function)
        except (OSError, TypeError):
            fact = "is a function without source"
            raise self._undescribable(fact) from None
        return textwrap.dedent(str(text)).rstrip()

    def _globals(self, python: FunctionType, text: str) -> list[object]:
        """Describe the end of each chain in the text that begins with a global or a variable of a closure."""
        scope = {**python.__globals__}
        for name, cell in zip(python.__code__.co_freevars, python.__closure__ or (), strict=True):
            try:
                scope[name] = cell.cell_contents
            except ValueError:  # the variable has no value yet
                scope.pop(name, None)
        try:
            chains = _Chains.read(text)
        except SyntaxError:
            fact = "has source that cannot be parsed"
            raise self._undescribable(fact) from None
        descriptions: list[object] = []
        outer = self._chain
        for names in sorted(chains.found):
            is_local = names[0] in chains.parameters or (names[0] in chains.assigned and names[0] not in scope)
            if is_local or (names[0] not in scope and hasattr(builtins, names[0])):
                continue
            self._chain = ".".join(names)
            try:
                descriptions.append([self._chain, self._end(scope, names)])
            except Exception as error:
                if names[0] in chains.assigned:  # the name is most probably a local variable
                    continue
                if isinstance(error, UndescribableError):
                    raise
                fact = f"cannot be read ({type(error).__name__})"
                raise self._undescribable(fact) from None
            finally:
                self._chain = outer
        return descriptions

    def _end(self, scope: Mapping[str, object], names: tuple[str, ...]) -> object:
        """Describe the value at the end of a chain."""
        value, home = scope.get(names[0], _MISSING), ""
        for at, name in enumerate(names[1:], 1):
            if value is _MISSING or _is_jit(value) or (_is_from_triton(value) and not isinstance(value, ModuleType)):
                break
            if isinstance(value, ModuleType):
                home = value.__name__
            try:
                found = getattr(value, name, _MISSING)
            except Exception:  # noqa: BLE001 (a module's own `__getattr__`; Triton's compilation would fail)
                found = _MISSING
            if isinstance(value, ModuleType) and self._is_foreign(home) and not _is_from_triton(value):
                if isinstance(found, ModuleType) or _is_from_triton(found) or _is_jit(found):
                    value = found
                    continue
                end: Any = found
                for rest in names[at + 1 :]:
                    if _is_jit(end):
                        break
                    end = getattr(end, rest, _MISSING)
                if isinstance(end, (*_PLAIN, tuple, list, dict, set, frozenset)) or _is_constexpr(end) or _is_jit(end):
                    return self._value(end)
                return ["name", ".".join((home, *names[at:]))]
            value = found
        if value is _MISSING:
            return ["missing"]
        if isinstance(value, ModuleType) and not _is_from_triton(value):
            if self._is_foreign(value.__name__):
                return ["module", value.__name__]
            fact = "is a module"
            raise self._undescribable(fact)
        return self._value(value)

    def _value(self, value: Any, depth: int = 0) -> object:
        """Describe a value."""
        kind: Any = type(value)
        if kind in _PLAIN:
            return [kind.__name__, repr(value)]
        if depth > _DEEPEST:
            fact = "has values in each other without end"
            raise self._undescribable(fact)
        if _is_constexpr(value):
            return ["constexpr", self._value(value.value, depth + 1)]
        if _is_jit(value):
            return _triton_object(value.fn) if _is_from_triton(value.fn) else self.function(value)
        if _is_from_triton(value) or (_is_from_triton(kind) and not isinstance(value, type)):
            return _triton_object(value)
        if isinstance(value, enum.Enum):
            return ["enum", kind.__qualname__, value.name, self._value(value.value, depth + 1)]
        if isinstance(value, FunctionType | type) or callable(value):
            return self._callable(value, depth)
        if isinstance(value, tuple | list):
            items = [self._value(item, depth + 1) for item in value]
            return [kind.__name__, [str(name) for name in getattr(kind, "_fields", ())], items]
        if isinstance(value, dict):
            pairs = [[self._value(key, depth + 1), self._value(item, depth + 1)] for key, item in value.items()]
            return [kind.__name__, pairs]
        if isinstance(value, set | frozenset):
            return [kind.__name__, sorted((self._value(item, depth + 1) for item in value), key=json.dumps)]
        for plain in _NUMBERS:
            if isinstance(value, plain):
                return [kind.__qualname__, plain.__name__, plain.__repr__(value)]
        return self._object(value, depth)

    def _callable(self, value: Any, depth: int) -> object:
        """Describe a function or a class; one of another package by its name."""
        module, name = str(getattr(value, "__module__", "")), getattr(value, "__qualname__", None)
        if isinstance(value, FunctionType) and not self._is_foreign(module):
            return self.function(value)
        if isinstance(value, MethodType) and not self._is_foreign(module):
            return ["method", self.function(value.__func__), self._value(value.__self__, depth + 1)]
        if isinstance(value, type) and not self._is_foreign(module):
            return self._class(value, depth)
        if name is None or not self._is_foreign(module):
            return self._object(value, depth)
        return ["name", module.partition(".")[0], name]

    def _class(self, kind: type, depth: int) -> object:
        """Describe a class: its bases, annotated fields, plain members, and functions for kernels."""
        if id(kind) in self._numbers:
            return ["type", self._numbers[id(kind)]]
        self._numbers[id(kind)] = len(self._numbers)
        members = [
            [name, self._value(item, depth + 1)]
            for name, item in sorted(vars(kind).items())
            if name.strip("_") == name.lstrip("_") and not hasattr(item, "__get__")  # no methods and descriptors
        ]
        fields = [
            [name, item if isinstance(item, str) else self._value(item, depth + 1)]
            for name, item in inspect.get_annotations(kind).items()
        ]
        bases = [self._value(base, depth + 1) for base in kind.__bases__ if base is not object]
        return ["type", kind.__module__, kind.__qualname__, fields, members, self._methods(kind), bases]

    def _methods(self, kind: type) -> list[object]:
        """Return the texts of the methods and properties of a class and its bases, but not of generated ones."""
        texts: list[object] = []
        for owner in kind.__mro__:
            for name, item in () if self._is_foreign(owner.__module__) else sorted(vars(owner).items()):
                function = getattr(item, "__func__", getattr(item, "fget", item))
                with suppress(OSError):
                    texts += [[name, inspect.getsource(function)]] if isinstance(function, FunctionType) else []
        return texts

    def _object(self, value: Any, depth: int) -> object:
        """Describe an object of any class: by its attributes, or by its text if it has no attributes."""
        kind = type(value)
        values = getattr(value, "__dict__", None)
        name = [kind.__module__.partition(".")[0], kind.__qualname__]
        if isinstance(values, dict) and values:
            attributes = [[key, self._value(item, depth + 1)] for key, item in sorted(values.items())]
            return ["object", *name, attributes, self._methods(kind)]
        text = repr(value)
        if " at 0x" in text:
            fact = f"is an object of {kind.__module__}.{kind.__qualname__} without a description"
            raise self._undescribable(fact)
        return ["object", *name, text]

    def _is_foreign(self, module: str) -> bool:
        """Return True for a module of another package than those of the functions that are described."""
        return module.partition(".")[0] not in self._packages

    def _undescribable(self, fact: str) -> UndescribableError:
        return UndescribableError(f"{self._chain or 'a value'}, which {fact}")


class _Chains(ast.NodeVisitor):
    """The chains of names in the text of a function that may begin with a global.

    Attributes:
        found: The chains: `("helpers", "CFG", "N")`.
        parameters: The function's parameters, and those of functions inside it.
        assigned: The names that the text assigns. One that is read before is a global in Triton.
    """

    def __init__(self) -> None:
        self.found: set[tuple[str, ...]] = set()
        self.parameters: set[str] = set()
        self.assigned: set[str] = set()
        self._bound: set[str] = set()  # the names that are local variables at the node that is visited

    @classmethod
    def read(cls, text: str) -> _Chains:
        """Return the chains of a text.

        Raises:
            SyntaxError: The text is no Python.
        """
        chains = cls()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                chains._visit_all([node.args, *node.body, node.returns])
            else:
                chains.visit(node)
        return chains

    def _visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def _visit_block(self, nodes: Iterable[ast.AST | None]) -> None:
        """Visit nodes that may not run: the names that they assign are not bound after them."""
        before = self._bound.copy()
        self._visit_all(nodes)
        self._bound = before

    def visit_arg(self, node: ast.arg) -> None:
        self.parameters.add(node.arg)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._add((node.id,))
        else:
            self._assign(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not self._add(tuple(_chain(node))):
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        if not self._add(tuple(_chain(node))):
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._visit_all([node.value, *node.targets])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._visit_all([node.annotation, node.value, node.target])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._add((node.target.id,))
        self._visit_all([node.value, node.target])

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._visit_block(node.body)
        self._visit_block(node.orelse)

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self._visit_block(node.body)
        self._visit_block(node.orelse)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self._visit_block([node.target, *node.body])
        self._visit_block(node.orelse)

    def visit_Try(self, node: ast.Try) -> None:
        self._visit_block([*node.body, *node.orelse])
        for handler in node.handlers:
            self._visit_block([handler])
        self._visit_all(node.finalbody)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_all(node.decorator_list)
        self._visit_block([node.args, *node.body, node.returns])
        self._assign(node.name)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._visit_block([*node.generators, node.elt])

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self._visit_block([*node.generators, node.elt])

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._visit_block([*node.generators, node.elt])

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._visit_block([*node.generators, node.key, node.value])

    def visit_alias(self, node: ast.alias) -> None:
        self._assign((node.asname or node.name).partition(".")[0])

    def _add(self, chain: tuple[str, ...]) -> bool:
        """Add a chain unless it begins with a local variable; return False for an empty chain."""
        if chain and chain[0] not in self._bound:
            self.found.add(chain)
        return bool(chain)

    def _assign(self, name: str) -> None:
        self.assigned.add(name)
        self._bound.add(name)


def _chain(node: ast.expr) -> Iterator[str]:
    """Yield the names of a chain; nothing for another expression. `getattr(a, "b")` is `a.b`."""
    names: list[str] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "getattr"
            and len(node.args) == 2
            and isinstance(node.args[1], ast.Constant)
            and isinstance(node.args[1].value, str)
        ):
            names.append(node.args[1].value)
            node = node.args[0]
        else:
            return
    yield node.id
    yield from reversed(names)


def _is_jit(value: Any) -> bool:
    """Return True for the object that `@triton.jit` or a similar decorator made."""
    return not isinstance(value, type | ModuleType) and hasattr(value, "src") and hasattr(value, "fn")


def _is_constexpr(value: Any) -> bool:
    kind = type(value)
    return kind.__name__ == "constexpr" and _is_from_triton(kind)


def _is_from_triton(value: Any) -> bool:
    """Return True for a module, class or function of Triton."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return str(name).partition(".")[0] == "triton"


def _triton_object(value: Any) -> list[object]:
    """Describe an object of Triton by name and module, since `math` and `libdevice` both have `exp`."""
    if isinstance(value, ModuleType):
        return ["Triton", value.__name__]
    home = str(getattr(value, "__module__", "")).rpartition(".")[2]
    return ["Triton", str(getattr(value, "__qualname__", value)), home]


def _top_package(function: Any) -> str:
    return str(function.__module__).partition(".")[0]
