"""What is noted beside results, in the worker and its children: Python's warnings, and how long each step took.

A child hands on what it has noted with its result. Warnings are not printed as they come: a source's would be mixed
with progress, and a compiler's come once for each target.
"""

from __future__ import annotations

import time
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(slots=True)
class Observations:
    """Notes.

    Attributes:
        warnings: Python's, each as often as it came.
        steps: The title of each step that has ended, and its seconds.
    """

    warnings: list[str] = field(default_factory=list)
    steps: list[tuple[str, float]] = field(default_factory=list)


_noted = Observations()


def take() -> Observations:
    """All that was noted in this process since it was taken last."""
    global _noted
    taken, _noted = _noted, Observations()
    return taken


def warned() -> int:
    """How many warnings were noted in this process since they were taken last."""
    return len(_noted.warnings)


def add(others: Observations) -> None:
    """Take over what a child has noted."""
    _noted.warnings.extend(others.warnings)
    _noted.steps.extend(others.steps)


@contextmanager
def step(title: str) -> Iterator[None]:
    """A block that is a step, whether or not it succeeds."""
    start = time.monotonic()
    try:
        yield
    finally:
        _noted.steps.append((title, time.monotonic() - start))


def undo() -> Callable[[], None]:
    """What forgets all that is noted after this call."""
    warned, steps = len(_noted.warnings), len(_noted.steps)

    def forget() -> None:
        del _noted.warnings[warned:], _noted.steps[steps:]

    return forget


class Phases:
    """The worker's own steps: each ends when the next one begins."""

    def __init__(self) -> None:
        self._open: tuple[str, float] | None = None

    def begin(self, title: str | None) -> None:
        """The next one begins; None: children do the work now."""
        now = time.monotonic()
        if self._open is not None and self._open[0] != title:
            before, start = self._open
            _noted.steps.append((before, now - start))
            self._open = None
        if title is not None and self._open is None:
            self._open = (title, now)


@contextmanager
def noting_warnings(root: str) -> Iterator[None]:
    """A block whose warnings are noted, with the paths of files from the folder `root` on, and not printed."""

    def note(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object) -> None:
        path = Path(filename)
        shown = path.relative_to(root) if path.is_relative_to(root) else path
        _noted.warnings.append(f"{shown}:{lineno}: {category.__name__}: {message}")

    before = warnings.showwarning
    warnings.showwarning = note  # type: ignore[assignment]  # documented to be replaced
    try:
        yield
    finally:
        warnings.showwarning = before
