"""Find the kernels of a project in the syntax trees of its modules. The modules are not imported."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aotcuda.tools.record import source_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aotcuda.tools.record.source_files import Trees

_JIT = {"numba.cuda.jit": "numba-cuda", "numba_cuda_mlir.cuda.jit": "numba-cuda-mlir", "triton.jit": "triton"}
_IN_PLACE = {
    "aotcuda.numba": "numba",
    "aotcuda.numba_cuda_mlir": "numba_cuda_mlir",
    "aotcuda.triton.triton": "triton",
    "aotcuda.triton.tl": "triton.language",
}
_COMPILER_PREFIXES = ("numba", "triton")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class JitFunction:
    """A function with the decorator `@cuda.jit` or `@triton.jit`.

    Attributes:
        path: Its dotted name in the module.
        line: The line of its `def`.
        frontend: The compiler.
        device: True for a device function: by its decorator, because it returns a value, or because another function
            of the file calls it.
        has_signatures: True if the decorator has signatures, which a build finds out by an import.
        enclosing: The function that defines this one; empty at the module's top level or in a class.
    """

    path: str
    line: int
    frontend: str
    device: bool
    has_signatures: bool
    enclosing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The kernels of a module, and the functions that they call.

    Attributes:
        functions: The kernels and device functions, in the order of their lines.
        calls: The functions of other modules that the kernels call. Each is a pair: the last part of the name of a
            module or package, and the name of the function.
        makers: The lines of functions and classes that define kernels, or make kernels from their arguments, by name.
        decorators: The number of functions and classes below each decorator, by the last part of its name.
    """

    functions: tuple[JitFunction, ...]
    calls: frozenset[tuple[str, str]]
    makers: Mapping[str, int]
    decorators: Counter[str]

    @property
    def kernels(self) -> list[JitFunction]:
        """Return the kernels that a name of the module refers to."""
        return [item for item in self.functions if not item.device and not item.enclosing]


def find(trees: Trees, unreadable: list[str]) -> dict[str, Content]:
    """Return the kernels of a project by module; add a line to `unreadable` for each module that cannot be read."""
    contents = {}
    for name, (file, tree) in trees.items():
        try:
            contents[name] = read(tree)
        except RecursionError as error:
            unreadable.append(f"{file}{source_files.describe_error(error)}")
    return mark_device_functions(contents)


def read(tree: ast.Module) -> Content:
    """Find the kernels of a module.

    Raises:
        RecursionError: An expression is nested too deeply.
    """
    reader = _Reader(tree)
    return Content(
        functions=tuple(reader.functions()),
        calls=frozenset(reader.calls),
        makers=reader.makers(),
        decorators=Counter(
            last_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
            for node in ast.walk(tree)
            for decorator in getattr(node, "decorator_list", ())
        ),
    )


def mark_device_functions(modules: Mapping[str, Content]) -> dict[str, Content]:
    """Return the modules with `device` set for the functions that kernels of other modules call."""
    calls = {pair for content in modules.values() for pair in content.calls}

    def mark(module: str, item: JitFunction) -> JitFunction:
        return replace(item, device=True) if any((part, item.path) in calls for part in module.split(".")) else item

    return {
        module: replace(content, functions=tuple(mark(module, item) for item in content.functions))
        for module, content in modules.items()
    }


def describe_makers(modules: Mapping[str, Content], trees: Trees) -> list[str]:
    """Return a line for each decorator of the project that makes kernels, with the number of decorated functions."""
    places: dict[str, str] = {}
    for module, content in modules.items():
        for name, line in content.makers.items():
            places.setdefault(name, f"{trees[module][0]}:{line}")
    counts = sum((content.decorators for content in modules.values()), Counter[str]())
    return [
        f"not looked through: @{name} ({place}) on {counts[name]} function{'s' * (counts[name] != 1)}; "
        "`aotcuda record` finds the kernels that it makes"
        for name, place in places.items()
        if counts[name]
    ]


class _Reader:
    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._names: dict[str, str] = {}  # full names of modules and functions of compilers
        self._values: dict[str, ast.expr] = {}
        self._partials: dict[str, ast.Call] = {}
        self._local_calls: set[str] = set()
        self._imported: dict[str, tuple[str, str]] = {}
        self.calls: set[tuple[str, str]] = set()
        for node in ast.walk(tree):
            self._import(node)
        for node in tree.body:
            self._assign(node)

    def functions(self) -> list[JitFunction]:
        functions = [*self._definitions(self._tree, (), ""), *self._assignments()]
        functions = [replace(item, device=True) if item.path in self._local_calls else item for item in functions]
        return sorted(functions, key=lambda item: (item.line, item.path))

    def makers(self) -> dict[str, int]:
        return {
            node.name: node.lineno
            for node in self._tree.body
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
            and any(self._is_jit(part) for statement in node.body for part in ast.walk(statement))
        }

    def _is_jit(self, node: ast.AST) -> bool:
        return self._dotted(node) in _JIT

    def _import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for item in node.names:
                name = item.name.partition(".")[0] if item.asname is None else item.name
                self._names[item.asname or name] = _IN_PLACE.get(name, name)
                self._imported[item.asname or name] = "", _last_part(item.name)
        elif isinstance(node, ast.ImportFrom):
            for item in node.names:
                module = _IN_PLACE.get(node.module or "", node.module or "")
                self._imported[item.asname or item.name] = _last_part(module), item.name
                path = f"{module}.{item.name}"
                is_compiler = module.startswith(_COMPILER_PREFIXES) and not node.level
                full = _IN_PLACE.get(path, path if is_compiler else "")
                # A package with optional Numba imports `cuda` from a module of the package.
                if full or item.name == "cuda":
                    self._names[item.asname or item.name] = full or "numba.cuda"

    def _assign(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, node.value
            self._values[name] = value
            if self._dotted(value) in _JIT:
                self._names[name] = self._dotted(value)
            elif isinstance(value, ast.Call) and last_name(value.func) == "partial" and value.args:
                inner = self._dotted(value.args[0])
                if inner in _JIT:
                    self._names[name] = inner
                    self._partials[name] = value

    def _dotted(self, node: ast.AST) -> str:
        """Return the full name of an expression: `nb.cuda.jit` is `numba.cuda.jit` if nb is Numba."""
        attributes = []
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        full = self._names.get(node.id, "") if isinstance(node, ast.Name) else ""
        for attribute in reversed(attributes if full else ()):
            full = _IN_PLACE.get(f"{full}.{attribute}", f"{full}.{attribute}")
        return full

    def _definitions(self, node: ast.AST, path: tuple[str, ...], enclosing: str) -> Iterator[JitFunction]:
        for child in _statements(node):
            if isinstance(child, _Function):
                for decorator in child.decorator_list:
                    function = self._jit_function(decorator, (*path, child.name), child.lineno, enclosing)
                    if function is not None:
                        self._local_calls |= {name for name in _called_names(child) if name != child.name}
                        self.calls |= set(self._calls_of_other_modules(child))
                        yield replace(function, device=True) if _returns_a_value(child) else function
                yield from self._definitions(child, (*path, child.name), ".".join((*path, child.name)))
            elif isinstance(child, ast.ClassDef):
                yield from self._definitions(child, (*path, child.name), enclosing)
            else:
                yield from self._definitions(child, path, enclosing)

    def _calls_of_other_modules(self, function: _Function) -> Iterator[tuple[str, str]]:
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self._imported:
                yield self._imported[node.func.id]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                alias = last_name(node.func.value)
                _, module = self._imported.get(alias, ("", alias))
                yield module, node.func.attr

    def _assignments(self) -> Iterator[JitFunction]:
        """Yield the kernels of `name = cuda.jit(function)` and `name = cuda.jit(...)(function)`."""
        for name, value in self._values.items():
            if not isinstance(value, ast.Call) or len(value.args) != 1:
                continue
            is_direct = self._is_jit(value.func)
            if is_direct and not self._is_function(value.args[0]):
                continue  # `cuda.jit(signature)` makes a decorator
            decorator = value if is_direct else value.func
            function = self._jit_function(decorator, (name,), value.lineno, "", takes_function=is_direct)
            if function is not None:
                yield function

    def _is_function(self, node: ast.expr) -> bool:
        names = {item.name for item in ast.walk(self._tree) if isinstance(item, _Function)}
        return isinstance(node, ast.Name) and node.id in names

    def _jit_function(
        self, decorator: ast.expr, path: tuple[str, ...], line: int, enclosing: str, *, takes_function: bool = False
    ) -> JitFunction | None:
        """Return the function that a decorator makes a kernel; None if the decorator is not a compiler's `jit`."""
        call = decorator if isinstance(decorator, ast.Call) else None
        function = call.func if call else decorator
        frontend = _JIT.get(self._dotted(function))
        if frontend is None:
            return None
        keywords = {item.arg: item.value for item in call.keywords} if call else {}
        partial = self._partials.get(function.id) if isinstance(function, ast.Name) else None
        keywords = {**{item.arg: item.value for item in (partial.keywords if partial else ())}, **keywords}
        argument = call.args[0] if call and call.args and not takes_function else keywords.get("func_or_sig")
        device = keywords.get("device")
        return JitFunction(
            path=".".join(path),
            line=line,
            frontend=frontend,
            device=isinstance(device, ast.Constant) and bool(device.value),
            has_signatures=argument is not None,
            enclosing=enclosing,
        )


def _called_names(function: _Function) -> Iterator[str]:
    """Yield the plain names that a function calls. Launches of kernels have a subscript, so they do not count."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def _returns_a_value(function: ast.AST) -> bool:
    """Return True if a function returns a value other than None. Nested functions do not count."""
    for node in _statements(function):
        if isinstance(node, ast.Return):
            value = node.value
            if value is not None and not (isinstance(value, ast.Constant) and value.value is None):
                return True
        elif not isinstance(node, _Function) and _returns_a_value(node):
            return True
    return False


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a block, and the parts of a statement that have blocks."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield child


def _last_part(name: str) -> str:
    return name.rpartition(".")[2]


def last_name(node: ast.expr) -> str:
    """Return the last part of a dotted name; empty for another expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
