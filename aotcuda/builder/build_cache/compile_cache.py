"""The compile cache: results of code generators, named by their inputs.

A front end lowers all kernels in each build that is not found as a whole. Each code generator's result is named by the
generator's input: LLVM IR for libNVVM and the linker, PTX for an assembler, Triton's and cuTile's own IR, CUDA C++ with
every header that its text can reach. The name also has the target, the options, and the versions of all tools. The
Python code that led to the input need not be analysed.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from aotcuda import registry
from aotcuda.builder.build_cache import hashing, remote
from aotcuda.builder.build_cache.hashing import NamelessError
from aotcuda.builder.build_cache.store import Store
from aotcuda.builder.link.included_headers import Headers
from aotcuda.builder.worker import flows, pool
from aotcuda.common.stamp import file_digest
from aotcuda.errors import AotcudaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aotcuda.builder.build_cache.settings import Settings
    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.protocol import LinkInput

K = TypeVar("K")
Name = str
"""The digest of the inputs of a result; empty if they cannot be hashed."""


class CompileCache:
    """The compile cache of one worker."""

    def __init__(
        self, settings: Settings | None = None, root: str = "", frontend: str = "", tools: Sequence[object] = ()
    ) -> None:
        """Open the cache, if there are settings. `tools` are the versions of the loaded compilers."""
        self._store = Store(settings, _fetched, _sent) if settings is not None else None
        self._root = Path(root)
        self._base = (settings.facts if settings is not None else "", frontend, tuple(tools))
        self._prefixes = registry.variables([frontend]).prefixes if settings is not None else ()
        self._variables: list[tuple[str, str]] | None = None
        self._have: dict[Name, Any] = {}
        self.reused = 0
        self.made = 0

    @property
    def is_on(self) -> bool:
        """Return True if there is a cache."""
        return self._store is not None

    @property
    def has_url(self) -> bool:
        """Return True if entries may be at a URL; only the worker itself reads from it."""
        return self._store is not None and self._store.has_url

    @property
    def problems(self) -> tuple[str, ...]:
        """Warnings for the user."""
        return tuple(self._store.problems) if self._store is not None else ()

    def count_reused(self, number: int) -> None:
        """Count results that front ends have found."""
        self.reused += number

    @property
    def answers(self) -> bool:
        """Return True if the cache's URL, if there is one, has answered."""
        return self._store is None or self._store.answers

    def name(self, *made_from: object) -> Name:
        """Return the name of a result of these values, which also has the tools and variables that compilers read."""
        if self._store is None:
            return ""
        if self._variables is None:  # the sources, which may set variables, have been imported
            self._variables = sorted(item for item in os.environ.items() if item[0].startswith(self._prefixes))
        try:
            return hashing.digest(self._base, self._variables, *made_from)
        except NamelessError:
            return ""

    def name_with(
        self, inputs: Sequence[LinkInput], options: Options, folders: Sequence[str], *made_from: object
    ) -> Name:
        """Return the name of a result of `inputs`, their headers in `folders`, options, and more.

        Empty if the text does not determine the headers, or if the code contains the time of its compilation.
        """
        if not self.is_on:
            return ""
        found = Headers(inputs, self._root, folders)
        if found.hidden(options):
            return ""
        items = [replace(item, folder=self._shown(item.folder)) for item in inputs]
        headers = [(self._shown(str(path)), file_digest(str(path))) for path in found.files]
        place = str(self._root) if found.tell_their_place(options) else ""
        return self.name(*made_from, options, items, headers, place)

    def find(self, named: Mapping[K, Name], shape: Callable[[K], Any]) -> dict[K, Any]:
        """Return the results that the cache has; `shape` gives the type that a result must have."""
        wanted = {name: shape(key) for key, name in named.items() if name and name not in self._have}
        found = self._store.get(wanted) if self._store is not None and wanted else {}
        have = {key: value for key, name in named.items() if (value := found.get(name, self._have.get(name)))}
        self.reused += len(have)
        return have

    def fetch(self, wanted: Mapping[Name, Any]) -> None:
        """Load these entries from the cache, for `find_here` in this process and its children."""
        if self._store is not None:
            self._have |= dict.fromkeys(wanted) | self._store.get(wanted)

    def find_here(self, name: Name, shape: Any) -> Any | None:
        """Return a result that is in memory or in the folder on this machine; for children, which read from no URL."""
        if self._store is None or not name:
            return None
        return self._have.get(name) or self._store.get_here({name: shape}).get(name)

    def must_ask(self, name: Name) -> bool:
        """Return True for a result that may be at a URL and was not requested yet."""
        return self.has_url and name not in self._have

    def store(self, made: Mapping[K, Any], named: Mapping[K, Name], titles: Mapping[K, str], kind: str) -> bool:
        """Store the results that have a name; `titles` and `kind` are for lists of the cache.

        Returns False if a result that has a name could not be stored.
        """
        self.made += len(made)
        fresh = {named[key]: value for key, value in made.items() if named.get(key)}
        if self._store is None or not fresh:
            return not fresh
        return self._store.put(fresh, kind, {named[key]: titles[key] for key in made if named.get(key)})

    def _shown(self, folder: str) -> str:
        """Return a path relative to the project's folder, so it is the same in every checkout."""
        path = Path(folder)
        return path.relative_to(self._root).as_posix() if folder and path.is_relative_to(self._root) else folder


def _fetched(url: str, wanted: list[str]) -> Any:
    """Call `remote.fetch` in a child, because it starts threads, and a process with threads must not fork units."""
    return _elsewhere(partial(remote.fetch, url, wanted), lambda problem: ({}, problem))


def _sent(url: str, packed: Any) -> Any:
    return _elsewhere(partial(remote.send, url, packed), lambda problem: problem)


def _elsewhere(work: Callable[[], Any], failed: Callable[[str], Any]) -> Any:
    try:
        return flows.run([pool.Task("the build cache", work)], 1, lambda _: None)[0]
    except AotcudaError as error:
        return failed(str(error))
