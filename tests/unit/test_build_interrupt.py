"""Signals while something is built: one exception, once; and other programs' handlers are theirs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from aotcuda.builder.worker.interrupt import NOTHING_WRITTEN, Guard, Interrupted, check

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_raised_with_its_exit_status(number: signal.Signals) -> None:
    with pytest.raises(Interrupted, match=NOTHING_WRITTEN) as caught, Guard():
        os.kill(os.getpid(), number)
    assert caught.value.code == 128 + number


def test_handlers_are_given_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with Guard():
        assert signal.getsignal(signal.SIGTERM) not in before
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_only_the_first_signal_is_raised() -> None:
    with pytest.raises(Interrupted) as caught, Guard():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            tidied = True
    assert tidied
    assert caught.value.code == 128 + signal.SIGTERM


def test_an_exception_that_was_lost_is_raised_where_the_build_asks() -> None:
    class Finalised:
        def __del__(self) -> None:
            with suppress(KeyboardInterrupt):  # as Python itself does, with a line on standard error
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted) as caught, Guard():
        Finalised()
        check()
    assert caught.value.code == 128 + signal.SIGTERM
    check()


def test_an_exit_that_was_lost_in_another_programs_code_is_made_up_for(capsys: pytest.CaptureFixture[str]) -> None:
    class Finalised:
        def __del__(self) -> None:
            with suppress(SystemExit):
                os.kill(os.getpid(), signal.SIGTERM)

    guard = Guard()
    guard.on(quietly=True)
    try:
        Finalised()
        with pytest.raises(SystemExit) as caught, guard:
            pytest.fail("it went on")
    finally:
        guard.off()
    assert caught.value.code == 128 + signal.SIGTERM
    assert capsys.readouterr().err == f"aotcuda: {NOTHING_WRITTEN}\n"


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None])
def test_a_signal_that_somebody_handles_is_left_to_them(handler: object) -> None:
    before = signal.signal(signal.SIGTERM, handler)
    try:
        with Guard():
            os.kill(os.getpid(), signal.SIGTERM)
            assert signal.getsignal(signal.SIGTERM) == handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_thread_takes_no_signals() -> None:
    found = []

    def build() -> None:
        with Guard():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=build)
    thread.start()
    thread.join()
    assert found == [signal.SIG_DFL]


def test_quietly_a_signal_is_a_line_and_the_end_with_exit_handlers_run() -> None:
    code = (
        "import atexit, os, signal; from aotcuda.builder.worker.interrupt import Guard;"
        "atexit.register(print, 'tidied'); Guard().on(quietly=True); os.kill(os.getpid(), signal.SIGTERM); print('no')"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (143, "tidied\n", f"aotcuda: {NOTHING_WRITTEN}\n")
