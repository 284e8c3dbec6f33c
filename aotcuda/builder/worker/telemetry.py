"""Python's warnings and the seconds of each step, collected in the worker and its children.

A child returns what it collected with its result. Warnings are not printed as they come: a source's would be mixed with
progress, and a compiler's come once for each target.
"""

from __future__ import annotations

import time
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aotcuda.builder.frontends import error_table

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True)
class Telemetry:
    """Collected warnings and times."""

    warnings: list[str] = field(default_factory=list)
    steps: list[tuple[str, float]] = field(default_factory=list)


_collected = Telemetry()


def take() -> Telemetry:
    """Return all that this process has collected since the last call."""
    global _collected
    taken, _collected = _collected, Telemetry()
    return taken


def warning_count() -> int:
    """Return the number of warnings that this process has collected since the last `take`."""
    return len(_collected.warnings)


def add(others: Telemetry) -> None:
    """Add what a child has collected."""
    _collected.warnings.extend(others.warnings)
    _collected.steps.extend(others.steps)


@contextmanager
def step(title: str) -> Iterator[None]:
    """Time a block that is a step, whether or not it succeeds."""
    start = time.monotonic()
    try:
        yield
    finally:
        _collected.steps.append((title, time.monotonic() - start))


class Phases:
    """The worker's own steps: each ends when the next one begins."""

    def __init__(self) -> None:
        self._open: tuple[str, float] | None = None

    def begin(self, title: str | None) -> None:
        """Begin the next step; with None, children do the work from now on."""
        now = time.monotonic()
        if self._open is not None and self._open[0] != title:
            before, start = self._open
            _collected.steps.append((before, now - start))
            self._open = None
        if title is not None and self._open is None:
            self._open = (title, now)


@contextmanager
def collecting_warnings(root: str) -> Iterator[None]:
    """Collect the warnings of a block instead of printing them; paths are relative to `root` or to a package."""

    def collect(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object) -> None:
        text = f"{filename}:{lineno}: {category.__name__}: {message}"
        _collected.warnings.append(error_table.shed(error_table.relative(text, root)))

    before = warnings.showwarning
    warnings.showwarning = collect  # type: ignore[assignment]  # documented to be replaced
    try:
        yield
    finally:
        warnings.showwarning = before
