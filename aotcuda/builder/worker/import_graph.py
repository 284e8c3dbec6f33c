"""Which modules import which: what one packaged module's sources need, and another's of the same project do not."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


class ImportGraph:
    """The imports of a block, those of modules that had been imported before included."""

    def __init__(self) -> None:
        self._imports: dict[str, set[str]] = {}

    def needed(self, names: Iterable[str]) -> set[str]:
        """Every module that importing those of `names` imports, the packages that hold them included."""
        found: set[str] = set()
        waiting = [*names, ""]  # whose importer is not known is needed by all
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += [name.rpartition(".")[0], *self._imports.get(name, ())]
        return {name for name in found if name in sys.modules}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note the imports of the block."""
        statement, function = builtins.__import__, importlib.import_module

        def import_statement(
            name: str,
            namespace: Mapping[str, Any] | None = None,
            inner: Mapping[str, Any] | None = None,
            fromlist: Sequence[str] | None = (),
            level: int = 0,
        ) -> Any:
            result = statement(name, namespace, inner, fromlist or (), level)
            whole = _absolute(name, (namespace or {}).get("__package__"), level)
            parts = [f"{whole}.{item}" for item in fromlist or ()]
            self._note(namespace, [whole, *(part for part in parts if part in sys.modules)])
            return result

        def import_function(name: str, package: str | None = None) -> Any:
            result = function(name, package)
            caller = sys._getframe(1).f_globals  # noqa: SLF001 (its documented use)
            self._note(caller, [result.__name__ if hasattr(result, "__name__") else name])
            return result

        builtins.__import__, importlib.import_module = cast("Any", import_statement), import_function
        try:
            yield
        finally:
            builtins.__import__, importlib.import_module = statement, function

    def _note(self, importer: Mapping[str, Any] | None, names: Iterable[str]) -> None:
        name = (importer or {}).get("__name__")
        self._imports.setdefault(name if name in sys.modules else "", set()).update(names)


def _absolute(name: str, package: object, level: int) -> str:
    if not level or not isinstance(package, str):
        return name
    try:
        return importlib.util.resolve_name("." * level + name, package)
    except ImportError:
        return name
