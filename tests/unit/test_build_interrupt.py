"""Signals during a build raise one exception; other handlers stay."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from aotcuda.builder.worker import interrupt
from aotcuda.builder.worker.interrupt import NOTHING_WRITTEN, Interrupted
from aotcuda.errors import BuildError

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_raised_with_its_exit_status(number: signal.Signals) -> None:
    with pytest.raises(Interrupted, match=NOTHING_WRITTEN) as caught, interrupt.raised():
        os.kill(os.getpid(), number)
    assert caught.value.code == 128 + number


def test_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with interrupt.raised():
        assert signal.getsignal(signal.SIGTERM) not in before
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_another_handler_stays() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with interrupt.raised():
            os.kill(os.getpid(), signal.SIGTERM)
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_thread_installs_no_handlers() -> None:
    found = []

    def build() -> None:
        with interrupt.raised():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=build)
    thread.start()
    thread.join()
    assert found == [signal.SIG_DFL]


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (BuildError("it fails"), "aotcuda: it fails", 1),
        (Interrupted(NOTHING_WRITTEN), f"aotcuda: {NOTHING_WRITTEN}", 130),
    ],
)
def test_an_error_and_a_signal_end_the_build_in_one_line(error: BaseException, line: str, code: int) -> None:
    ended: list[tuple[str, int]] = []
    with interrupt.in_one_line(lambda text, status: ended.append((text, status))):
        raise error
    assert ended == [(line, code)]
