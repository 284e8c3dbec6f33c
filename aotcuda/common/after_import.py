"""Call functions right after a module was imported and executed."""

from __future__ import annotations

import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    Function = Callable[[ModuleType], None]

_functions: dict[str, Function] = {}


def call(name: str, function: Function) -> None:
    """Call a function with a module now, if the module is imported, and after each later execution.

    Args:
        name: The module. A later call for the same name replaces the function.
        function: The function.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _functions[name] = function
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        function(module)


class _Finder:
    """A finder that calls the other finders, and makes their loaders call the functions."""

    def __init__(self) -> None:
        self._searching = threading.local()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Implement MetaPathFinder.find_spec."""
        if name not in _functions or getattr(self._searching, "active", False):
            return None
        self._searching.active = True
        try:
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                spec: ModuleSpec | None = find(name, path, target) if find and finder is not self else None
                if spec is not None:
                    _extend(spec)
                    return spec
        finally:
            self._searching.active = False
        return None


def _extend(spec: ModuleSpec) -> None:
    """Make the loader of a module call the module's function after the execution."""
    original: Function | None = getattr(spec.loader, "exec_module", None)
    if original is None:
        return

    def exec_module(module: ModuleType) -> None:
        original(module)
        _functions[spec.name](sys.modules.get(spec.name, module))

    spec.loader.exec_module = exec_module  # type: ignore[union-attr, method-assign]
