"""The steps of a build, taken from the cache where they were done before: units, merged functions, linked images.

Steps run in a worker, which has imported the sources by then; what they asked of the machine is known. So each result
is named by the content of all that it was made from, and nothing has to be asked again.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from aotcuda.builder.build_cache import names, remote
from aotcuda.builder.build_cache.names import NamelessError
from aotcuda.builder.build_cache.places import TELLING, Places, digest_of
from aotcuda.builder.build_cache.slices import Slices
from aotcuda.builder.build_cache.store import Store
from aotcuda.builder.frontends import read_functions
from aotcuda.builder.frontends.protocol import CompiledFunction, CompiledKernel
from aotcuda.builder.link import included_headers
from aotcuda.builder.worker import dependency_trace, pool, telemetry
from aotcuda.errors import AotcudaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aotcuda.arch import Target
    from aotcuda.builder.build_cache.settings import Settings
    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.protocol import LinkInput, Question, Unit
    from aotcuda.builder.worker.calls import Calls
    from aotcuda.builder.worker.dependency_trace import DependencyTrace
    from aotcuda.manifest import Source

    Names = Mapping[Any, Sequence[str]]


_OF_LINES = (b"lineno", b"traceback", b"extract_stack")
"""What a source has a word of that lets its values say in which line something stands."""


class Kept:
    """The cache of one worker's steps.

    Attributes:
        reused: How many results were taken.
        made: How many were made.
    """

    def __init__(self, settings: Settings | None, root: str, tools: Sequence[object]) -> None:
        """`root` is the project's folder; `tools` are the versions of what the worker has loaded."""
        self._store = Store(settings, _fetched, _sent) if settings is not None else None
        self._places = Places(root)
        self._root = Path(root)
        self._base = _base(settings, tools)
        self._warned = telemetry.warning_count()
        self._unwritten: list[tuple[dict[str, Any], str, dict[str, str]]] = []
        self.reused = 0
        self.made = 0

    @property
    def problems(self) -> tuple[str, ...]:
        """What the user should know of the cache."""
        return tuple(self._store.problems) if self._store is not None else ()

    @property
    def answers(self) -> bool:
        """Whether the cache's URL, if there is one, has answered."""
        return self._store is None or self._store.answers

    def find(self, named: Names, shape: Callable[[Any], Any]) -> dict[Any, Any]:
        """Return those results that are there, of those with names; any of a result's names will do.

        Second names are asked for where the first ones find nothing, since some of them take long to make.

        Args:
            named: The names.
            shape: Gives the type that a result must have, as annotations have it.
        """
        have: dict[Any, Any] = {}
        for number in range(max(map(len, named.values()), default=0) if self._store is not None else 0):
            wanted = {key: each[number] for key, each in named.items() if key not in have and number < len(each)}
            with dependency_trace.unnoted():  # a front end may look for what it keeps while sources are watched
                shapes = {name: shape(key) for key, name in wanted.items()}
                found = self._store.get(shapes) if self._store is not None and wanted else {}
            have |= {key: found[name] for key, name in wanted.items() if name in found}
        self.reused += len(have)
        return {key: have[key] for key in named if key in have}

    def absent(self, named: Names) -> set[Any]:
        """Those results that `find` would not find, as far as that is told without reading any."""
        store = self._store
        return {key for key, each in named.items() if store is None or all(map(store.lacks, each))}

    def keep(
        self,
        made: Mapping[Any, Any],
        named: Names,
        titles: Mapping[Any, str],
        kind: str,
        chosen: Mapping[Any, int | None] | None = None,
    ) -> None:
        """Keep results that were made, unless there were warnings: those would not come with what is taken.

        They are written by `write`.

        Args:
            made: The results.
            named: The names of those that may be kept.
            titles: What lists of the cache call them.
            kind: What they are.
            chosen: By which of its names each is kept, by its number; None if by none. By default by its first.
        """
        self.made += len(made)
        if self._store is None or telemetry.warning_count() > self._warned:
            return
        fresh = {}
        about = {}
        for key, value in made.items():
            number = (chosen[key] if chosen is not None else 0) if named.get(key) else None
            if number is not None:
                fresh[named[key][number]] = value
                about[named[key][number]] = titles[key]
        if fresh:
            self._unwritten.append((fresh, kind, about))

    def write(self) -> None:
        """Write what is to be kept."""
        unwritten, self._unwritten = self._unwritten, []
        for one in unwritten:
            if self._store is not None:
                self._store.put(*one)

    @property
    def has_unwritten(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._unwritten)

    @property
    def is_on(self) -> bool:
        """Whether anything is kept."""
        return self._store is not None

    def name(self, *made_from: object) -> tuple[str, ...]:
        """The name of a result, by what it is made from; nothing where that cannot be named."""
        if self._store is None or self._base is None:
            return ()
        try:
            return (names.digest(self._base, *made_from),)
        except NamelessError:
            return ()

    def name_with(self, inputs: Sequence[LinkInput], options: Options, *made_from: object) -> tuple[str, ...]:
        """The name of what is made from `inputs`, the headers of those that are CUDA C++, options, and more.

        Nothing where files may be read of which nobody knows.
        """
        if not self.is_on:
            return ()
        arguments = (inputs, self._root, options.include_dirs)
        if included_headers.hidden(*arguments, options.nvrtc_options):
            return ()
        items = [replace(item, folder=self._place(item)) for item in inputs]
        headers = [(self._places.name(str(path)), digest_of(str(path))) for path in included_headers.files(*arguments)]
        place = str(self._root) if included_headers.tell_their_place(inputs, self._root, options) else ""
        return self.name(*made_from, options, items, headers, place)

    def _place(self, item: LinkInput) -> str:
        """The folder of a link input, by a name that means the same elsewhere."""
        return self._places.name(item.folder) if item.kind == "cu" and item.folder else ""


def _base(settings: Settings | None, tools: Sequence[object]) -> str | None:
    """What is in every name, once for all of them; None if it cannot be named."""
    try:
        return names.digest(settings.facts, tools) if settings is not None else None
    except NamelessError:
        return None


class UnitNames:
    """The names of compiled units."""

    def __init__(
        self,
        kept: Kept,
        root: str,
        sources: Sequence[Source],
        trace: DependencyTrace | None,
        questions: Iterable[Question],
        beside: object,
        calls: Calls | None,
    ) -> None:
        """What the worker has imported.

        Args:
            kept: The cache.
            root: The project's folder.
            sources: The project's files that were imported.
            trace: What the import asked of the machine.
            questions: What it asked of a GPU.
            beside: What else all units depend on.
            calls: Which functions ran meanwhile; units have no names where that is not known.
        """
        self._kept = kept
        places = Places(root)
        python = {source["path"]: Path(source["path"]).read_bytes() for source in sources}
        own = {path: data for path, data in python.items() if path.endswith(".py")}
        self._paths = {os.path.realpath(path): places.name(path) for path in own}
        ran = self._named(calls.places if calls is not None else ())
        self._slices = Slices({places.name(path): data for path, data in own.items()}, ran)
        self._trace, self._python = trace, [*python]
        self._files = {places.name(path): names.digest(data) for path, data in python.items()}
        self._units: dict[Unit, tuple[str, ...]] = {}
        self._made_from: dict[tuple[Unit | None, bool], str] = {}
        self._lines = any(word in data for data in own.values() for word in _OF_LINES)
        self._root = root
        # Machine code may ask for anything.
        self._knows_its_place = len(own) < len(python) or (trace is not None and trace.placed)
        others = {name: digest for name, digest in self._files.items() if not name.endswith(".py")}
        asked, texts = (trace.reads, trace.texts) if trace is not None else ({}, set())
        reads = [
            (ask, places.name(path), places.answer(ask, places.name(path)))
            for ask, path in sorted(asked)
            if not (ask == "content" and path in own and path not in texts)
        ]
        variables = (trace.names, sorted(trace.variables.items())) if trace is not None else ()
        # Once for all units; nothing if it cannot be named.
        self._beside = kept.name(reads, variables, list(questions), beside, others)
        self._usable = (
            bool(self._beside)
            and trace is not None
            and _is_as_imported(trace, python)
            and calls is not None
            and calls.complete
        )

    def of(self, unit: Unit, target: Target) -> Sequence[str]:
        """The names of a unit's code: one for code that says nowhere where it stands in its file, and one for all."""
        if not self._usable:
            return ()
        if unit not in self._units:
            self._units[unit] = self._kept.name(unit)
        return _Names(partial(self._name, unit, target)) if self._units[unit] else ()

    def _name(self, unit: Unit, target: Target, number: int) -> str:
        (name,) = self._kept.name(
            "unit", self._units[unit], target, self._beside, self._sliced(unit, lines=number == 1 or _has_lines(unit))
        )
        return name

    def of_import(self) -> tuple[str, ...]:
        """What all units depend on: sources may have set a compiler's own options. Nothing where it is not known."""
        return self._kept.name("import", self._beside, self._sliced(None, lines=False)) if self._usable else ()

    def _sliced(self, unit: Unit | None, *, lines: bool) -> str:
        """What of the project's Python a unit depends on, or all units; the same for all targets."""
        if (unit, lines) not in self._made_from:
            called = _texts(unit) if unit is not None else []
            sliced = self._slices.of(called, lines=lines)
            place = self._root if self._knows_its_place or self._slices.mention(called, TELLING) else ""
            self._made_from[unit, lines] = names.digest(lines, place, self._files if sliced is None else sliced)
        return self._made_from[unit, lines]

    def is_current(self) -> bool:
        """Whether the project's Python is what was imported; a compiler may have read it again, for its syntax."""
        return self._trace is not None and _is_current(self._trace, self._python)

    def choose(self, unit: Unit, built: object, *, in_place: bool) -> int | None:
        """By which of its names a compiled unit is kept.

        By none if it has read files that nobody saw it read, was made of functions that its names do not have, or asked
        something of the machine while it was compiled.
        """
        if not isinstance(built, CompiledKernel | CompiledFunction) or any(item.folder for item in built.needed):
            return None
        if built.asked is not None or read_functions.UNSEEN in built.read:
            return None
        if not self._slices.hold(_texts(unit), self._named(built.read)):
            return None
        places = built.exceptions if isinstance(built, CompiledKernel) else built.warnings
        return 1 if in_place or self._lines or built.lined or built.externals or places else 0

    def _named(self, functions: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
        """Functions by their files' names, of those that are the project's."""
        files: dict[str, list[int]] = {}
        for file, line in functions:
            files.setdefault(file, []).append(line)
        names = ((self._paths.get(os.path.realpath(file)), lines) for file, lines in files.items())
        return {(name, line) for name, lines in names if name is not None for line in lines}


class _Names(Sequence[str]):
    """The two names of a unit's code, each made when it is asked for."""

    def __init__(self, make: Callable[[int], str]) -> None:
        self._make = functools.cache(make)

    def __len__(self) -> int:
        return 2

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[str, ...]: ...

    def __getitem__(self, at: int | slice) -> str | tuple[str, ...]:
        found = range(2)[at]
        return self._make(found) if isinstance(found, int) else tuple(map(self._make, found))


def _is_as_imported(trace: DependencyTrace, files: Iterable[str]) -> bool:
    """Whether nothing was edited since it was imported."""
    return _is_current(trace, files) and all(trace.holds(*each) for each in trace.reads)


def _is_current(trace: DependencyTrace, files: Iterable[str]) -> bool:
    return all(("content", path) in trace.reads and trace.holds("content", path) for path in files)


def _has_lines(unit: Unit) -> bool:
    """Whether its options have the code say where it stands; those in sources are told by their text."""
    return unit.options.lineinfo or unit.options.debug


_KEYS = ("key", "signature_key")
"""The fields of units, and of what is in them, that say where in the configuration they stand."""


def _texts(unit: Unit) -> list[str]:
    """What a unit is called, and whatever else it says of itself, but for the keys that it comes from."""
    found = (getattr(unit, name) for name in _fields(unit))
    return [text for value in found if isinstance(value, str | tuple) for text in _texts_in(value)]


def _texts_in(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts: Iterable[object] = value if isinstance(value, tuple) else (getattr(value, name) for name in _fields(value))
    return [text for part in parts for text in _texts_in(part)]


def _fields(value: object) -> list[str]:
    return [name for name in getattr(type(value), "__dataclass_fields__", ()) if name not in _KEYS]


def _fetched(url: str, wanted: list[str]) -> Any:
    """`remote.fetch` in a process of its own: what it loads starts threads, beside which no unit may be forked."""
    return _elsewhere(partial(remote.fetch, url, wanted), lambda problem: ({}, problem))


def _sent(url: str, packed: Any) -> Any:
    return _elsewhere(partial(remote.send, url, packed), lambda problem: problem)


def _elsewhere(work: Callable[[], Any], failed: Callable[[str], Any]) -> Any:
    try:
        return pool.run([pool.Task("the build cache", work)], 1, lambda _: None)[0]
    except AotcudaError as error:
        return failed(str(error))
