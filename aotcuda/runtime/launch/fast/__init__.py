"""The fast path in C, if this installation has it: the extension `fast._launch`, which launch.h introduces.

The fast path does the same as the general path, or declines. It declines tuples, float16 and some complex scalars,
addresses as `ctypes.c_void_p`, cooperative kernels and clusters. `specialize` adds specializations after
launches. `AOTCUDA_EXTENSION=0` disables it.
"""

from __future__ import annotations

import os
import sys

from ... import imported, importing, new_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..grid_binding import Named
    from ..launch_config import Configuration

_VERSION = 39
"""The version of the interface; in an editable install the extension may be older than the Python code."""

_VARIABLE = "AOTCUDA_EXTENSION"

_MOST = 0xFFFFFFFF
"""The largest dimension of a grid in the driver's call."""

_module: list[Any] = []  # the extension, or None if launches do not use it; empty before the search
_reason: list[str] = []  # the reason if the module is None
_lock = new_lock()  # for the creation of specializations, which the launchers of a kernel share


def in_use() -> Any:
    """Return the extension module; None if it is not installed or disabled."""
    if not _module:
        module, problem = _find()
        _reason[:] = [problem]
        _module.append(module)
    return _module[0]


def why_not() -> str | None:
    """Return the reason why launches do not use the extension; None if they use it."""
    return None if in_use() is not None else " ".join(_reason)


def _find() -> tuple[Any, str]:
    """Return the extension module and an empty text, or None and the reason."""
    if os.environ.get(_VARIABLE):
        with importing:
            from ....common import variables  # noqa: PLC0415 (few programs set it)

        variables.check(_VARIABLE)
        if os.environ[_VARIABLE] == "0":
            return None, f"{_VARIABLE} is 0"
    try:
        with importing:
            __import__(name := f"{__name__}._launch")
    except ModuleNotFoundError:
        with importing:
            from ....common import system  # noqa: PLC0415 (only the error needs it)

        kind = system.kind_of_python()
        advice = "install a wheel for this platform, or from source with a C compiler"
        return None, f"this installation of aotcuda has none for {kind} on {sys.platform}; {advice}"
    except (ImportError, SystemError) as error:  # SystemError: the extension needs the GIL, and this Python has none
        return None, f"it cannot be imported: {error}; install aotcuda again with this Python"
    _launch = sys.modules[name]
    version = getattr(_launch, "VERSION", None)
    if version != _VERSION:
        return None, f"{_launch.__file__} belongs to another version of aotcuda; install aotcuda again"
    return _launch, ""


def specializations_of(cache: Any, configuration: Configuration) -> Any:
    """Return the fast path's specializations of a `KernelCache`; None if launches take the general path."""
    module = in_use()
    if module is None or max(configuration.numbers) > _MOST:  # the launch raises an error
        return None
    driver = imported("driver")  # before CUDA is started
    if driver is not None and getattr(driver, "forked", False):
        return None
    if configuration.attributes is not None and not configuration.attributes.divides(configuration.grid):
        return None
    with _lock:
        return cache.share_specializations(module.Specializations)


def wrap(
    launcher: Callable[..., None], configuration: Configuration, specializations: object, named: Named | None = None
) -> Any:
    """Return the launcher wrapped in the fast path; return the launcher itself if `named` has too many names.

    `named` are the arguments that calls may name.
    """
    module = in_use()
    if named is not None and len(named[0]) > module.MOST_ARGUMENTS:
        return launcher
    dimensions = (*configuration.grid, *configuration.block, configuration.shared)
    attributes = configuration.attributes
    encoded = attributes.encoded() if attributes is not None else b""
    return module.Launcher(launcher, specializations, dimensions, configuration.stream, encoded, *(named or ()))
