"""Write the last lines of a build's output: the summary, warnings about size, the GPU queries of the sources."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from aotcuda.builder.compile.telemetry import Step
    from aotcuda.builder.frontends.protocol import GpuQuery

_LIMIT = 100_000_000
"""Bytes of the largest file that the Python Package Index accepts by default."""

_NEAR = 0.9
"""A build warns from this part of the limit on: images are compressed already, and a wheel has other files."""

_SLOWEST = 10
"""The number of slowest steps that a verbose summary lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The counts and times of one build.

    Attributes:
        reused: Number of steps whose results came from the build cache; None without a cache.
        made: Number of steps that ran.
        whole: True if the complete build came from the cache.
        steps: The steps that ran, and the results from the build cache.
        code: Bytes of the machine code of each kernel, by module, symbol and target (`mypkg.kernels.axpy sm_90`).
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
    steps: tuple[Step, ...] = ()
    code: dict[str, int] = field(default_factory=dict)

    def lines(self, *, verbose: bool = False) -> list[str]:
        """Return the summary as one line, followed by the slowest steps if `verbose`."""
        parts = [_count_text(self.kernels, "kernel"), _count_text(self.functions, "device function")]
        text = (
            f"built {_count_text(self.modules, 'module')}: {', '.join(filter(None, parts)) or 'no kernel'} for "
            f"{_count_text(self.targets, 'target')}; {_bytes(self.size)} in {self.seconds:.1f} s"
        )
        if self.whole:
            text += "; all from the build cache"
        elif self.reused is not None:
            steps = self.reused + self.made
            text += f"; {self.reused} of {steps} step{'' if steps == 1 else 's'} from the build cache"
        steps_run = [step for step in self.steps if not step.cached]
        slowest = sorted(steps_run, key=lambda step: -step.seconds)[: _SLOWEST if verbose else 0]
        return [text, *(f"{step.seconds:6.2f} s  {step.title}" for step in slowest)]


def summary(built: Summary, *, verbose: bool = False, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the summary's lines; none if AOTCUDA_PROGRESS is 0, with the slowest steps if AOTCUDA_VERBOSE is 1."""
    if environ.get("AOTCUDA_PROGRESS") == "0":
        return []
    return built.lines(verbose=verbose or environ.get("AOTCUDA_VERBOSE") == "1")


def size_warnings(files: Mapping[str, bytes]) -> list[str]:
    """Return a warning if a build's files make a wheel too large for package indexes, with the largest files."""
    sizes = {name: len(data) for name, data in files.items()}
    return _near_limit("what was built", sum(sizes.values()), sizes)


def wheel_warnings(wheel: Path) -> list[str]:
    """Return a warning if a packed wheel is too large for package indexes, with the largest files as packed."""
    from zipfile import ZipFile  # noqa: PLC0415 (few wheels are near the limit)

    size = wheel.stat().st_size
    if size < _NEAR * _LIMIT:
        return []
    with ZipFile(wheel) as archive:
        return _near_limit(wheel.name, size, {item.filename: item.compress_size for item in archive.infolist()})


def _near_limit(subject: str, size: int, sizes: Mapping[str, int]) -> list[str]:
    if size < _NEAR * _LIMIT:
        return []
    largest = ", ".join(f"{name} {_bytes(sizes[name])}" for name in sorted(sizes, key=lambda name: -sizes[name])[:3])
    limit = f"package indexes usually refuse wheels of more than {_bytes(_LIMIT)}"
    advice = "name fewer targets in arch, leave data out, or spread the modules over several wheels"
    return [f"{subject} takes {_bytes(size)}, and {limit}: {largest}; {advice}"]


def gpu_queries(queries: Iterable[GpuQuery]) -> tuple[str, ...]:
    """Return a line for each GPU query that the sources made while they were imported, with its answers."""
    queries = list(queries)
    # A line that queries a property needs no second line about the presence of a GPU.
    reads_property = {query.place for query in queries if not query.is_presence_only}
    grouped: dict[tuple[str, str], list[GpuQuery]] = {}
    for item in queries:
        if not item.is_presence_only or item.place not in reads_property:
            grouped.setdefault((item.place, item.query), []).append(item)

    def order(group: tuple[tuple[str, str], list[GpuQuery]]) -> tuple[str, int, str]:
        (place, query), _ = group
        file, _, line = place.rpartition(":")
        return file, int(line), query

    return tuple(_query_text(place, query, items) for (place, query), items in sorted(grouped.items(), key=order))


def _query_text(place: str, query: str, answered: list[GpuQuery]) -> str:
    first = answered[0]
    if first.is_error:
        return f"{place} queried a GPU for {query}, got an error, since {first.answer}, and continued without an answer"
    answers = " or ".join(dict.fromkeys(item.answer for item in answered))
    suffix = ", by the target; sources were imported for each" if len(answered) > 1 and first.depends_on_target else ""
    return f"{place} queried a GPU for {query} and got the answer {answers}{suffix}"


def count_repeated(texts: Iterable[str]) -> list[str]:
    """Return each of `texts` once, in order, with its number of occurrences if there are several."""
    counts: dict[str, int] = {}
    for text in texts:
        counts[text] = counts.get(text, 0) + 1
    return [text if times == 1 else f"{text} ({times} times)" for text, times in counts.items()]


def _count_text(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}" if number else ""


def _bytes(number: int) -> str:
    unit = min(len(str(number)) - 1, 6) // 3
    return f"{number} B" if not unit else f"{number / 1000**unit:.1f} {'kM'[unit - 1]}B"
