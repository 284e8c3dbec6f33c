"""Choose the run time of a wheel that holds one: an installed aotcuda that reads the wheel, or the wheel's own copy.

An installed aotcuda is preferred for its fast path and its JIT fallback. `AOTCUDA_RUNTIME` overrides the choice. The
choice is made once for each private copy, when its first module is imported.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_PACKAGE = __name__.rpartition(".")[0]
"""The package that this module belongs to: `aotcuda`, or a private copy, `mypkg._aotcuda`."""

_INSTALLED = "aotcuda"

_chosen: list[ModuleType] = []


def runtime() -> ModuleType:
    """Return the package of the run time that is used.

    Raises:
        ConfigError: `AOTCUDA_RUNTIME` has an unknown value.
        RuntimeUnavailableError: It is `installed`, and no installed aotcuda reads the wheel.
    """
    if not _chosen:
        _chosen.append(_choose())
    return _chosen[0]


def part(name: str) -> Any:
    """Return a module of the run time that is used, `part("integrations.in_place.entry")`."""
    return import_module(f"{runtime().__name__}.{name}")


def _choose() -> ModuleType:
    own = sys.modules[_PACKAGE]
    wanted = os.environ.get("AOTCUDA_RUNTIME", "").strip()
    if wanted == "bundled" or _PACKAGE == _INSTALLED:
        return own
    from aotcuda.common import variables  # noqa: PLC0415 (of this copy)

    variables.check("AOTCUDA_RUNTIME")
    found, problem = _installed()
    if found is None and wanted:
        from aotcuda.errors import RuntimeUnavailableError  # noqa: PLC0415 (as above)

        message = f"AOTCUDA_RUNTIME is 'installed', and {problem}; install a newer aotcuda, or set it to 'bundled'"
        raise RuntimeUnavailableError(message)
    return own if found is None else found


def _installed() -> tuple[ModuleType | None, str]:
    """Return an installed aotcuda that reads what this version writes, else None and the reason."""
    from aotcuda.manifest import FLOOR  # noqa: PLC0415 (of this copy)
    from aotcuda.version import is_older  # noqa: PLC0415 (as above)

    try:
        version = import_module(f"{_INSTALLED}.version").__version__
        found = import_module(_INSTALLED)
    except ImportError:
        return None, "no aotcuda is installed"
    if is_older(version, FLOOR):
        return None, f"the installed aotcuda is {version}, and {_PACKAGE.partition('.')[0]} needs {FLOOR}"
    return found, ""


def installed_errors(own: dict[str, Any]) -> dict[str, type]:
    """Return an installed aotcuda's error classes by name, so that programs catch those of both run times.

    A class that it does not have is made again from its classes.

    Args:
        own: The names of this copy's module of errors.
    """
    try:
        given = vars(import_module(f"{_INSTALLED}.errors"))
    except ImportError:
        return {}
    found: dict[str, type] = {}
    for name, kind in own.items():
        if isinstance(kind, type) and issubclass(kind, BaseException) and kind.__module__ == own["__name__"]:
            theirs = given.get(name)
            if not isinstance(theirs, type):
                bases = tuple([found.get(base.__name__, base) for base in kind.__bases__])
                theirs = type(name, bases, {**vars(kind)})
            found[name] = theirs
    return found
