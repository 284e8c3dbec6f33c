"""A whole build, found again with no compiler imported: its files, while nothing that it asked has changed.

What a build depends on beside its configuration is known once it has been done: its sources, all that they import and
ask of the machine, headers. So there are two kinds of entries. An index, named by what is known beforehand, lists the
questions of former builds; the files are in entries that are named by the questions and their answers of today.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES
from typing import TYPE_CHECKING, Any

from aotcuda.builder.build_cache import names, places
from aotcuda.builder.build_cache.places import Places
from aotcuda.builder.worker import dependency_trace
from aotcuda.common import dependencies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aotcuda.builder.build_cache.settings import Settings
    from aotcuda.builder.build_cache.store import Store
    from aotcuda.builder.worker.job import Result

    Questions = list[tuple[str, str]]
    Index = list[tuple[bool, Questions, list[str]]]

_MOST = 4
"""How many lists of questions an index has: branches of a project may ask different ones."""

_NAMES = "="
"""Among the variables that were asked for: which ones there are. None is called that.

A worker has others than the process that builds, but which ones follows from those that this one has.
"""

_PLACE = re.compile(rf"\b(?:{'|'.join(map(re.escape, places.TELLING))}|from\s+sys\s+import)\b".encode())


class Whole:
    """The cache of one build as a whole."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        root: str,
        known: Sequence[object],
        *,
        exact: bool,
        is_generated: Callable[[str], bool],
        searched: Sequence[str] = (),
    ) -> None:
        """A build of the project in `root`, of which `known` is known beforehand.

        Args:
            store: The entries.
            settings: Where they are.
            root: The project's folder.
            known: What decides what comes out, beside what sources ask.
            exact: What comes out is for this folder and this environment alone, as in an editable install.
            is_generated: Tells whether a path is one that the build itself writes.
            searched: Folders that the project's modules are imported from, as `known` has them.

        Raises:
            NamelessError: Something that is known has no name.
        """
        self._store = store
        self._places = Places(root)
        self._root = root
        self._exact = exact
        self._is_generated = is_generated
        self._searched = tuple(f"{folder}/" for folder in searched)
        self._elsewhere: Index = []
        self._key = names.digest("build", settings.facts, exact and root, known)

    def get(self, shape: Any = object) -> Any | None:
        """Return what the build made when all was as it is now, of the type `shape`; None if that is not known."""
        here = self._index()
        made = self._made(here, shape)
        if made is None:  # what the folder has listed may be older than what others have built since
            self._elsewhere = _lists(self._store.get_elsewhere(self._key, list))
            made = self._made([each for each in self._elsewhere if each not in here], shape)
            if made is not None:
                self._list([*self._elsewhere, *here], "")
        return made

    def _made(self, index: Index, shape: Any) -> Any | None:
        wanted = []
        for each in index[:_MOST]:
            with suppress(ValueError, OverflowError):  # a question that nobody can ask: the entry is damaged
                wanted.append(self._name(*each))
        found = self._store.get(dict.fromkeys(wanted, shape))
        return next((found[name] for name in wanted if name in found), None)

    def keep(self, made: object, results: Sequence[Result], kinds: Iterable[str], about: str) -> None:
        """Keep what a build made.

        Args:
            made: That.
            results: What its workers saw.
            kinds: Paths of which it matters, besides, what lies there.
            about: What lists of the cache call it.
        """
        seen = dependency_trace.joined(result.trace for result in results if result.trace is not None)
        if any(result.trace is None or result.unseen for result in results):
            return
        digests = {source["path"]: source["sha256"] for result in results for source in result.sources}
        questions, entries = self._questions(seen, digests, kinds), self._entries(seen)
        if questions is None or entries is None:
            return
        questions = sorted({*questions, *entries})
        beside = any(places.is_as_it_is(name) for _, name in questions)  # from another folder `../x` is another file
        bound = self._exact or seen.placed or beside or any(map(_knows_its_place, digests))
        own = (bound, questions, sorted([*seen.variables, *([_NAMES] if seen.names is not None else [])]))
        name = self._name(*own)
        if not self._is_as_it_was(seen, digests):  # until after all of it has its name
            return
        self._store.put({name: made}, "build", {name: about})
        self._list([own, *self._index(), *self._elsewhere], about)

    def _list(self, index: Index, about: str) -> None:
        """Have the first of those lists of questions in the index."""
        listed: Index = []
        for each in index:
            if each not in listed:
                listed.append(each)
        value = [[is_bound, [list(each) for each in asked], named] for is_bound, asked, named in listed[:_MOST]]
        self._store.put({self._key: value}, "index", {self._key: about})

    def _questions(
        self, seen: dependency_trace.DependencyTrace, digests: dict[str, str], kinds: Iterable[str]
    ) -> Questions | None:
        """What was asked, by names; None if it cannot be asked by these."""
        asked: set[tuple[str, str]] = {("kind", self._places.name(path)) for path in kinds}
        asked |= {("content", self._places.name(path)) for path in digests}
        for (ask, path), answer in seen.reads.items():
            if self._is_generated(path):
                continue
            name = self._places.name(path)
            if self._places.path(name) != path:
                if answer is None:
                    continue  # it is found elsewhere, where that was looked for next
                return None
            asked.add((ask, name))
        asked |= {("link", self._places.name(path)) for path in self._ways({*digests, *seen.files})}
        return sorted(asked)

    def _ways(self, files: Iterable[str]) -> set[str]:
        """Files of the project, and the folders of it that lead there: what a wheel calls a file is where links end."""
        own = {path for path in files if path.startswith(f"{self._root}/")}
        return own.union(*(above(path, self._root) for path in own))

    def _entries(self, seen: dependency_trace.DependencyTrace) -> Questions | None:
        """Where modules were found that are neither the project's nor installed, but by an editable install, say.

        Another folder may be there for them the next time, while this one is as it was. None where it is not known by
        which folder one was found.
        """
        asked: set[tuple[str, str]] = set()
        for path in seen.files - seen.texts:
            is_module = path.endswith((".py", *EXTENSION_SUFFIXES)) and not path.startswith(self._searched)
            if is_module and places.is_as_it_is(self._places.name(path)):
                entry = self._places.entry(path)
                if entry is None:
                    return None
                asked.add((places.SEARCHED, entry))
        return sorted(asked)

    def _is_as_it_was(self, seen: dependency_trace.DependencyTrace, digests: dict[str, str]) -> bool:
        """Whether nothing has changed that was asked, nor the sources with these digests."""
        return (
            all(places.digest_of(path) == digest for path, digest in digests.items())
            and all(dependencies.variable(name) == value for name, value in seen.variables.items())
            and all(self._is_generated(path) or seen.holds(ask, path) for ask, path in seen.reads)
        )

    def _name(self, bound: bool, questions: Questions, variables: Sequence[str]) -> str:
        """What a build is called that gets the answers of now."""
        answers = [self._places.answer(*question, exact=self._exact) for question in questions]
        values = [_value(name) for name in variables]
        return names.digest(self._key, bound and self._root, questions, answers, variables, values)

    def _index(self) -> Index:
        return _lists(self._store.get({self._key: list}).get(self._key))


def _value(name: str) -> str | None:
    return names.digest(sorted(os.environ)) if name == _NAMES else dependencies.variable(name)


def _lists(found: Any) -> Index:
    """The lists of questions in an index as it is kept; none of what is no such index."""
    try:
        return [
            (bool(bound), [(str(ask), str(name)) for ask, name in asked], list(map(str, variables)))
            for bound, asked, variables in found
        ]
    except (TypeError, ValueError):
        return []


def _knows_its_place(path: str) -> bool:
    """Whether what a file makes of itself may depend on where it lies: Python that asks, or machine code."""
    if not path.endswith(".py"):
        return path.endswith((".so", ".pyc"))
    try:
        with open(path, "rb") as file:
            return _PLACE.search(file.read()) is not None
    except OSError:
        return True


def above(path: str, root: str, name: str = "") -> Iterable[str]:
    """Each folder between a path and `root`; if `name` is given, what has that name in it."""
    folder = os.path.dirname(path)
    while folder != root and folder.startswith(f"{root}/"):
        yield os.path.join(folder, name) if name else folder
        folder = os.path.dirname(folder)
