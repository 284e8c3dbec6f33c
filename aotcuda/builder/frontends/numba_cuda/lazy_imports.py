"""Import Numba-CUDA without cuda.core, which it needs for launches alone, and which takes a sixth of the import's time.

While Numba-CUDA is imported, the names of cuda.core are bound to stand-ins, which import the package when they are
used. If sources import cuda.core, they get the package, and the stand-ins in Numba-CUDA are replaced.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from contextlib import contextmanager
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_PACKAGE = "cuda.core"


class _Absent(type):
    """The metaclass of stand-ins for classes and functions; they are classes because Numba-CUDA registers some."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_real(cls), name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _real(cls)(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return _PACKAGE in sys.modules and isinstance(instance, _real(cls))


class _Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """A finder of the package's modules, which have every requested attribute."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        del path, target
        is_its = fullname == _PACKAGE or fullname.startswith(f"{_PACKAGE}.")
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if is_its else None

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == _PACKAGE:
            module.__dict__["__version__"] = version("cuda-core")

        def absent(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            found = _Absent(name, (), {"__module__": module.__name__})
            setattr(module, name, found)
            return found

        module.__dict__["__getattr__"] = absent


@contextmanager
def left_out() -> Iterator[None]:
    """Import Numba-CUDA in the context without cuda.core, unless cuda.core was imported before."""
    if _PACKAGE in sys.modules:
        yield
        return
    modules = _Modules()
    sys.meta_path.insert(0, modules)
    try:
        yield
    finally:
        sys.meta_path.remove(modules)
        for name in [name for name in sys.modules if name == _PACKAGE or name.startswith(f"{_PACKAGE}.")]:
            del sys.modules[name]
        if (parent := sys.modules.get("cuda")) is not None:
            parent.__dict__.pop("core", None)


def put_back(registry: Any) -> None:
    """Register the types of cuda.core with Numba-CUDA, if sources have imported it; `registry` is its `typeof_impl`."""
    if _PACKAGE not in sys.modules:
        return
    modules = [module for name, module in [*sys.modules.items()] if name.startswith("numba.cuda")]
    for module in modules:
        for name, value in [*vars(module).items()]:
            if isinstance(value, _Absent):
                setattr(module, name, _real(value))
            elif isinstance(value, ModuleType) and isinstance(value.__loader__, _Modules):
                setattr(module, name, importlib.import_module(value.__name__))
    for kind, function in [*registry.registry.items()]:
        if isinstance(kind, _Absent):
            registry.register(_real(kind), function)


def _real(absent: _Absent) -> Any:
    return getattr(importlib.import_module(absent.__module__), absent.__name__)
