"""Packages that Numba imports and a build hardly ever uses, imported when they are used: asyncio, PyYAML and cffi.

They are a tenth of the time that Numba takes to import. Numba has stand-ins for them, which hand on whatever they are
asked for. So nothing has to be put back: sources that import one of them get the package, and Numba asks that too.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Postponed(ModuleType):
    """Stands where a package is imported whole (`import yaml`)."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_real(self.__name__), name)


class _Future:
    """Stands for `asyncio.futures.Future` in an annotation, which nobody reads."""


class _Type(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return "cffi.api" in sys.modules and isinstance(instance, _real("cffi").FFI)


class _FFI(metaclass=_Type):
    """Stands for `cffi.FFI`, an object of which Numba makes while it is imported, and asks of whatever has no type."""

    def __init__(self) -> None:
        self._made: Any = None

    def typeof(self, value: object) -> Any:
        """As that of cffi, of whose objects there is none while its backend is not loaded.

        Raises:
            TypeError: The value is none of them.
        """
        if isinstance(value, str) or "_cffi_backend" in sys.modules:  # of a string it parses C
            return self.__getattr__("typeof")(value)
        raise TypeError(type(value))

    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            self._made = _real("cffi").FFI()
        return getattr(self._made, name)


def _real(name: str) -> ModuleType:
    if isinstance(sys.modules.get(name), _Postponed):
        del sys.modules[name]
    return importlib.import_module(name)


_CONFIGURATION = Path(".numba_config.yaml")
"""In the current folder, where Numba looks for it."""

_OWN: dict[str, dict[str, object]] = {
    "asyncio": {"futures": SimpleNamespace(Future=_Future)},
    "cffi": {"FFI": _FFI},
}
"""What stand-ins are asked for while Numba is imported."""


@contextmanager
def postponed(*names: str) -> Iterator[None]:
    """A block that imports Numba, and these packages not: those that are there and were not imported already.

    PyYAML is imported after all where Numba reads a file with it, as far as it can be.
    """
    absent = [name for name in names if name not in sys.modules and importlib.util.find_spec(name) is not None]
    stand_ins = [_Postponed(name) for name in absent if name != "yaml" or not _CONFIGURATION.exists()]
    for stand_in in stand_ins:
        sys.modules[stand_in.__name__] = stand_in
        stand_in.__dict__.update(_OWN.get(stand_in.__name__, {}))
    try:
        yield
    finally:
        for stand_in in stand_ins:
            stand_in.__dict__.pop("futures", None)
            if sys.modules.get(stand_in.__name__) is stand_in:
                del sys.modules[stand_in.__name__]
