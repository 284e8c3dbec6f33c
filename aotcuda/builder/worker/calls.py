"""Which Python functions ran while the sources were imported.

The build cache leaves out of a unit's name what the unit cannot reach (`build_cache/slices.py`), and texts alone do not
tell what runs: a library is told a function's name by a data file, C code looks one up, a plug-in is found by its entry
point. So it is watched.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


@dataclass(slots=True)
class Calls:
    """What ran in a block.

    Attributes:
        complete: Whether all of it was seen: nobody else watched calls in its place.
    """

    complete: bool = True
    _seen: set[tuple[str, int, str]] = field(default_factory=set)

    @property
    def places(self) -> frozenset[tuple[str, int]]:
        """The file and the first line of each function, as their code has them; a decorator's line is the first.

        A module's own code is none: it begins in the first line, where a function may begin as well.
        """
        return frozenset((file, line) for file, line, name in self._seen if name != "<module>")

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
        try:
            yield
        finally:
            self.complete = self.complete and sys.getprofile() is note
            sys.setprofile(before)
            threading.setprofile(of_threads)
