"""Which Python functions ran while the sources were imported.

The build cache leaves out of a unit's name what the unit cannot reach (`build_cache/slices.py`), and texts alone do not
tell what runs: a library is told a function's name by a data file, C code looks one up, a plug-in is found by its entry
point. So it is watched. Python tells one profiler of a thread at a time, and none of what tracers and other such hooks
run; so it is noticed where somebody sets one.
"""

from __future__ import annotations

import functools
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from types import FrameType


@dataclass(slots=True)
class Calls:
    """What ran in a block.

    Attributes:
        complete: Whether all of it was seen: nobody else watched calls in its place, or ran what nobody is told of.
    """

    complete: bool = True
    _seen: set[tuple[str, int, str]] = field(default_factory=set)

    @property
    def places(self) -> frozenset[tuple[str, int]]:
        """The file and the first line of each function, as their code has them; a decorator's line is the first.

        A module's own code is none: it begins in the first line, where a function may begin as well.
        """
        return frozenset((file, line) for file, line, name in self._seen if name != "<module>")

    def ran(self, names: Collection[str], folders: tuple[str, ...]) -> bool:
        """Whether a function of one of those names ran, of a file below one of those folders."""
        return any(name in names and file.startswith(folders) for file, _, name in self._seen)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch what is called in the block, by its threads too."""
        see = self._seen.add

        def note(frame: FrameType, event: str, _: object) -> None:
            if event == "call":
                code = frame.f_code
                see((code.co_filename, code.co_firstlineno, code.co_name))

        before, of_threads = sys.getprofile(), threading.getprofile()
        threading.setprofile(note)
        sys.setprofile(note)
        _listen()
        _watching.append((self, note))
        try:
            yield
        finally:
            _watching.pop()
            self.complete = self.complete and sys.getprofile() is note
            sys.setprofile(before)
            threading.setprofile(of_threads)


_watching: list[tuple[Calls, object]] = []
"""What watches now, and its profiler; the innermost is the last."""

_HOOKS = ("sys.setprofile", "sys.settrace", "sys.monitoring.register_callback", "sys.addaudithook")
"""Events of setting what is told of calls in the profiler's place, or runs without its being told."""

_THREADS = ("_thread.start_new_thread", "_thread.start_joinable_thread")
"""Those of threads, of which Python tells from 3.12 on."""


@functools.cache
def _listen() -> None:
    sys.addaudithook(_audit)  # it cannot be taken away again


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if not _watching or (event not in _HOOKS and event not in _THREADS):
        return
    calls, note = _watching[-1]
    if event in _THREADS:
        seen = getattr(arguments[0], "__func__", None) is _BOOTSTRAP
    else:  # a thread of `threading` sets what it has been told to
        seen = event == "sys.setprofile" and sys._getframe(1).f_code is _SETTING  # noqa: SLF001 (its documented use)
    if not seen or threading.getprofile() is not note:
        calls.complete = False


_BOOTSTRAP: Any = threading.Thread._bootstrap  # type: ignore[attr-defined]  # noqa: SLF001 (what every thread begins with)
_SETTING: Any = threading.Thread._bootstrap_inner.__code__  # type: ignore[attr-defined]  # noqa: SLF001 (what that calls)
