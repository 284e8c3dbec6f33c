"""What a build shows while it runs, and the line that it ends with.

On a terminal a bar, or without rich one line that is written over and over; both are gone at the end. Anywhere else a
line every few seconds, so that a log tells that the build lives, and a quick build says nothing. Front ends differ in
what becomes of it: docs/howto.md, "See what a build is doing".
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path
    from typing import TextIO

_EVERY = 5.0
"""Seconds from one line of a log to the next."""

_LIMIT = 100_000_000
"""Bytes of the largest file that the Python Package Index takes, unless it was asked for more."""

_NEAR = 0.9
"""From which part of it on a wheel is near it: images are compressed already, and there is more in a wheel."""

_SLOWEST = 10
"""How many of the slowest steps are told."""


class Progress:
    """Shows nothing; those that show something override all of it."""

    def show(self, step: str, done: int, total: int) -> None:
        """A step was done, or has begun; `total` is 0 where nobody knows how many there are."""

    def tick(self) -> None:
        """Nothing has happened for a while."""

    def clear(self) -> None:
        """There is nothing more to show, or something else is about to be written."""


class Line(Progress):
    """One line on a terminal that is written over and over."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, step: str, done: int, total: int) -> None:
        """See Progress."""
        width = 80
        with suppress(OSError):
            width = os.get_terminal_size(self._stream.fileno()).columns or width
        self._write(f"\r\x1b[2K{_text(step, done, total)[: width - 1]}")

    def clear(self) -> None:
        """See Progress."""
        self._write("\r\x1b[2K")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class Lines(Progress):
    """A line every few seconds, in a log.

    Args:
        stream: The log.
        clock: Seconds.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._start = clock()
        self._said = self._start
        self._text = ""

    def show(self, step: str, done: int, total: int) -> None:
        """See Progress."""
        self._text = _text(step, done, total)
        self.tick()

    def tick(self) -> None:
        """See Progress."""
        now = self._clock()
        if self._text and now - self._said >= _EVERY:
            self._said = now
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
            # No markup: a signature has brackets. It may be long, and has what the others leave.
            progress.TextColumn(
                "{task.description}",
                markup=False,
                table_column=table.Column(no_wrap=True, overflow="ellipsis", ratio=1),
            ),
            console=console.Console(file=stream, force_terminal=True),
            auto_refresh=False,  # by a thread, beside which nothing should be forked
            transient=True,
            expand=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task: Any = None

    def show(self, step: str, done: int, total: int) -> None:
        """See Progress."""
        if self._task is None:
            self._task = self._bar.add_task("", total=None, counter="")
        self._bar.start()
        counter = f"{done}/{total}" if total else ""
        self._bar.update(self._task, description=step, completed=done, total=total or None, counter=counter)
        self._bar.refresh()

    def tick(self) -> None:
        """See Progress."""
        if self._task is not None:
            self._bar.refresh()

    def clear(self) -> None:
        """See Progress."""
        self._bar.stop()


def make(stream: TextIO | None, environ: Mapping[str, str] = os.environ) -> Progress:
    """What to show on `stream`: nothing if AOTCUDA_PROGRESS is 0, lines if it is `lines` or that is no terminal.

    A process that was started without a stream has None for it.
    """
    wanted = environ.get("AOTCUDA_PROGRESS", "")
    if wanted == "0" or stream is None:
        return Progress()
    if wanted == "lines" or not stream.isatty() or environ.get("TERM") == "dumb":
        return Lines(stream)
    try:
        return Bar(stream)
    except ImportError:
        return Line(stream)


def line(stream: TextIO | None) -> Progress:
    """What the JIT fallback shows, in programs of others: a line on a terminal, nothing anywhere else."""
    return Line(stream) if stream is not None and stream.isatty() else Progress()


def _text(step: str, done: int, total: int) -> str:
    counter = f"[{done}/{total}] " if total else ""
    return f"aotcuda {counter}{step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a build did.

    Attributes:
        modules: How many modules it built.
        kernels: How many kernels those have, by name.
        functions: How many exported functions.
        targets: How many targets, of all modules together.
        seconds: How long it took.
        size: Bytes of all its files.
        reused: Results of its steps that it took from the build cache; None if it has none.
        made: Those that it made itself.
        whole: All of it came from there at once.
        steps: Each step with its seconds, as it ran.
    """

    modules: int
    kernels: int
    functions: int
    targets: int
    seconds: float
    size: int
    reused: int | None = None
    made: int = 0
    whole: bool = False
    steps: tuple[tuple[str, float], ...] = ()

    def lines(self, *, verbose: bool = False) -> list[str]:
        """The summary, in a line; if `verbose`, one more for each of the slowest steps."""
        parts = [_count(self.kernels, "kernel"), _count(self.functions, "device function")]
        text = (
            f"built {_count(self.modules, 'module')}: {', '.join(filter(None, parts))} for "
            f"{_count(self.targets, 'target')}; {_size(self.size)} in {self.seconds:.1f} s"
        )
        if self.whole:
            text += "; all from the build cache"
        elif self.reused is not None:
            steps = self.reused + self.made
            text += f"; {self.reused} of {steps} step{'' if steps == 1 else 's'} from the build cache"
        slowest = sorted(self.steps, key=lambda step: -step[1])[: _SLOWEST if verbose else 0]
        return [text, *(f"{seconds:6.2f} s  {title}" for title, seconds in slowest)]


def report(summary: Summary, *, verbose: bool = False, environ: Mapping[str, str] = os.environ) -> list[str]:
    """The lines that a build ends with: none if AOTCUDA_PROGRESS is 0, the slowest steps if AOTCUDA_VERBOSE is 1."""
    if environ.get("AOTCUDA_PROGRESS") == "0":
        return []
    return summary.lines(verbose=verbose or environ.get("AOTCUDA_VERBOSE") == "1")


def size_warnings(files: Mapping[str, bytes]) -> list[str]:
    """What to say of files that make a wheel too large for package indexes, with those that take the most room."""
    sizes = {name: len(data) for name, data in files.items()}
    return _near_limit("what was built", sum(sizes.values()), sizes)


def wheel_warnings(wheel: Path) -> list[str]:
    """The same of a wheel that is whole, whatever is in it; of files the size that they have there."""
    from zipfile import ZipFile  # noqa: PLC0415 (by a wheel that is near the limit alone)

    size = wheel.stat().st_size
    if size < _NEAR * _LIMIT:
        return []
    with ZipFile(wheel) as archive:
        return _near_limit(wheel.name, size, {item.filename: item.compress_size for item in archive.infolist()})


def _near_limit(what: str, size: int, sizes: Mapping[str, int]) -> list[str]:
    if size < _NEAR * _LIMIT:
        return []
    taking = ", ".join(f"{name} {_size(sizes[name])}" for name in sorted(sizes, key=lambda name: -sizes[name])[:3])
    limit = f"package indexes usually refuse wheels of more than {_size(_LIMIT)}"
    advice = "name fewer targets in arch, leave data out, or spread the modules over several wheels"
    return [f"{what} takes {_size(size)}, and {limit}: {taking}; {advice}"]


def counted(texts: Iterable[str]) -> list[str]:
    """Each of `texts` once, in their order, with how often it came if that is more than once."""
    found: dict[str, int] = {}
    for text in texts:
        found[text] = found.get(text, 0) + 1
    return [text if times == 1 else f"{text} ({times} times)" for text, times in found.items()]


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}" if number else ""


def _size(number: int) -> str:
    unit = min(len(str(number)) - 1, 6) // 3
    return f"{number} B" if not unit else f"{number / 1000**unit:.1f} {'kM'[unit - 1]}B"
