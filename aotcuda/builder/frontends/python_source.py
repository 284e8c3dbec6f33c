"""Find the Python objects that units are compiled from, for front ends whose sources are Python."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING

from aotcuda.builder.compile.imports import Placeholder
from aotcuda.builder.frontends.protocol import Unit
from aotcuda.common import object_path, suggest
from aotcuda.errors import SourceError, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence


WRITTEN_LATER = "if a step of the build writes it, let that step run before aotcuda"
"""The remedy for a missing module of the project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonUnit(Unit):
    """A unit whose source is an object of a Python module.

    Attributes:
        source: The Python module that defines the function.
        python: The function's name in the module, or a path of attributes with dots.
    """

    source: str
    python: str

    @property
    def loading(self) -> str:
        return f"importing {self.source}"


def load(unit: PythonUnit, root: str) -> object:
    """Return the Python object that `unit` names.

    Raises:
        SourceError: The module cannot be imported, or lacks the function; the message has the module's exception.
    """
    return find(unit, (unit.source,), root)[1]


def find(unit: PythonUnit, sources: Sequence[str], root: str) -> tuple[str, object]:
    """Return the full name and the object of `unit`, from the first of the modules `sources` that has the object.

    Raises:
        SourceError: A module cannot be imported, or none has the object.
    """
    imported = [import_source(name, unit, root) for name in sources]
    for module in imported:
        for value in attributes(module, unit.python):
            name = f"{name_of(module)}.{unit.python}"
            check_no_placeholder(value, unit, name)
            return name, value
    raise missing_error(unit, imported)


def import_source(name: str, unit: PythonUnit, root: str) -> ModuleType:
    """Return the module `name`, which is one of the sources of the unit's module.

    Raises:
        SourceError: The module cannot be imported.
    """
    return import_for(f'tool.aotcuda.modules."{unit.module}".source', name, root, "that holds the functions, ")


def import_for(key: str, name: str, root: str, purpose: str = "") -> ModuleType:
    """Return the module `name`, which the key `key` names; errors say its `purpose`.

    Raises:
        SourceError: The module cannot be imported; the message has the exception and the user's line.
    """
    try:
        return importlib.import_module(name)
    except BaseException as error:  # a source may raise SystemExit and KeyboardInterrupt, too
        if isinstance(error, ModuleNotFoundError) and error.name and _is_prefix(error.name, name):
            remedy = f"name the Python module {purpose}as it is imported, or {WRITTEN_LATER}"
            if near := _near_module(error.name, root):
                remedy = f"did you mean {near}?"
            message = f"{key}: there is no module {error.name} in {root}; {remedy}"
            raise SourceError(message) from None
        fault = f"{_error_text(error)}{_place(error, root)}{_advice(error, root)}"
        failure = SourceError(f"{key}: importing {name} failed: {fault}")
        failure.fault = fault
        raise failure from error


def _near_module(name: str, root: str) -> str | None:
    """Return the module beside a missing one that has a similar name, or that has its name inside a package."""
    package, _, last = name.rpartition(".")
    parent = sys.modules.get(package)
    folders = list(getattr(parent, "__path__", ())) if package else [root, str(Path(root, "src"))]
    found = list(pkgutil.iter_modules(folders))
    if near := suggest.nearest(last, [item.name for item in found]):
        return f"{package}.{near}" if package else near
    packages = [(item.name, [str(Path(folder, item.name)) for folder in folders]) for item in found if item.ispkg]
    inside = (f"{top}.{item.name}" for top, paths in packages for item in pkgutil.iter_modules(paths))
    return next((inner for inner in inside if inner.rpartition(".")[2] == last), None) if not package else None


def _advice(error: BaseException, root: str) -> str:
    """Return the remedy for an import of a missing module; empty for other errors."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    package = error.name.rpartition(".")[0]
    parent = sys.modules.get(package)
    if parent is not None and not hasattr(parent, "__path__"):
        file = getattr(parent, "__file__", None)
        if isinstance(file, str):
            return f"; {package} is {_relative(file, root)}: rename it if it hides another package"
        return f'; {package} is a stand-in: add the missing module, sys.modules["{error.name}"] = {error.name}'
    if parent is not None and any(_is_below(folder, root) for folder in parent.__path__):
        return f"; add the module to {package}, or {WRITTEN_LATER}"
    return (
        f"; add what provides {error.name.partition('.')[0]} to build-system.requires, give it a stand-in in a "
        "prelude, or import it where it is used"
    )


def _is_below(folder: object, root: str) -> bool:
    """Return True for a folder of the project that is not in an environment there."""
    path = Path(str(folder)).absolute()
    return path.is_relative_to(root) and "site-packages" not in path.parts


def name_of(module: ModuleType) -> str:
    """Return the name by which a module was imported; a source may set its `__name__` to another one, or delete it."""
    spec = vars(module).get("__spec__")
    names = (name for name, other in list(sys.modules.items()) if other is module)
    return getattr(spec, "name", None) or next(names, "") or str(vars(module).get("__name__", ""))


def is_defined_in(value: object, module: ModuleType) -> bool:
    """Return True if a value has the module's name, or the name that the module has set."""
    return getattr(value, "__module__", "") in {name_of(module), vars(module).get("__name__")}


def home(function: FunctionType) -> str:
    """Return the name of the module that defines a function."""
    spec = function.__globals__.get("__spec__")
    return getattr(spec, "name", None) or str(function.__module__)


def attributes(module: ModuleType, path: str) -> list[object]:
    """Return a list with the object at a `path` in a module; an empty list if there is no object.

    Raises:
        SourceError: An attribute or item raises another exception than those for a missing one.
    """
    value: object = module
    for name in object_path.split(path):
        try:
            value = object_path.step(value, name)
        except object_path.ERRORS:
            return []
        except Exception as error:
            message = f"{name_of(module)}: the object {path} cannot be read, since {name} raises {_error_text(error)}"
            raise SourceError(message) from error
    return [value]


def missing_error(unit: PythonUnit, modules: Sequence[ModuleType]) -> SourceError:
    """Return the error for a unit whose source modules all lack its function."""
    names = object_path.split(unit.python)
    depth = max(_depth(module, names) for module in modules)
    reached = [module for module in modules if _depth(module, names) == depth]
    holders = (
        [value for module in reached for value in attributes(module, object_path.join(names[:depth]))]
        if depth
        else reached
    )
    callables = sorted({name for holder in holders for name in _callables(holder)})
    where = " and ".join(object_path.join([name_of(module), *names[:depth]]) for module in reached)
    hint = suggest.did_you_mean(names[depth], callables, f"it has {', '.join(callables) or 'no functions'}")
    for module in modules:  # the user may have written a dot instead of a colon
        rest = unit.python.removeprefix(f"{name_of(module)}.")
        if rest != unit.python and attributes(module, rest):
            hint = f"did you mean {name_of(module)}:{rest}?"
    standard = [module for module in modules if name_of(module).partition(".")[0] in sys.stdlib_module_names]
    if standard:
        name = name_of(standard[0])
        hint = f'{name} is a module of Python itself; write the full name of your own, as "mypkg.{name}"'
    elif depth == 0:
        hint = next(filter(None, (_inner_hint(module, names[0]) for module in modules)), hint)
    return SourceError(f"{unit.key}: {where} has no {'attribute' if depth else 'function'} {names[depth]}; {hint}")


def _inner_hint(module: ModuleType, name: str) -> str | None:
    """Return the remedy for a function that a class or another function of the module defines."""
    try:
        tree = ast.parse(Path(module.__file__ or "").read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None
    waiting: list[tuple[tuple[str, ...], str, ast.AST]] = [((), "", tree)]
    while waiting:
        path, maker, node = waiting.pop(0)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and child.name == name and path:
                if not maker:
                    return f'it is defined in a class: write python = "{".".join((*path, name))}"'
                return (
                    f"{maker}() makes it when it is called (line {child.lineno}): give the result a name in the "
                    f'module, "{name} = {maker}(...)", or name the object that holds it: python = '
                    '"module:object.attribute"'
                )
            inner_maker = maker or (child.name if isinstance(child, ast.FunctionDef) else "")
            inner = (*path, child.name) if isinstance(child, ast.FunctionDef | ast.ClassDef) else path
            waiting.append((inner, inner_maker, child))
    return None


def _depth(module: ModuleType, names: Sequence[str]) -> int:
    """Return the number of names in a path that lead to an object."""
    return sum(bool(attributes(module, object_path.join(names[: depth + 1]))) for depth in range(len(names)))


def _callables(holder: object) -> list[str]:
    """Return names of callables in a module or an object; imported ones only if a module has no others."""
    if not isinstance(holder, ModuleType):
        return [name for name in dir(holder) if not name.startswith("__") and callable(getattr(holder, name, None))]
    values = {name: value for name, value in vars(holder).items() if not name.startswith("__") and callable(value)}
    own = [
        name
        for name, value in values.items()
        if _origin(value) in {name_of(holder), vars(holder).get("__name__"), None}
    ]
    return own or list(values)


def _origin(value: object) -> str | None:
    """Return the name of the module that defines a value; None for an object that has only the module of its class."""
    module = getattr(value, "__module__", None)
    return None if not isinstance(value, type) and module == type(value).__module__ else module


def check_no_placeholder(value: object, unit: PythonUnit, name: str) -> None:
    """Check that `value`, which the unit calls `name`, is not a placeholder for a module of this build.

    Raises:
        SourceError: `value` is a placeholder.
    """
    if isinstance(value, Placeholder):
        message = (
            f"{unit.key}: {name} comes from {unit.module}, the module that is being built; name the module that "
            "defines the function"
        )
        raise SourceError(message)


def _is_prefix(name: str, source: str) -> bool:
    return source == name or source.startswith(f"{name}.")


def _error_text(error: BaseException) -> str:
    """Return an exception's type and the first line of its message."""
    text = str(error.msg) if isinstance(error, SyntaxError) else text_of(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _place(error: BaseException, root: str) -> str:
    """Return ` (mypkg/_kernels.py:3: import cupy)`: the last line of the project in the traceback."""
    if isinstance(error, SyntaxError) and error.filename:
        text = (error.text or "").strip()
        return f" ({_relative(error.filename, root)}:{error.lineno}{f': {text}' if text else ''})"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(root) and "site-packages" not in Path(frame.filename).parts
    ]
    if not frames:
        return ""
    last = frames[-1]
    return f" ({_relative(last.filename, root)}:{last.lineno}: {(last.line or '').strip()})"


def _relative(path: str, root: str) -> str:
    return str(Path(path).relative_to(root)) if Path(path).is_relative_to(root) else path
