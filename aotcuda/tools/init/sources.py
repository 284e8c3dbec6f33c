"""Find the kernels of a source file in its text, without an import."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aotcuda.tools.record import notation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_JIT = {"numba.cuda.jit": "numba-cuda", "numba_cuda_mlir.cuda.jit": "numba-cuda-mlir", "triton.jit": "triton"}
NAMED_BY_RECORD = frozenset({"triton"})
"""Front ends whose kernels need recorded values; `record` writes their tables."""

_IN_PLACE = {
    "aotcuda.numba": "numba",
    "aotcuda.numba_cuda_mlir": "numba_cuda_mlir",
    "aotcuda.triton.triton": "triton",
    "aotcuda.triton.tl": "triton.language",
}
_MODULES = ("numba", "triton")
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True, kw_only=True)
class JitFunction:
    """A function with the decorator `@cuda.jit` or `@triton.jit`.

    Attributes:
        path: Its dotted name in the module.
        line: The line of its `def`.
        frontend: The compiler.
        device: True for a device function: by its decorator, because it returns a value, or because another function
            of the file calls it.
        signatures: The signatures in the decorator.
        is_computed: True if the decorator has signatures that only an import can compute.
        enclosing: The function that defines it; empty at the module's top level or in a class.
    """

    path: str
    line: int
    frontend: str
    device: bool
    signatures: tuple[str, ...]
    is_computed: bool
    enclosing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The content of a module.

    Attributes:
        functions: Its kernels and device functions, in order.
        calls: The functions of other modules that they call, as pairs: the last part of a module's or package's name,
            and the name of the function.
    """

    functions: tuple[JitFunction, ...]
    calls: frozenset[tuple[str, str]]


def read(content: str | bytes) -> Content:
    """Read the text of a module.

    Raises:
        SyntaxError: It is not Python.
        ValueError: It has null characters; some Pythons raise SyntaxError.
        RecursionError: It is nested too deeply; some Pythons raise MemoryError.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the import of the file warns
        tree = ast.parse(content)
    reader = _Reader(tree)
    return Content(functions=tuple(reader.functions()), calls=frozenset(reader.calls))


def without_helpers(modules: Mapping[str, Content]) -> dict[str, tuple[JitFunction, ...]]:
    """Return the functions of modules by name. A function that another module's kernel calls is a device function."""
    calls = {pair for content in modules.values() for pair in content.calls}

    def is_called(module: str, item: JitFunction) -> bool:
        return any((part, item.path) in calls for part in module.split("."))

    return {
        module: tuple(replace(item, device=True) if is_called(module, item) else item for item in content.functions)
        for module, content in modules.items()
    }


def makes_kernels(tree: ast.Module, node: ast.AST) -> bool:
    """Return True if a function or class of a module defines kernels, or makes kernels from its arguments."""
    reader = _Reader(tree)
    inside = (child for statement in getattr(node, "body", ()) for child in ast.walk(statement))
    return any(isinstance(child, ast.expr) and reader.is_jit(child) for child in inside)


class _Reader:
    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._names: dict[str, str] = {}
        self._values: dict[str, ast.expr] = {}
        self._partials: dict[str, ast.Call] = {}
        self._called: set[str] = set()
        self._others: dict[str, tuple[str, str]] = {}
        self.calls: set[tuple[str, str]] = set()
        for node in ast.walk(tree):
            self._import(node)
        for node in tree.body:
            self._assign(node)

    def functions(self) -> list[JitFunction]:
        made = [*self._definitions(self._tree, (), ""), *self._assignments()]
        helping = [replace(item, device=True) if item.path in self._called else item for item in made]
        return sorted(helping, key=lambda item: (item.line, item.path))

    def is_jit(self, node: ast.expr) -> bool:
        """Return True if an expression is the `jit` of a compiler."""
        return self._dotted(node) in _JIT

    def _import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for item in node.names:
                whole = item.asname is not None
                name = item.name if whole else item.name.partition(".")[0]
                self._names[item.asname or name] = _IN_PLACE.get(name, name)
                self._others[item.asname or name] = "", last_part(item.name)
        elif isinstance(node, ast.ImportFrom):
            for item in node.names:
                module = _IN_PLACE.get(node.module or "", node.module or "")
                self._others[item.asname or item.name] = last_part(module), item.name
                # A package may import `cuda` from its own module, so that Numba is optional.
                known = _IN_PLACE.get(f"{module}.{item.name}")
                known = known or (f"{module}.{item.name}" if module.startswith(_MODULES) and not node.level else None)
                if known or item.name == "cuda":
                    self._names[item.asname or item.name] = known or "numba.cuda"

    def _assign(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, node.value
            self._values[name] = value
            if self._dotted(value) in _JIT:
                self._names[name] = self._dotted(value)
            elif isinstance(value, ast.Call) and last(value.func) == "partial" and value.args:
                inner = self._dotted(value.args[0])
                if inner in _JIT:
                    self._names[name] = inner
                    self._partials[name] = value

    def _dotted(self, node: ast.expr) -> str:
        """Return the full name of an expression: `nb.cuda.jit` is `numba.cuda.jit` if nb is Numba."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id, "")
        if isinstance(node, ast.Attribute):
            base = self._dotted(node.value)
            whole = f"{base}.{node.attr}" if base else ""
            return _IN_PLACE.get(whole, whole)
        return ""

    def _definitions(self, node: ast.AST, path: tuple[str, ...], enclosing: str) -> Iterator[JitFunction]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _Function):
                for decorator in child.decorator_list:
                    made = self._jitted(decorator, (*path, child.name), child.lineno, enclosing)
                    if made is not None:
                        self._called |= {name for name in _calls(child) if name != child.name}
                        self.calls |= set(self._calls_of_others(child))
                        yield replace(made, device=True) if _returns_a_value(child) else made
                yield from self._definitions(child, (*path, child.name), ".".join((*path, child.name)))
            elif isinstance(child, ast.ClassDef):
                yield from self._definitions(child, (*path, child.name), enclosing)
            else:
                yield from self._definitions(child, path, enclosing)

    def _calls_of_others(self, function: _Function) -> Iterator[tuple[str, str]]:
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self._others:
                yield self._others[node.func.id]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                holder = last(node.func.value)
                yield self._others.get(holder, ("", holder))[1], node.func.attr

    def _assignments(self) -> Iterator[JitFunction]:
        """Handle `name = cuda.jit(function)` and `name = cuda.jit(...)(function)`."""
        for name, value in self._values.items():
            if not isinstance(value, ast.Call) or len(value.args) != 1:
                continue
            plain = self._dotted(value.func) in _JIT and isinstance(value.args[0], ast.Name | ast.Attribute)
            known = isinstance(value.args[0], ast.Name) and value.args[0].id in self._functions()
            made = self._jitted(value if plain else value.func, (name,), value.lineno, "", applied=plain)
            if made is not None and (known or not plain) and not self._is_decorator(value):
                yield made

    def _functions(self) -> set[str]:
        return {node.name for node in ast.walk(self._tree) if isinstance(node, _Function)}

    def _is_decorator(self, value: ast.Call) -> bool:
        return self._dotted(value.func) in _JIT and not (
            isinstance(value.args[0], ast.Name) and value.args[0].id in self._functions()
        )

    def _jitted(
        self, decorator: ast.expr, path: tuple[str, ...], line: int, enclosing: str, *, applied: bool = False
    ) -> JitFunction | None:
        call = decorator if isinstance(decorator, ast.Call) else None
        function = call.func if call else decorator
        frontend = _JIT.get(self._dotted(function))
        if frontend is None:
            return None
        keywords = {item.arg: item.value for item in call.keywords} if call else {}
        partial = self._partials.get(function.id) if isinstance(function, ast.Name) else None
        keywords = {**{item.arg: item.value for item in (partial.keywords if partial else ())}, **keywords}
        given = call.args[0] if call and call.args and not applied else keywords.get("func_or_sig")
        texts = self._signatures(given) if given is not None else []
        device = keywords.get("device")
        return JitFunction(
            path=".".join(path),
            line=line,
            frontend=frontend,
            device=isinstance(device, ast.Constant) and bool(device.value),
            signatures=tuple(texts or ()),
            is_computed=texts is None,
            enclosing=enclosing,
        )

    def _signatures(self, node: ast.expr, depth: int = 8) -> list[str] | None:
        """Return the signatures of an expression; None if the text does not determine them."""
        if isinstance(node, ast.Name) and node.id in self._values and depth:
            return self._signatures(self._values[node.id], depth - 1)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = " ".join(node.value.split())
            return [f"void{text}" if text.startswith("(") else text]
        if isinstance(node, ast.List):
            inner = [self._signatures(item, depth) for item in node.elts]
            return [text for texts in inner if texts for text in texts] if all(inner) else None
        if isinstance(node, ast.Tuple):
            types = [self._type(item, depth) for item in node.elts]
            return [f"void({', '.join(text for text in types if text)})"] if all(types) else None
        if isinstance(node, ast.Call) and not node.keywords:
            types = [self._type(item, depth) for item in (node.func, *node.args)]
            if not notation.is_scalar((types[0] or "").partition("[")[0]):
                return None
            return [f"{types[0]}({', '.join(text for text in types[1:] if text)})"] if all(types) else None
        return None

    def _type(self, node: ast.expr, depth: int) -> str | None:
        """Return a type as a signature writes it, without names of modules and variables."""
        if isinstance(node, ast.Name) and node.id in self._values and depth:
            return self._type(self._values[node.id], depth - 1)
        if isinstance(node, ast.Name | ast.Attribute):
            return last(node)
        if isinstance(node, ast.Subscript):
            element = self._type(node.value, depth)
            return f"{element}[{ast.unparse(node.slice).strip('()')}]" if element else None
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        return None

    def _call(self, node: ast.Call, depth: int) -> str | None:
        parts = [self._argument(item, depth) for item in node.args]
        parts += [f"{item.arg}={ast.unparse(item.value)}" for item in node.keywords]
        return f"{last(node.func)}({', '.join(part for part in parts if part)})" if all(parts) else None

    def _argument(self, node: ast.expr, depth: int) -> str | None:
        if isinstance(node, ast.Constant):
            return repr(node.value)
        if isinstance(node, ast.Tuple | ast.List):
            inner = [self._type(item, depth) for item in node.elts]
            return f"({', '.join(text for text in inner if text)},)" if all(inner) else None
        return self._type(node, depth)


def _calls(function: _Function) -> Iterator[str]:
    """Yield the plain names that a function calls; kernel launches have a subscript."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def _returns_a_value(function: ast.AST) -> bool:
    """Return True if a function returns a value other than None. Nested functions do not count."""
    for node in ast.iter_child_nodes(function):
        if isinstance(node, ast.Return):
            value = node.value
            if value is not None and not (isinstance(value, ast.Constant) and value.value is None):
                return True
        elif not isinstance(node, (*_FUNCTIONS, ast.Lambda)) and _returns_a_value(node):
            return True
    return False


def last_part(name: str) -> str:
    """Return the last part of a module's name."""
    return name.rpartition(".")[2]


def last(node: ast.expr) -> str:
    """Return the last part of a dotted name; empty for another expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
