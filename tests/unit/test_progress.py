"""Test the progress, the summary and the warnings of a build."""

from __future__ import annotations

import dataclasses
import io
import sys

import pytest

from aotcuda.builder.compile.telemetry import Step
from aotcuda.builder.emit import progress, report


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_log_has_a_line_every_five_seconds() -> None:
    log, clock = io.StringIO(), Clock()
    lines = progress.Lines(log, clock)
    lines.tick()
    lines.show("starting the compiler", 0, 0)
    for second in range(1, 13):
        clock.now = 100 + second
        lines.show(f"kernel {second}", second, 40) if second < 9 else lines.tick()
    lines.clear()
    assert log.getvalue() == (
        "aotcuda [5/40] about 35 s left, kernel 5, 5 s\naotcuda [8/40] about 32 s left, kernel 8, 10 s\n"
    )


def test_a_long_signature_does_not_fill_a_log() -> None:
    log, clock = io.StringIO(), Clock()
    lines = progress.Lines(log, clock)
    title = f"mypkg.ops.norm({'i32, ' * 200}) for sm_90a"
    clock.now += 6
    lines.show(title, 1, 40, f"{title} 2.5 s")
    assert len(log.getvalue()) < 300
    assert log.getvalue().count("mypkg.ops.norm(i32, ") == 2
    assert "i32, ) for sm_90a, slowest: " in log.getvalue()
    assert "i32, ) for sm_90a 2.5 s, 6 s\n" in log.getvalue()


@pytest.mark.parametrize(
    ("stream", "environ", "expected"),
    [
        pytest.param(Terminal(), {}, progress.Bar, marks=pytest.mark.needs("rich")),
        (Terminal(), {"TERM": "dumb"}, progress.Lines),
        (Terminal(), {"AOTCUDA_PROGRESS": "lines"}, progress.Lines),
        (io.StringIO(), {}, progress.Lines),
        (io.StringIO(), {"AOTCUDA_PROGRESS": "0"}, progress.Progress),
        (None, {"AOTCUDA_PROGRESS": "lines"}, progress.Progress),
    ],
)
def test_progress_has_the_form_that_the_stream_can_show(
    stream: io.StringIO | None, environ: dict[str, str], expected: type[progress.Progress]
) -> None:
    assert type(progress.make(stream, environ)) is expected


def test_terminal_without_rich_has_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    terminal = Terminal()
    line = progress.make(terminal, {})
    line.show("x" * 100, 3, 7)
    assert terminal.getvalue() == f"\r\x1b[2Kaotcuda [3/7] {'x' * 65}"
    line.clear()
    assert terminal.getvalue().endswith("x\r\x1b[2K")
    assert type(progress.line(io.StringIO())) is progress.Progress


SUMMARY = report.Summary(
    modules=2,
    kernels=12,
    functions=1,
    targets=6,
    seconds=14.26,
    size=1_234_567,
    steps=(Step("a for sm_80", 0.5), Step("b for sm_80", 2.25), *(Step(f"n{number}", 0.01) for number in range(20))),
)


def test_summary_has_the_slowest_steps_on_demand() -> None:
    line = "built 2 modules: 12 kernels, 1 device function for 6 targets; 1.2 MB in 14.3 s"
    assert report.summary(SUMMARY, environ={}) == [line]
    (empty,) = report.summary(dataclasses.replace(SUMMARY, kernels=0, functions=0), environ={})
    assert empty.startswith("built 2 modules: no kernel for 6 targets; ")
    assert report.summary(SUMMARY, environ={"AOTCUDA_PROGRESS": "0"}, verbose=True) == []
    for lines in (
        report.summary(SUMMARY, environ={}, verbose=True),
        report.summary(SUMMARY, environ={"AOTCUDA_VERBOSE": "1"}),
    ):
        assert lines[:4] == [line, "  2.25 s  b for sm_80", "  0.50 s  a for sm_80", "  0.01 s  n0"]
        assert len(lines) == 11


def test_too_large_wheel_gives_a_warning() -> None:
    files = {"pkg/k.py": b"x", "pkg/k.aotcuda/kernels.fatbin": bytes(89_999_998)}
    assert report.size_warnings(files) == []
    (text,) = report.size_warnings(files | {"pkg/j.aotcuda/functions.fatbin": bytes(2_500)})
    assert ": pkg/k.aotcuda/kernels.fatbin 90.0 MB, pkg/j.aotcuda/functions.fatbin 2.5 kB, pkg/k.py 1 B; name" in text
