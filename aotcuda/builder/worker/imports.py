"""Importing the modules that hold the user's functions, in the worker, before anything is compiled."""

from __future__ import annotations

import difflib
import importlib
import importlib.abc
import importlib.machinery
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda import manifest
from aotcuda.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from aotcuda.builder.plan import Unit


class Placeholder:
    """Stands for a packaged kernel or function while the package that will hold it is being built.

    A package's `__init__` may well import the modules that its wheel gains; the functions are compiled from modules of
    that same package, so they must be importable before they exist. Using one is an error.
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def _refuse(self, *_: object) -> Any:
        message = f"{self.__name__} is being built; it can be used once the package is installed"
        raise RuntimeError(message)

    __call__ = __getitem__ = _refuse

    def __repr__(self) -> str:
        return f"<{self.__name__}, being built>"


class _Generated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules that the wheel gains, and gives them placeholders for content."""

    def __init__(self, names: Mapping[str, Sequence[str]]) -> None:
        self.names = names

    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        del path, target
        return importlib.machinery.ModuleSpec(fullname, self) if fullname in self.names else None

    def exec_module(self, module: ModuleType) -> None:
        for name in self.names[module.__name__]:
            setattr(module, name, Placeholder(f"{module.__name__}.{name}"))
        module.__dict__["__aotcuda__"] = Placeholder(f"{module.__name__}.__aotcuda__")


def prepare_imports(roots: Sequence[str], generated: Mapping[str, Sequence[str]]) -> None:
    """Make the project importable from `roots`, and the modules that its wheel gains importable as placeholders."""
    sys.path[:0] = [root for root in roots if root not in sys.path]
    sys.meta_path.insert(0, _Generated(generated))
    importlib.invalidate_caches()
    _distrust_bytecode(tuple(f"{Path(root, name.partition('.')[0])}/" for root in roots for name in generated))


def _distrust_bytecode(folders: tuple[str, ...]) -> None:
    """Import modules below `folders` from their sources, whatever bytecode lies beside them.

    Python takes bytecode for current if size and time in whole seconds are the source's. A source that was edited twice
    in a second would be compiled as it was before, and kept under the digest of what it is now.
    """
    loader = importlib.machinery.SourceFileLoader
    stats = loader.path_stats

    def path_stats(self: importlib.machinery.SourceFileLoader, path: str) -> Mapping[str, Any]:
        if path.startswith(folders):
            raise OSError(path)  # as for a loader that knows no times: bytecode is then left out of account
        return stats(self, path)

    loader.path_stats = path_stats  # type: ignore[method-assign]


def load(unit: Unit, root: str) -> object:
    """The Python object behind `unit`.

    Raises:
        SourceError: Its module cannot be imported (its own error and the user's line are shown), or lacks the function.
    """
    return _find(_import(unit, root), unit)


def project_files(roots: Sequence[str]) -> tuple[manifest.Source, ...]:
    """The Python files below `roots` that have been imported, with their digests; the paths are absolute."""
    found: dict[str, str] = {}
    folders = [Path(root).resolve() for root in roots]
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if not name:
            continue
        path = Path(name).resolve()
        if "site-packages" in path.parts:
            continue
        if path.is_file() and any(path.is_relative_to(folder) for folder in folders):
            found[str(path)] = manifest.digest(path.read_bytes())
    return tuple({"path": path, "sha256": found[path]} for path in sorted(found))


def _import(unit: Unit, root: str) -> ModuleType:
    try:
        return importlib.import_module(unit.source)
    except BaseException as error:  # SystemExit and KeyboardInterrupt are the source's own as well
        key = f'tool.aotcuda.modules."{unit.module}".source'
        if isinstance(error, ModuleNotFoundError) and error.name and _is_prefix(error.name, unit.source):
            message = (
                f"{key}: there is no module {error.name} in {root}; name the Python module that holds the functions, "
                "as it is imported"
            )
            raise SourceError(message) from None
        advice = ""
        if isinstance(error, ModuleNotFoundError) and error.name:
            advice = (
                f"; add what provides {error.name.partition('.')[0]} to build-system.requires, or import it where it "
                "is used"
            )
        message = f"{key}: importing {unit.source} failed: {type(error).__name__}: {_first_line(error)}"
        msg = f"{message}{_place(error, root)}{advice}"
        raise SourceError(msg) from error


def _is_prefix(name: str, source: str) -> bool:
    return source == name or source.startswith(f"{name}.")


def _first_line(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return str(error.msg)
    return str(error).partition("\n")[0]


def _place(error: BaseException, root: str) -> str:
    """` (mypkg/_kernels.py:3: import cupy)`: the last line of the project that was being run."""
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


def _find(module: ModuleType, unit: Unit) -> object:
    try:
        found: object = getattr(module, unit.python)
    except AttributeError:
        names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("__")]
        near = difflib.get_close_matches(unit.python, names, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(sorted(names)) or 'no functions'}"
        message = f"{unit.key}: {unit.source} has no function {unit.python}{hint}"
        raise SourceError(message) from None
    if isinstance(found, Placeholder):
        message = (
            f"{unit.key}: {unit.source}.{unit.python} comes from {unit.module}, the module that is being built; "
            "name the module that defines the function"
        )
        raise SourceError(message)
    return found
