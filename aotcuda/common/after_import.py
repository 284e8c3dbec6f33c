"""Call functions right after a module was imported and executed. It uses the standard library alone."""

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
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _functions[name] = function
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        function(module)


class Finder:
    """A finder for `sys.meta_path` that calls the other finders, and makes their loaders call functions."""

    def __init__(self, function_for: Callable[[str], Function | None]) -> None:
        """Make a finder; `function_for` returns the function for a module's name, or None."""
        self._function_for = function_for
        self._searching = threading.local()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Implement MetaPathFinder.find_spec. A finder that calls all finders, as Numba-CUDA's, finds nothing here."""
        if getattr(self._searching, "active", False) or self._function_for(name) is None:
            return None
        self._searching.active = True
        try:
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                spec: ModuleSpec | None = find(name, path, target) if find and finder is not self else None
                if spec is not None:
                    self._extend(spec)
                    return spec
        finally:
            self._searching.active = False
        return None

    def _extend(self, spec: ModuleSpec) -> None:
        """Make the loader of a module call the module's function after the execution."""
        original: Function | None = getattr(spec.loader, "exec_module", None)
        if original is None:
            return

        def exec_module(module: ModuleType) -> None:
            original(module)
            function = self._function_for(spec.name)
            if function is not None:
                function(sys.modules.get(spec.name, module))  # a module may replace itself there

        spec.loader.exec_module = exec_module  # type: ignore[union-attr, method-assign]


_finder = Finder(_functions.get)
