"""What importing the user's modules depends on beyond the project's own Python files.

A kernel is compiled with the values that its globals have after the import, and those may come from anywhere: another
package, a data file, the environment, whether a file is there at all. While the modules are imported, what they ask of
the machine is noted with the answers; a JIT build's result and an editable install are taken only while these are the
same. Three things tell of it:

- audit events: files that are opened (or were to be: an answer may be that there is none), folders that are listed;
- functions of `os` for which there are no events, such as `os.stat`, which stands behind `Path.exists`;
- the environment's mappings, and the finders of modules, which are asked for a module that is missing too.

Compilers run functions of the sources too (Numba's `@overload`, Triton's constants), so what those ask while units are
compiled is noted beside it.

What the compiler asks for its own purposes is left out: its version stands for it. So is what an import made itself, a
temporary file, say. What leaves no such trace (the time, the network, what C libraries read by themselves) is not seen.
"""

from __future__ import annotations

import functools
import glob
import importlib.machinery
import importlib.util
import os
import re
import sys
import sysconfig
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from aotcuda import manifest
from aotcuda.builder.worker import imports
from aotcuda.common import dependencies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import FrameType, ModuleType

    from aotcuda.common.dependencies import Answer

INSTALLED = frozenset(["site-packages", "dist-packages"])
"""Names of the folders that hold installed packages."""

_SYSTEM = ("/proc/", "/sys/", "/dev/")
_HERE = __file__
_IMPORTS = ("<frozen importlib", "<frozen zipimport")
_OF_LOADERS = frozenset(["get_data", "get_source", "get_resource_reader", "path_stats", "find_distributions"])
"""What anybody may ask a module's loader for, or a finder, beside modules."""
_OF_METADATA = frozenset(["children", "lookup"])
"""Functions of `importlib.metadata` by which it lists folders once and for all; who asks for what is noted instead."""
_OF_INSPECT = frozenset(["findsource", "getsource", "getsourcelines", "getsourcefile", "getblock", "getcomments"])
"""Functions of `inspect` that read sources by way of `linecache`.

The rest of the standard library has it read them for messages.
"""
TOOLCHAIN = ("cuda", "nvidia")
"""The packages of the toolchain's own."""
# Functions of the standard library that ask no more of a path than whether something is there, and of which kind.
_MERE_LOOKS = frozenset(
    [
        *(
            "exists",
            "lexists",
            "isfile",
            "isdir",
            "islink",
            "ismount",
            "realpath",
            "_joinrealpath",
            "samefile",
            "makedirs",
        ),
        *("is_file", "is_dir", "is_symlink", "is_mount", "is_junction", "resolve", "mkdir"),
        *("which", "_access_check", "glob", "iglob", "walk"),
    ]
)
_OF_FOLDER = ("getcwd", "getcwdb")
"""Functions of `os` that tell which folder the process runs in."""
_STANDARD_ARCHIVE = re.compile(r"/python3\d+\.zip$")
"""Where Python's own modules are looked for first, and hardly ever are."""
_SUPPORTS = ("supports_dir_fd", "supports_effective_ids", "supports_fd", "supports_follow_symlinks")
_SUFFIXES = (  # in the order in which a folder is searched
    *importlib.machinery.EXTENSION_SUFFIXES,
    *importlib.machinery.SOURCE_SUFFIXES,
    *importlib.machinery.BYTECODE_SUFFIXES,
)


@dataclass(slots=True)
class DependencyTrace:
    """What was asked, and what the answer was.

    Attributes:
        reads: Answers by question and absolute path; `aotcuda.common.dependencies` has the questions.
        versions: By path, what tells a file that was read from one that has come in its place since.
        variables: SHA-256 of each environment variable that was asked for, None for one that was not set.
        names: A digest of the names of all environment variables, if somebody asked which there are.
        texts: Python files that were read otherwise than to be imported, so that every character of them counts.
        placed: Somebody asked which folder it runs in, or code says in which folder headers lie.
    """

    reads: dict[tuple[str, str], Answer] = field(default_factory=dict)
    versions: dict[str, object] = field(default_factory=dict)
    variables: dict[str, str | None] = field(default_factory=dict)
    names: str | None = None
    texts: set[str] = field(default_factory=set)
    placed: bool = False

    def __bool__(self) -> bool:
        """Whether anything was asked."""
        return bool(self.reads or self.variables or self.names or self.texts or self.placed)

    @property
    def files(self) -> set[str]:
        """The files that were read."""
        return {path for ask, path in self.reads if ask == "content"}

    def note(self, reads: Mapping[tuple[str, str], Answer]) -> None:
        """Note questions, with their answers, that the build asks for itself."""
        self.reads |= reads

    def holds(self, ask: str, path: str) -> bool:
        """Whether the answer to a question is what it was, and a file that was read is that one still."""
        if ask == "content" and path in self.versions and version(path) != self.versions[path]:
            return False
        return dependencies.answer(ask, path) == self.reads[ask, path]


@contextmanager
def watch(
    patterns: Iterable[str] = (), generated: Iterable[str] = (), compilers: Iterable[str] = ()
) -> Iterator[DependencyTrace]:
    """Note what is imported and asked inside the block.

    Args:
        patterns: Absolute globs of more files to depend on, and on there being no others.
        generated: Modules that the wheel gains; nobody looks for them in files.
        compilers: Packages of the compiler's, beside the toolchain's own.
    """
    trace = _Trace(frozenset(generated), compilers)
    _traces[:] = [trace]
    sys.addaudithook(trace.audit)  # it cannot be taken away again
    with _hooked(trace) as modules:
        yield trace.seen
        trace.expand(patterns)
        trace.settle(modules())


@contextmanager
def again() -> Iterator[DependencyTrace]:
    """Note what functions of the sources ask inside the block, when a compiler runs them, if `watch` has not noted it.

    What was noted in earlier such blocks of this process is there too: a function that keeps what it has read, or a
    module that it imports, asks once. Where `watch` did not take notes, those are of imports alone.
    """
    if _traces:
        trace = _traces[0]
        trace.go_on()
        with _hooked(trace) as modules:
            yield trace.seen
            trace.settle(modules())
            trace.leave_known()
        return
    seen, before = DependencyTrace(), set(sys.modules)
    yield seen
    for name in set(sys.modules) - before:
        path = imports.file_of(sys.modules.get(name))
        if path is not None and not _is_ours(path) and not INSTALLED & {*path.split("/")}:
            seen.reads["content", path] = dependencies.answer("content", path)


@contextmanager
def unnoted() -> Iterator[None]:
    """What this thread asks inside the block is for aotcuda itself: what the build cache has is nobody's source."""
    with ExitStack() as stack:
        for trace in _traces:
            stack.enter_context(trace.alone())
        yield


_traces: list[_Trace] = []
"""What takes the notes of this process, or took them in one that this one was forked from; none or one."""


@contextmanager
def _hooked(trace: _Trace) -> Iterator[Callable[[], list[tuple[str, ModuleType | None]]]]:
    """A block in which a trace is told what is asked; gives what tells which modules were imported in it."""
    before = set(sys.modules)
    with ExitStack() as stack:
        stack.callback(trace.end)
        for name in ("stat", "lstat", "access", "readlink", "open", *_OF_FOLDER):
            stack.enter_context(_replaced(name, trace))
        stack.enter_context(_watched(trace))
        stack.enter_context(_found(trace))
        finder = _Finder(trace)
        sys.meta_path.insert(0, finder)
        stack.callback(_without, sys.meta_path, finder)
        yield lambda: [(name, sys.modules.get(name)) for name in set(sys.modules) - before]


def version(path: str | Path) -> object:
    """What changes of a file when it is written or replaced, even if it then has what it had; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def joined(several: Iterable[DependencyTrace]) -> DependencyTrace:
    """All that several saw; of two answers the first one counts, since the second one differs from it if it matters."""
    whole = DependencyTrace()
    for seen in several:
        for question, found in seen.reads.items():
            whole.reads.setdefault(question, found)
        for name, digest in seen.variables.items():
            whole.variables.setdefault(name, digest)
        for path, found_version in seen.versions.items():
            whole.versions.setdefault(path, found_version)
        whole.names = whole.names or seen.names
        whole.texts |= seen.texts
        whole.placed = whole.placed or seen.placed
    return whole


class _Trace:
    """Takes the notes.

    Attributes:
        seen: The notes.
        assigned: Environment variables that the import set itself.
        active: Whether notes are taken.
        known: What was noted before, as long as a compiler runs the sources' functions; None while they are imported.
    """

    def __init__(self, generated: frozenset[str], compilers: Iterable[str]) -> None:
        self.seen = DependencyTrace()
        self.assigned: set[str] = set()
        self.active = True
        self.known: DependencyTrace | None = None
        self.stat, self.readlink = os.stat, os.readlink  # as they are before they are replaced
        self._generated = generated
        self._sought: dict[str, list[str]] = {}
        self._made: set[str] = set()
        self._busy = threading.local()
        self._everything = False
        self._compilers = folders_of((*TOOLCHAIN, *compilers))

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The hook for audit events."""
        if not self.active:
            return
        note = _EVENTS.get(event)
        if note is not None:
            with self.alone() as first:
                if first:
                    note(self, *arguments)

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether this thread is not taking a note already, for which it asks things itself."""
        first = self.active and not getattr(self._busy, "now", False)
        if first:
            self._busy.now = True
        try:
            yield first
        finally:
            if first:
                self._busy.now = False

    def end(self) -> None:
        """Take no more notes."""
        self.active = False

    def go_on(self) -> None:
        """Take notes again, of what is asked while units are compiled."""
        if self.known is None:
            self.known, self.seen = self.seen, DependencyTrace()
        self.active = True

    def leave_known(self) -> None:
        """Leave out what was noted before."""
        known = self.known or DependencyTrace()
        for question in known.reads.keys() & self.seen.reads.keys():
            del self.seen.reads[question]
        for name in known.variables.keys() & self.seen.variables.keys():
            del self.seen.variables[name]
        self.seen.names = self.seen.names if self.seen.names != known.names else None
        self.seen.texts -= known.texts
        self.seen.placed = self.seen.placed and not known.placed

    def opened(self, name: object, mode: object, flags: object, dir_fd: int = -1) -> None:
        """A file is about to be opened."""
        path = _absolute(name, dir_fd)
        if path is None:
            return
        if _writes(mode, flags):
            self._made.add(path)
        if _reads(mode, flags):
            self.read(path)
            if path.endswith(".py") and ("content", path) in self.seen.reads and self._asker() is not None:
                self.seen.texts.add(path)

    def read(self, path: str, ask: str = "content", *, concerns: bool = False) -> None:
        """The content of a file is about to be read, if it is there; `concerns`: it is known to concern somebody."""
        if path.endswith(".pyc"):
            path = _source(path)
        if _is_ours(path) or path.startswith(self._compilers):
            return
        found = self._kind(path)
        if found == "file":
            # Compilers open what is theirs, wherever that lies.
            if concerns or self.known is None or self._concerns(sys._getframe()):  # noqa: SLF001 (its documented use)
                self._note(ask, path)
        elif found is None and self._asker() is not None:
            self._missing(path)

    def listed(self, name: object) -> None:
        """A folder is about to be listed."""
        path = _absolute("." if name is None else name)
        asker = self._asker() if path is not None and not _is_ours(f"{path}/") else None
        if path is None or asker is None or asker >= _OF_METADATA:
            return
        if self._kind(path) == "folder":
            self._note("names", path)
        else:
            self._missing(path)

    def asked(self, ask: str, name: object, dir_fd: int = -1) -> None:
        """`os.stat`, `os.lstat`, `os.access` or `os.readlink` is about to be called."""
        path = _absolute(name, dir_fd)
        asker = self._asker() if path is not None and not _is_ours(path) else None
        if path is None or asker is None:
            return
        found = self._kind(path)
        a_look = bool(asker & _MERE_LOOKS)
        if ask in ("lstat", "readlink") and self._leads_on(path):
            self._note("link", path)
        elif found is None:
            self._missing(path)
        elif ask.startswith("access:"):
            self._note(ask, path)
        elif ask == "stat" and found == "file" and not a_look:
            self._note("stat", path)
        elif ask == "stat" or not a_look:  # every folder on the way to a path is asked whether it is a link
            self._note("kind", path)

    def asked_where(self) -> None:
        """Somebody is about to ask which folder the process runs in."""
        self.seen.placed = self.seen.placed or self._asker() is not None

    def database(self, name: object) -> None:
        """SQLite is about to open a file, by itself; its journals belong to it."""
        text = os.fsdecode(name) if isinstance(name, bytes | str | os.PathLike) else ""
        if text.startswith("file:"):
            text = unquote(text[5:].partition("?")[0])
            text = f"/{text.partition('/')[2]}" if text.startswith("//") else text
        path = _absolute(text) if text and text != ":memory:" else None
        if path is not None:
            self.read(path)
            for suffix in ("-wal", "-journal"):
                self._note("filled", path + suffix)

    def library(self, name: object) -> None:
        """A shared library is about to be loaded."""
        if isinstance(name, str | bytes) and "/" in os.fsdecode(name):
            path = _absolute(name)
            if path is not None and self._asker() is not None:
                self.read(path)

    def imported(self, _: object, name: object, *__: object) -> None:
        """A module is about to be imported; of those in C the event names the file."""
        path = _absolute(name)
        if path is not None:
            self.read(path)

    def distributions(self, name: str | None, folders: Iterable[str]) -> None:
        """Somebody asks which distributions are installed, or for one."""
        if self._asker() is None:
            return
        for folder in [os.path.abspath(folder or ".") for folder in folders]:
            found = self._kind(folder)
            if _is_ours(f"{folder}/") or _STANDARD_ARCHIVE.search(folder):
                continue
            if found == "folder":
                self._note(f"distributions:{dependencies.plain(name or '')}", folder)
            elif found == "file":
                self.read(folder)
            else:
                self._missing(folder)

    def made(self, *names: object) -> None:
        """The import makes or removes something itself; what a path is afterwards is no answer of the machine's."""
        self._made |= {path for path in map(_absolute, names) if path is not None}

    def sought(self, name: str, folders: Iterable[str]) -> None:
        """A module is looked for in `folders`."""
        if name not in self._generated and (self.known is None or self._concerns(sys._getframe())):  # noqa: SLF001 (its documented use)
            self._sought.setdefault(name, [os.path.abspath(folder or ".") for folder in folders])

    def variable(self, name: str, value: str | None) -> None:
        """An environment variable was asked for."""
        if self.active and name not in self.assigned and name not in self.seen.variables and self._asker() is not None:
            digest = None if value is None else manifest.digest(value.encode(errors="surrogateescape"))
            self.seen.variables[name] = digest

    def all_variables(self, names: Iterable[str]) -> None:
        """Somebody asked which environment variables there are."""
        if self.active and self.seen.names is None and self._asker() is not None:
            self.seen.names = manifest.digest("\0".join(sorted(names)).encode(errors="surrogateescape"))

    def expand(self, patterns: Iterable[str]) -> None:
        """Depend on the files that match."""
        self._everything = True
        for pattern in patterns:
            for path in glob.glob(pattern, recursive=True, include_hidden=True):
                with self.alone():
                    self.read(os.path.normpath(path))
        self._everything = False

    def settle(self, modules: Iterable[tuple[str, ModuleType | None]]) -> None:
        """Add what shows at the end: files of modules that are there, places where others were looked for in vain."""
        with self.alone():
            for name, module in modules:
                path = imports.file_of(module)
                if path is not None and (self.known is None or name in self._sought):
                    self.read(os.path.abspath(path), concerns=True)
            for name, folders in list(self._sought.items()):  # at once: the sources' threads may import still
                self._looked_for(name, folders)
            for question in [question for question in list(self.seen.reads) if self._is_made(question[1])]:
                self._again(*question)

    def _looked_for(self, name: str, folders: list[str]) -> None:
        """Note where a module would have been found earlier than where it was found, or at all."""
        top, _, tail = name.rpartition(".")
        for folder in folders:
            installed = bool(INSTALLED & set(folder.split("/")))
            if _is_ours(f"{folder}/") or (installed and top):
                continue
            if not os.path.isdir(folder):
                if not _STANDARD_ARCHIVE.search(folder):
                    self.seen.reads.setdefault(("kind", folder), dependencies.answer("kind", folder))
                continue
            base = os.path.join(folder, tail)
            places = [f"{base}/__init__.py" if os.path.isdir(base) else base, *(base + suffix for suffix in _SUFFIXES)]
            there = next((place for place in places if self._kind(place) == "file"), None)
            if there is None or not installed:
                for place in places[: places.index(there) if there else None]:
                    self.seen.reads.setdefault(("module", place), None)
            if there is not None:
                return

    def _note(self, ask: str, path: str) -> None:
        if (ask, path) not in self.seen.reads:
            if ask == "content":
                self.seen.versions[path] = version(path)
            self.seen.reads[ask, path] = dependencies.answer(ask, path)

    def _missing(self, path: str) -> None:
        """There is nothing at a path; where it leads by symbolic links, something may come to be as well."""
        for place in {path, os.path.realpath(path)}:
            self._note("kind", place)

    def _kind(self, path: str) -> str | None:
        try:
            return dependencies.kind(self.stat(path))
        except (OSError, ValueError):
            return None

    def _leads_on(self, path: str) -> bool:
        try:
            self.readlink(path)
        except OSError:
            return False
        return True

    def _is_made(self, path: str) -> bool:
        while path not in self._made:
            above = os.path.dirname(path)
            if above == path:
                return False
            path = above
        return True

    def _again(self, ask: str, path: str) -> None:
        """Something that the import made: what is left of it stays as it is until the next import, the rest is gone."""
        self.seen.versions.pop(path, None)
        found = dependencies.answer(ask, path)
        if found is None and self.seen.reads[ask, path] is not None:
            del self.seen.reads[ask, path]
        else:
            self.seen.reads[ask, path] = found

    def _asker(self) -> set[str] | None:
        """The functions of the standard library by which something is asked; None where nobody asks whom it concerns.

        The compiler and aotcuda ask for themselves; what the finders of modules look for is noted as such.
        """
        between: set[str] = set()
        if self._everything:
            return between
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 (its documented use)
        first, lines, directly = True, False, False
        while frame is not None:
            file = frame.f_code.co_filename
            if file != _HERE:
                if file.startswith(_IMPORTS):
                    if first and frame.f_code.co_name not in _OF_LOADERS:
                        return None
                elif file.startswith("<frozen ") or _is_standard(file):
                    directly = file.endswith("/linecache.py")  # as far as the frame is the last one of the library's
                    lines = lines or directly
                    between.add(frame.f_code.co_name)
                    first = False
                elif file.startswith((_AOTCUDA, *self._compilers)) or not (self.known is None or self._concerns(frame)):
                    return None
                else:
                    break
            frame = frame.f_back
        return between if not lines or directly or between & _OF_INSPECT else None

    def _concerns(self, frame: FrameType | None) -> bool:
        """Whether what runs in a frame, while units are compiled, is of the sources' doing.

        Compilers import much of what they need when they first need it, and that may ask for anything while it is
        imported. It is whoever imports a module that decides, but for the project's own, which entry points may name.
        """
        found: bool | None = None
        while frame is not None:
            file, name = frame.f_code.co_filename, frame.f_code.co_name
            if file != _HERE and not file.startswith("<frozen ") and not _is_standard(file):
                if file.startswith(_AOTCUDA):
                    break
                compilers = file.startswith(self._compilers)
                if name == "<module>" and not compilers and not INSTALLED & {*file.split("/")}:
                    return True
                if name == "<module>":
                    found = None
                elif found is None:
                    found = not compilers
            frame = frame.f_back
        return bool(found)


class _Finder:
    """First of `sys.meta_path`: finds nothing, and notes what is looked for."""

    def __init__(self, trace: _Trace) -> None:
        self.trace = trace

    def find_spec(self, fullname: str, path: Iterable[str] | None = None, target: object = None) -> None:
        del target
        self.trace.sought(fullname, list(sys.path if path is None else path))

    def invalidate_caches(self) -> None:
        pass


class _Noting:
    """A function of `os` that notes what it is asked; like the function, it is no method where a class has it."""

    def __init__(self, name: str, original: Callable[..., Any], trace: _Trace) -> None:
        functools.update_wrapper(self, original)
        self._name = name
        self._original = original
        self._trace = trace

    def __call__(self, *args: Any, **named: Any) -> Any:
        with self._trace.alone() as first:
            if first and self._name in _OF_FOLDER:
                self._trace.asked_where()
            elif first and (args or "path" in named):
                _note_call(self._trace, self._name, *args, **named)
        if self._name == "open" and named.get("dir_fd") is not None:
            with self._trace.alone():  # the event of this call has a path that does not tell where it begins
                return self._original(*args, **named)
        return self._original(*args, **named)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_of_os, (self._name,))


def _of_os(name: str) -> Any:
    return getattr(os, name)


@contextmanager
def _replaced(name: str, trace: _Trace) -> Iterator[None]:
    """A function of `os`, replaced by one that notes what it is asked."""
    original: Callable[..., Any] = getattr(os, name)
    noting = _Noting(name, original, trace)
    setattr(os, name, noting)
    able = [found for which in _SUPPORTS if original in (found := getattr(os, which))]
    for found in able:
        found.add(noting)
    try:
        yield
    finally:
        setattr(os, name, original)
        for found in able:
            found.discard(noting)


def _note_call(trace: _Trace, function: str, path: object, *args: Any, dir_fd: int | None = None, **named: Any) -> None:
    base = -1 if dir_fd is None else dir_fd
    if function == "open":
        if dir_fd is not None:
            trace.opened(path, None, args[0] if args else named.get("flags"), base)
        return
    ask = f"access:{args[0] if args else named.get('mode')}" if function == "access" else function
    if function == "stat" and named.get("follow_symlinks") is False:
        ask = "lstat"
    trace.asked(ask, path, base)


@contextmanager
def _watched(trace: _Trace) -> Iterator[None]:
    """`os.environ` and `os.environb`, noting what is asked for.

    `get`, `in` and `getenv` all end in `[]`, and `keys`, `items` and `copy` begin with `iter`.
    """
    kind: Any = type(os.environ)
    get, assign, delete = kind.__getitem__, kind.__setitem__, kind.__delitem__
    iterate, count, show = kind.__iter__, kind.__len__, kind.__repr__

    def getting(self: Any, name: Any) -> Any:
        try:
            value = get(self, name)
        except KeyError:
            trace.variable(os.fsdecode(name), None)
            raise
        trace.variable(os.fsdecode(name), os.fsdecode(value))
        return value

    def assigning(self: Any, name: Any, value: Any) -> None:
        assign(self, name, value)
        trace.assigned.add(os.fsdecode(name))

    def deleting(self: Any, name: Any) -> None:
        getting(self, name)  # whether it is there shows
        delete(self, name)
        trace.assigned.add(os.fsdecode(name))

    def iterating(self: Any) -> Iterator[Any]:
        trace.all_variables(map(os.fsdecode, iterate(self)))
        found: Iterator[Any] = iterate(self)
        return found

    def counting(self: Any) -> int:
        trace.all_variables(map(os.fsdecode, iterate(self)))
        number: int = count(self)
        return number

    def showing(self: Any) -> str:
        dict(self)  # all names and values show
        text: str = show(self)
        return text

    kind.__getitem__, kind.__setitem__, kind.__delitem__ = getting, assigning, deleting
    kind.__iter__, kind.__len__, kind.__repr__ = iterating, counting, showing
    try:
        yield
    finally:
        kind.__getitem__, kind.__setitem__, kind.__delitem__ = get, assign, delete
        kind.__iter__, kind.__len__, kind.__repr__ = iterate, count, show


@contextmanager
def _found(trace: _Trace) -> Iterator[None]:
    """The finder of distributions, noting what is asked for: it lists a folder once in a process."""
    finder: Any = metadata.MetadataPathFinder
    original = vars(finder)["find_distributions"]

    def find_distributions(cls: Any, context: metadata.DistributionFinder.Context = _ANY) -> Any:
        with trace.alone() as first:
            if first:
                trace.distributions(context.name, context.path)
        return original.__get__(None, cls)(context)

    finder.find_distributions = classmethod(find_distributions)
    try:
        yield
    finally:
        finder.find_distributions = original


_ANY = metadata.DistributionFinder.Context()


def _without(items: list[Any], item: object) -> None:
    """Remove an item, unless somebody else has."""
    items[:] = [one for one in items if one is not item]


def _absolute(name: object, dir_fd: object = -1) -> str | None:
    """A path as it can be asked for from anywhere, with the symbolic links that are in it; None if it is none."""
    try:
        if isinstance(name, int):
            path = os.readlink(f"/proc/self/fd/{name}")
            return path if path.startswith("/") else None
        path = os.fsdecode(name)  # type: ignore[arg-type]
        if not path.startswith("/"):
            base = os.readlink(f"/proc/self/fd/{dir_fd}") if isinstance(dir_fd, int) and dir_fd >= 0 else os.getcwd()
            path = os.path.join(base, path)
        if "/../" in f"{path}/":  # above what a link leads to, not above the link
            path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    except (TypeError, OSError, ValueError):
        return None
    return None if "\0" in path else os.path.normpath(path)


def _source(path: str) -> str:
    """The source of a file of bytecode, if it is there."""
    try:
        source = importlib.util.source_from_cache(path)
    except ValueError:
        source = path[:-1]
    return source if os.path.isfile(source) else path


def _writes(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and flags & os.O_ACCMODE != os.O_RDONLY


def _reads(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return "r" in mode or ("a" in mode and "+" in mode)
    return not isinstance(flags, int) or (flags & os.O_ACCMODE != os.O_WRONLY and not flags & (os.O_TRUNC | os.O_EXCL))


def _is_ours(path: str) -> bool:
    """Whether a file is Python's, aotcuda's, or none at all; versions stand for those."""
    return path.startswith((*_SYSTEM, _AOTCUDA)) or _is_standard(path)


def _is_standard(path: str) -> bool:
    # Installed packages lie below the standard library's folder.
    return path.startswith(_STANDARD) and not INSTALLED & set(path.split("/"))


def folders_of(packages: Iterable[str]) -> tuple[str, ...]:
    """The folders of packages that have been imported."""
    found = (sys.modules.get(name) for name in packages)
    return tuple(f"{folder}/" for package in found for folder in getattr(package, "__path__", ()))


_EVENTS: dict[str, Callable[..., None]] = {
    "open": _Trace.opened,
    "os.listdir": _Trace.listed,
    "os.scandir": _Trace.listed,
    "sqlite3.connect": _Trace.database,
    "ctypes.dlopen": _Trace.library,
    "import": _Trace.imported,
    "os.mkdir": lambda trace, path, *_: trace.made(path),
    "os.remove": lambda trace, path, *_: trace.made(path),
    "os.rmdir": lambda trace, path, *_: trace.made(path),
    "os.truncate": lambda trace, path, *_: trace.made(path),
    "os.rename": lambda trace, source, target, *_: trace.made(source, target),
    "os.link": lambda trace, _, target, *__: trace.made(target),
    "os.symlink": lambda trace, _, target, *__: trace.made(target),
}
_AOTCUDA = f"{Path(manifest.__file__).resolve().parents[1]}/"
_STANDARD = tuple(
    f"{folder}/"
    for name in ("stdlib", "platstdlib")
    for folder in dict.fromkeys([sysconfig.get_path(name), os.path.realpath(sysconfig.get_path(name))])
)
