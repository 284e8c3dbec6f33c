"""Python's warnings and the seconds of each step, collected in the worker and its children.

A child returns its collected warnings and times with its result. The build prints warnings at the end, because they
would interrupt the display of progress, and compilers repeat warnings for each target.
"""

from __future__ import annotations

import time
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from aotcuda.builder.frontends import error_table

if TYPE_CHECKING:
    from collections.abc import Iterator


Work = tuple[tuple[str, str, str], ...]
"""The kernels and functions that a step serves: module, symbol and target of each."""


class Step(NamedTuple):
    """A step that has ended, or a result of the build cache with the seconds that another machine needed for it."""

    title: str
    seconds: float
    work: Work = ()
    cached: bool = False


@dataclass(slots=True)
class Telemetry:
    """Collected warnings and times."""

    warnings: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


_collected = Telemetry()


def take() -> Telemetry:
    """Return the warnings and times that this process has collected since the last call."""
    global _collected
    collected, _collected = _collected, Telemetry()
    return collected


def warning_count() -> int:
    """Return the number of warnings that this process has collected since the last `take`."""
    return len(_collected.warnings)


def add(others: Telemetry) -> None:
    """Add what a child has collected."""
    _collected.warnings.extend(others.warnings)
    _collected.steps.extend(others.steps)


def seconds_by_unit() -> dict[tuple[str, str], float]:
    """Return the seconds of each unit, by module and symbol; steps for several units count in equal parts."""
    seconds: dict[tuple[str, str], float] = {}
    for step in _collected.steps:
        for module, symbol, _ in step.work:
            seconds[module, symbol] = seconds.get((module, symbol), 0.0) + step.seconds / len(step.work)
    return seconds


def add_cached(work: Work, seconds: float = 0.0) -> None:
    """Add a result from the build cache."""
    _collected.steps.append(Step("", seconds, work, cached=True))


def slowest() -> Step | None:
    """Return the slowest of the collected steps that serve units."""
    return max(
        (step for step in _collected.steps if step.work and not step.cached),
        key=lambda step: step.seconds,
        default=None,
    )


@contextmanager
def step(title: str, work: Work = ()) -> Iterator[None]:
    """Time a block that is a step, also if it fails."""
    start = time.monotonic()
    try:
        yield
    finally:
        _collected.steps.append(Step(title, time.monotonic() - start, work))


class Phases:
    """The worker's own steps; a step ends when the next one begins."""

    def __init__(self) -> None:
        self._open: tuple[str, float] | None = None

    def begin(self, title: str | None) -> None:
        """Begin the next step; None ends the current step, because children do the work from now on."""
        now = time.monotonic()
        if self._open is not None and self._open[0] != title:
            previous, start = self._open
            _collected.steps.append(Step(previous, now - start))
            self._open = None
        if title is not None and self._open is None:
            self._open = (title, now)


@contextmanager
def collecting_warnings(root: str) -> Iterator[None]:
    """Collect the warnings of a block instead of printing them; paths are relative to `root` or to a package."""

    def collect(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object) -> None:
        text = f"{filename}:{lineno}: {category.__name__}: {message}"
        _collected.warnings.append(error_table.strip_machine_details(error_table.relative(text, root)))

    original = warnings.showwarning
    warnings.showwarning = collect  # type: ignore[assignment]  # its documentation allows a replacement
    try:
        yield
    finally:
        warnings.showwarning = original
