"""The compile cache: results of code generators, named by their inputs.

A front end lowers all kernels in each build that the cache does not have. Each code generator's result is named by the
generator's input: LLVM IR for libNVVM and the linker, PTX for an assembler, Triton's and cuTile's own IR, CUDA C++ with
every header that its text can reach. The name also has the target, the options, and the versions of all tools. The
Python code that led to the input need not be analysed.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from aotcuda import registry
from aotcuda.builder.cache import hashing
from aotcuda.builder.cache.hashing import NamelessError
from aotcuda.builder.cache.store import Store
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link.included_headers import Headers
from aotcuda.common.stamp import file_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aotcuda.builder.cache.settings import Settings
    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.protocol import Ir

K = TypeVar("K")
Name = str
"""The digest of the inputs of a result; empty if they cannot be hashed."""


class CompileCache:
    """The compile cache of one worker."""

    def __init__(self, settings: Settings | None = None, root: str = "", frontend: str = "") -> None:
        """Open the cache, if there are settings."""
        self._store = Store(settings) if settings is not None else None
        self._root = Path(root)
        self._base: tuple[object, ...] = (settings.facts if settings is not None else "", frontend)
        self._prefixes = registry.variables([frontend]).prefixes if settings is not None else ()
        self._variables: list[tuple[str, str]] | None = None
        self.reused = 0
        self.made = 0

    def add_tools(self, tools: Sequence[object]) -> None:
        """Add the versions of the loaded compilers to the names of results."""
        self._base = (*self._base, tuple(tools))

    @property
    def is_on(self) -> bool:
        """Return True if there is a cache."""
        return self._store is not None

    @property
    def problems(self) -> tuple[str, ...]:
        """Warnings for the user."""
        return tuple(self._store.problems) if self._store is not None else ()

    def count_reused(self, number: int) -> None:
        """Count results that front ends have found."""
        self.reused += number

    def name(self, *values: object) -> Name:
        """Return the name of a result for `values`, the tools, and the variables that compilers read."""
        if self._store is None:
            return ""
        if self._variables is None:  # the sources, which may set variables, have been imported
            self._variables = sorted(item for item in os.environ.items() if item[0].startswith(self._prefixes))
        try:
            return hashing.digest(self._base, self._variables, *values)
        except NamelessError:
            return ""

    def name_with(
        self, inputs: Sequence[LinkInput | Ir], options: Options, folders: Sequence[str], *values: object
    ) -> Name:
        """Return the name of a result for `inputs`, their headers in `folders`, `options` and `values`.

        The name is empty if the text does not determine the headers, or if the code contains the compilation's time.
        """
        if not self.is_on:
            return ""
        files = [item for item in inputs if isinstance(item, LinkInput)]
        included = Headers(files, self._root, folders, options)
        if included.uncacheable(options):
            return ""
        items = [
            replace(item, folder=self._relative(item.folder)) if isinstance(item, LinkInput) else item
            for item in inputs
        ]
        headers = [(self._relative(str(path)), file_digest(str(path))) for path in included.files]
        place = str(self._root) if included.may_contain_folder(options) else ""
        return self.name(*values, options, items, headers, place)

    def find(self, names: Mapping[K, Name], shape: Callable[[K], Any]) -> dict[K, Any]:
        """Return the results that the cache has; `shape` gives the type that a result must have."""
        types = {name: shape(key) for key, name in names.items() if name}
        stored = self._store.get(types) if self._store is not None and types else {}
        results = {key: value for key, name in names.items() if (value := stored.get(name))}
        self.reused += len(results)
        return results

    def find_here(self, name: Name, shape: Any) -> Any | None:
        """Return one result, or None; for children, whose counts are lost."""
        return self._store.get({name: shape}).get(name) if self._store is not None and name else None

    def store(self, results: Mapping[K, Any], names: Mapping[K, Name], titles: Mapping[K, str], kind: str) -> bool:
        """Store the results that have a name; `titles` and `kind` are for lists of the cache.

        Returns False if a result that has a name could not be stored.
        """
        self.made += len(results)
        values = {names[key]: value for key, value in results.items() if names.get(key)}
        if self._store is None or not values:
            return not values
        return self._store.put(values, kind, {names[key]: titles[key] for key in results if names.get(key)})

    def _relative(self, folder: str) -> str:
        """Return a path relative to the project's folder, so it is the same in every checkout."""
        path = Path(folder)
        return path.relative_to(self._root).as_posix() if folder and path.is_relative_to(self._root) else folder
