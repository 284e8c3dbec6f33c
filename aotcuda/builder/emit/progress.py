"""Show the progress of a running build.

On a terminal this is a bar, or one line without rich; both disappear at the end. Elsewhere it is a line every few
seconds, so a log shows that the build runs, and a quick build prints nothing. Installers show it differently:
docs/build-systems.md.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TextIO

_EVERY = 5.0
"""Seconds from one line of a log to the next."""


class Progress:
    """A display that shows nothing, and the base class of displays."""

    def show(self, step: str, done: int, total: int, slowest: str = "") -> None:
        """Show a step; `total` is 0 if the number of steps is unknown. `slowest` is the slowest step so far."""

    def tick(self) -> None:
        """Refresh the display after a pause."""

    def clear(self) -> None:
        """Remove the display, at the end or before other output."""


class Estimate:
    """An estimate of the remaining seconds, by the steps that have ended."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: tuple[float, int] | None = None  # time and steps done at the first call

    def remaining(self, done: int, total: int) -> str:
        """Return the text with the remaining seconds, empty before an estimate is possible."""
        if not total or self._first is None or done < self._first[1]:
            self._first = (self._clock(), done) if total else None
            return ""
        start, first_done = self._first
        seconds = self._clock() - start
        if done - first_done < _LEAST_STEPS or seconds < _LEAST_SECONDS or done >= total:
            return ""
        return f"about {seconds / (done - first_done) * (total - done):.0f} s left"


_LEAST_STEPS = 3
_LEAST_SECONDS = 2.0
"""An estimate needs at least as many steps and seconds since the first call."""


class Line(Progress):
    """One line on a terminal that is overwritten."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._estimate = Estimate()

    def show(self, step: str, done: int, total: int, slowest: str = "") -> None:
        width = 80
        with suppress(OSError):
            width = os.get_terminal_size(self._stream.fileno()).columns or width
        text = _text(step, done, total, self._estimate.remaining(done, total), slowest)
        self._write(f"\r\x1b[2K{text[: width - 1]}")

    def clear(self) -> None:
        self._write("\r\x1b[2K")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class Lines(Progress):
    """A line every few seconds, in a log."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._start = clock()
        self._last_line_at = self._start
        self._text = ""
        self._estimate = Estimate(clock)

    def show(self, step: str, done: int, total: int, slowest: str = "") -> None:
        self._text = _text(step, done, total, self._estimate.remaining(done, total), slowest)
        self.tick()

    def tick(self) -> None:
        now = self._clock()
        if self._text and now - self._last_line_at >= _EVERY:
            self._last_line_at = now
            self._stream.write(f"{self._text}, {now - self._start:.0f} s\n")
            self._stream.flush()


class Bar(Progress):
    """A bar on a terminal.

    Raises:
        ImportError: rich is not installed (the extra `progress`).
    """

    def __init__(self, stream: TextIO) -> None:
        from rich import console, progress, table  # noqa: PLC0415 (an extra, and 0.1 s)

        self._bar = progress.Progress(
            progress.TextColumn("aotcuda"),
            progress.BarColumn(bar_width=24),
            progress.TextColumn("{task.fields[counter]}"),
            progress.TimeElapsedColumn(),
            # No markup: a signature has brackets. It may be long, and gets the width that the other columns leave.
            progress.TextColumn(
                "{task.description}",
                markup=False,
                table_column=table.Column(no_wrap=True, overflow="ellipsis", ratio=1),
            ),
            console=console.Console(file=stream, force_terminal=True),
            auto_refresh=False,  # it starts a thread, and a process with threads should not fork
            transient=True,
            expand=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task: Any = None
        self._estimate = Estimate()

    def show(self, step: str, done: int, total: int, slowest: str = "") -> None:
        if self._task is None:
            self._task = self._bar.add_task("", total=None, counter="")
        self._bar.start()
        remaining = self._estimate.remaining(done, total)
        counter = ", ".join(filter(None, [f"{done}/{total}" if total else "", remaining]))
        text = _text(step, 0, 0, slowest=slowest).removeprefix("aotcuda ")
        self._bar.update(self._task, description=text, completed=done, total=total or None, counter=counter)
        self._bar.refresh()

    def tick(self) -> None:
        if self._task is not None:
            self._bar.refresh()

    def clear(self) -> None:
        self._bar.stop()


def make(stream: TextIO | None, environ: Mapping[str, str] = os.environ) -> Progress:
    """Return the display for `stream`, as AOTCUDA_PROGRESS (`0` or `lines`) and the terminal decide.

    `stream` is None in a process without standard error.
    """
    setting = environ.get("AOTCUDA_PROGRESS", "")
    if setting == "0" or stream is None:
        return Progress()
    if setting == "lines" or not stream.isatty() or environ.get("TERM") == "dumb":
        return Lines(stream)
    try:
        return Bar(stream)
    except ImportError:
        return Line(stream)


def line(stream: TextIO | None) -> Progress:
    """Return the display of the JIT fallback: a line on a terminal, nothing elsewhere."""
    return Line(stream) if stream is not None and stream.isatty() else Progress()


def _text(step: str, done: int, total: int, remaining: str = "", slowest: str = "") -> str:
    counter = f"[{done}/{total}] " if total else ""
    parts = [remaining, _short(step), slowest and f"slowest: {_short(slowest)}"]
    return f"aotcuda {counter}" + ", ".join(filter(None, parts))


def _short(title: str) -> str:
    """Return the start and the end of a long title, which are the kernel and its target; signatures are between."""
    return title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 33]}...{title[-30:]}"


_LONGEST_TITLE = 120
