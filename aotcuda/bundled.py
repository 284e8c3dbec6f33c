"""Choose the run time of a wheel with a private copy: an installed aotcuda that reads the wheel, or the copy.

An installed aotcuda is preferred for its fast path and its JIT fallback. `AOTCUDA_RUNTIME` overrides the choice, which
is made once for each private copy, when the first module of the copy is imported.
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
    """Return the package of the chosen run time.

    Raises:
        ConfigError: `AOTCUDA_RUNTIME` has an unknown value.
        RuntimeUnavailableError: `AOTCUDA_RUNTIME` is `installed`, and no installed aotcuda reads the wheel.
    """
    if not _chosen:
        _chosen.append(_choose())
    return _chosen[0]


def part(name: str) -> Any:
    """Return a module of the chosen run time: `part("integrations.in_place.entry")`."""
    return import_module(f"{runtime().__name__}.{name}")


def _choose() -> ModuleType:
    copy = sys.modules[_PACKAGE]
    value = os.environ.get("AOTCUDA_RUNTIME", "").strip()
    if value == "bundled" or _PACKAGE == _INSTALLED:
        return copy
    from .common import variables  # noqa: PLC0415 (an installed aotcuda does not come here)

    variables.check("AOTCUDA_RUNTIME")
    installed, problem = _installed()
    if installed is None and value:
        from .errors import RuntimeUnavailableError  # noqa: PLC0415 (as above)

        message = f"AOTCUDA_RUNTIME is 'installed', and {problem}; install a newer aotcuda, or set it to 'bundled'"
        raise RuntimeUnavailableError(message)
    return copy if installed is None else installed


def _installed() -> tuple[ModuleType | None, str]:
    """Return an installed aotcuda that reads the wheels of this version, else None and the reason."""
    from .manifest import FLOOR  # noqa: PLC0415 (as above)
    from .version import is_older  # noqa: PLC0415 (as above)

    try:
        version = import_module(f"{_INSTALLED}.version").__version__
        package = import_module(_INSTALLED)
    except ImportError:
        return None, "no aotcuda is installed"
    if is_older(version, FLOOR):
        return None, f"the installed aotcuda is {version}, and {_PACKAGE.partition('.')[0]} needs {FLOOR}"
    return package, ""
