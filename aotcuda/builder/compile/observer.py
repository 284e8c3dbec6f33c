"""Observe the reads of the project's code while it is imported, and while a compiler runs functions of it.

The observer sees four audit events (`open`, `os.listdir`, `os.scandir`, and modules that are imported), and the
variables that are read from `os.environ`. It records an event if a function of the project is on the stack, so reads
through libraries count. The project's code is every file that is not installed, and not part of Python or aotcuda; it
includes other projects' editable installs. For an imported package that is installed, the time of its installation is
recorded.

Nothing else is traced or replaced. docs/many-machines.md lists the reads that the observer misses.
"""

from __future__ import annotations

import glob
import os
import sys
import sysconfig
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda import registry
from aotcuda.builder.compile import imports
from aotcuda.builder.link import inputs
from aotcuda.builder.project.files import INSTALLED
from aotcuda.common.stamp import ALL_NAMES, Stamp, answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

_SYSTEM = ("/proc/", "/sys/", "/dev/")
_AOTCUDA = f"{Path(registry.__file__).resolve().parent}/"
_BUILDER = f"{_AOTCUDA}builder/"
_STANDARD = tuple(
    f"{folder}/"
    for name in ("stdlib", "platstdlib")
    for folder in dict.fromkeys([sysconfig.get_path(name), os.path.realpath(sysconfig.get_path(name))])
)
_HERE = __file__
_LINKED = inputs.__file__
"""The file of the builder that reads linked files, whose names may be in Python code."""


class Observer:
    """Record the reads of the project's code."""

    def __init__(self, own: Iterable[str]) -> None:
        """Install the observer.

        `own` are the folders and files of the project, which are in site-packages during a JIT build.
        """
        self.seen = Stamp()
        self.is_on = False
        self._own = tuple(own)
        self._written: set[str] = set()
        self._rewritten: set[str] = set()
        self._kinds: dict[str, str] = {}
        self._assigned: set[str] = set()
        self._busy = threading.local()
        sys.addaudithook(self._audit)  # Python cannot remove it

    @contextmanager
    def observing(self) -> Iterator[Stamp]:
        """Observe the block, and record its reads in a new stamp."""
        self.seen = Stamp()
        before = set(sys.modules)
        # Other threads may use the mappings meanwhile, so that their content stays where it is.
        mappings: tuple[Any, ...] = (os.environ, os.environb)
        kinds = [type(mapping) for mapping in mappings]
        _Variables.observer = self
        for mapping in mappings:
            mapping.__class__ = _Variables
        self.is_on = True
        try:
            yield self.seen
        finally:
            self.is_on = False
            for path in self._rewritten:  # what the project itself writes into a file is no edit
                if ("file", path) in self.seen.reads:
                    self.seen.reads["file", path] = answer("file", path)
            for mapping, kind in zip(mappings, kinds, strict=True):
                mapping.__class__ = kind
            self._add_modules(set(sys.modules) - before)

    def record_variable(self, name: str) -> None:
        """Record that an environment variable is read; `ALL_NAMES` stands for the names of all variables."""
        if self.is_on and name not in self._assigned and name not in self.seen.variables and self._reads_directly():
            with self._recording() as is_outermost:
                if is_outermost:
                    self.seen.add_variable(name)

    def record_assigned(self, name: str) -> None:
        """Record that the project sets a variable, whose value then does not depend on the machine."""
        if self.is_on:
            self._assigned.add(name)

    def concerns(self, path: str) -> bool:
        """Return True for a path of this project, or of another project that is not installed."""
        for own in self._own:
            if path.startswith(own):
                return INSTALLED.isdisjoint(path[len(own) :].split("/"))
        is_excluded = path.startswith((*_SYSTEM, _AOTCUDA, *_STANDARD))
        return not is_excluded and INSTALLED.isdisjoint(path.split("/"))

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.is_on or event not in _EVENTS:
            return
        with self._recording() as is_outermost:
            if is_outermost:
                getattr(self, _EVENTS[event])(*arguments)

    def _record_open(self, name: object, mode: object, flags: object) -> None:
        path = _absolute(name)
        if path is None:
            return
        # The import system reads a module's file for the code that imports the module.
        if _reads(mode, flags) and self._is_new("file", path) and (_is_import() or self._project_is_on_the_stack()):
            self.seen.add_question("file", path)
        if _writes(mode, flags):
            self._rewritten.add(path)
        if _creates(path, mode, flags):
            self._written.add(path)

    def _record_listing(self, name: object) -> None:
        path = _absolute("." if name is None else name)
        if path is not None and self._is_new("names", path) and not _is_import() and self._project_is_on_the_stack():
            self.seen.add_question("names", path)

    def _record_creation(self, *names: object) -> None:
        path = _absolute(names[0] if len(names) < 4 else names[1])
        if path is not None and not os.path.isdir(path):
            self._written.add(path)
            self._rewritten.add(path)

    def _is_new(self, question: str, path: str) -> bool:
        """Return True for a path that is new, concerns the project, and was not written by the project itself."""
        if path.endswith(".pyc") or (question, path) in self.seen.reads or not self.concerns(path):
            return False
        above = path
        while above not in self._written and os.path.dirname(above) != above:
            above = os.path.dirname(above)
        return above not in self._written

    def _project_is_on_the_stack(self) -> bool:
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 (its documented use)
        while frame is not None:
            file = frame.f_code.co_filename
            if file == _LINKED:  # packaged modules are in the stamp of their readers
                return frame.f_code.co_name == inputs.from_file.__name__
            if file != _HERE and file.startswith(_BUILDER):
                return False  # frames below belong to the start of the worker
            if self._kind(file) == "project":
                return True
            frame = frame.f_back
        return False

    def _reads_directly(self) -> bool:
        """Return True if all frames between the project's code and `os.environ` are the standard library's."""
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 (its documented use)
        while frame is not None and self._kind(frame.f_code.co_filename) == "standard":
            frame = frame.f_back
        return frame is not None and self._kind(frame.f_code.co_filename) == "project"

    def _kind(self, file: str) -> str:
        if file not in self._kinds:
            if file == _HERE or file.startswith("<") or _is_standard(file):
                self._kinds[file] = "standard"
            else:
                self._kinds[file] = "project" if self.concerns(os.path.abspath(file)) else "other"
        return self._kinds[file]

    def _add_modules(self, names: Iterable[str]) -> None:
        for name in names:
            path = imports.file_of(sys.modules.get(name))
            if path is None or path.endswith(".pyc"):
                continue
            path = os.path.abspath(path)
            if self.concerns(path):
                self.seen.add_question("file", path)
            elif "." not in name and not INSTALLED.isdisjoint(path.split("/")):
                self.seen.add_question("status", path)

    @contextmanager
    def _recording(self) -> Iterator[bool]:
        """Yield True unless this thread records a read already, because recording itself reads files."""
        is_outermost = not getattr(self._busy, "now", False)
        self._busy.now = True
        try:
            yield is_outermost
        finally:
            if is_outermost:
                self._busy.now = False


class _Variables(type(os.environ)):  # type: ignore[misc]  # its name is private
    """The class of `os.environ` and `os.environb` while the project's code runs: it records the variables."""

    observer: Observer

    def __getitem__(self, name: Any) -> Any:
        self.observer.record_variable(_text(name))
        return super().__getitem__(name)

    def __setitem__(self, name: Any, value: Any) -> None:
        super().__setitem__(name, value)
        self.observer.record_assigned(_text(name))

    def __delitem__(self, name: Any) -> None:
        self.observer.record_variable(_text(name))
        super().__delitem__(name)
        self.observer.record_assigned(_text(name))

    def __iter__(self) -> Iterator[Any]:
        self.observer.record_variable(ALL_NAMES)
        yield from super().__iter__()


def _text(name: Any) -> str:
    """Return the name of a variable; names of other types raise an error in the mapping itself."""
    return os.fsdecode(name) if isinstance(name, str | bytes) else ""


_EVENTS = {
    "open": "_record_open",
    "os.listdir": "_record_listing",
    "os.scandir": "_record_listing",
    "os.mkdir": "_record_creation",
    "os.rename": "_record_creation",
}
"""The last two events show files that the project itself writes, such as temporary files, which are not inputs."""


_observers: list[Observer] = []
"""The observer of this process, which forked children inherit; none or one."""


@contextmanager
def observing(own: Iterable[str], patterns: Iterable[str], variables: Iterable[str]) -> Iterator[Stamp]:
    """Record the reads of the project's code in the block.

    The stamp also depends on the files that match the absolute globs `patterns`, on there being no others, and on the
    variables whose names match `variables`.
    """
    observer = Observer(own)
    _observers[:] = [observer]
    with observer.observing() as seen:
        yield seen
    add_matches(seen, patterns)
    for name in variables:
        seen.add_variable(name)


def add_matches(stamp: Stamp, patterns: Iterable[str]) -> None:
    """Add the files that match absolute globs, and the folders in which a new file may match."""
    for pattern in patterns:
        paths = glob.glob(pattern, recursive=True, include_hidden=True) if glob.has_magic(pattern) else [pattern]
        for path in paths:
            if not os.path.isdir(path):
                stamp.add_question("file", os.path.normpath(path))
            if not os.path.isfile(path):  # a path that does not exist may become a folder
                stamp.add_question("names", os.path.normpath(path))
        above = pattern
        while glob.has_magic(above):
            above = os.path.dirname(above)
            is_glob = glob.has_magic(above)
            for folder in glob.glob(above, recursive=True, include_hidden=True) if is_glob else [above]:
                path = os.path.normpath(folder)
                if (os.path.isdir(path) or not is_glob) and os.path.basename(path) != "__pycache__":
                    stamp.add_question("names", path)


@contextmanager
def compiling() -> Iterator[Stamp]:
    """Record the reads of functions that a compiler runs in the block, if the build is observed."""
    if not _observers:
        yield Stamp()
        return
    with _observers[0].observing() as seen:
        yield seen


def _is_import() -> bool:
    """Return True if Python's import system opens a file or lists a folder."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 (its documented use)
    while frame is not None and frame.f_code.co_filename == _HERE:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(("<frozen importlib", "<frozen zipimport"))


def _absolute(name: object) -> str | None:
    """Return an absolute path; None for objects that are not paths, such as a descriptor."""
    if isinstance(name, int):
        return None
    try:
        path = os.path.abspath(os.fsdecode(name))  # type: ignore[arg-type]
    except (TypeError, OSError, ValueError):
        return None
    return None if "\0" in path else path


def _reads(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return "r" in mode or ("+" in mode and "a" in mode)
    return not isinstance(flags, int) or (flags & os.O_ACCMODE != os.O_WRONLY and not flags & (os.O_TRUNC | os.O_EXCL))


def _creates(path: str, mode: object, flags: object) -> bool:
    """Return True if the project creates a file, or removes its content.

    Python opens a folder to create a temporary file without a name, which does not count.
    """
    empties = "w" in mode if isinstance(mode, str) else isinstance(flags, int) and bool(flags & os.O_TRUNC)
    return _writes(mode, flags) and (not os.path.lexists(path) or (empties and not os.path.isdir(path)))


def _writes(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and flags & os.O_ACCMODE != os.O_RDONLY


def _is_standard(path: str) -> bool:
    # Installed packages are below the standard library's folder.
    return path.startswith(_STANDARD) and INSTALLED.isdisjoint(path.split("/"))
