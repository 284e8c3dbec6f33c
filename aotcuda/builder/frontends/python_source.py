"""Units that are compiled from Python objects, and how those are found: for front ends whose sources are Python."""

from __future__ import annotations

import difflib
import importlib
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda.builder.frontends.protocol import Unit
from aotcuda.builder.worker.imports import Placeholder
from aotcuda.errors import SourceError

if TYPE_CHECKING:
    from types import ModuleType


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonUnit(Unit):
    """A unit whose source is an object of a Python module.

    Attributes:
        source: Name of the Python module that holds the function.
        python: Name of the function in there.
    """

    source: str
    python: str

    @property
    def loading(self) -> str:
        """See Unit."""
        return f"importing {self.source}"


def load(unit: PythonUnit, root: str) -> object:
    """The Python object behind `unit`.

    Raises:
        SourceError: Its module cannot be imported (its own error and the user's line are shown), or lacks the function.
    """
    return _find(_import(unit, root), unit)


def _import(unit: PythonUnit, root: str) -> ModuleType:
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


def _find(module: ModuleType, unit: PythonUnit) -> object:
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
