"""Which functions ran while something was imported, whoever called them."""

from __future__ import annotations

import _thread
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aotcuda.builder.worker.calls import Calls

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

HERE = Path(__file__).name


def plain() -> int:
    return 1


def by_c(value: int) -> int:
    return -value


def in_a_thread() -> None:
    plain()


class Called:
    def __getattr__(self, name: str) -> int:
        return len(name)


def generated() -> object:
    yield 1


def never() -> None:
    raise AssertionError


def lines(calls: Calls) -> set[int]:
    return {line for file, line in calls.places if Path(file).name == HERE}


def line(function: object) -> int:
    return int(function.__code__.co_firstlineno)  # type: ignore[attr-defined]


def test_what_runs_is_noted_by_whomever_it_is_called() -> None:
    calls = Calls()
    with calls.watching():
        plain()
        sorted([1, 2], key=by_c)
        list(generated())  # type: ignore[call-overload]
        _ = Called().anything
        thread = threading.Thread(target=in_a_thread)
        thread.start()
        thread.join()
    ran = [plain, by_c, generated, Called.__getattr__, in_a_thread]
    assert {*map(line, ran)} <= lines(calls)
    assert line(never) not in lines(calls)
    assert calls.complete


def test_a_module_is_no_function_in_its_first_line() -> None:
    calls = Calls()
    with calls.watching():
        exec(compile("def f():\n    pass\nf()\n", "called.py", "exec"), {})
        exec(compile("def f():\n    pass\n", "not_called.py", "exec"), {})
    assert ("called.py", 1) in calls.places
    assert "not_called.py" not in {file for file, _ in calls.places}


def test_nothing_is_noted_afterwards_and_everything_is_as_it_was() -> None:
    def another(frame: FrameType, event: str, argument: object) -> None:
        del frame, event, argument

    before = sys.getprofile()
    sys.setprofile(another)
    try:
        calls = Calls()
        with calls.watching():
            pass
        plain()
        assert sys.getprofile() is another
        assert line(plain) not in lines(calls)
    finally:
        sys.setprofile(before)
    assert threading.getprofile() is None


def test_it_is_told_when_somebody_else_watched_in_its_place() -> None:
    calls = Calls()
    with calls.watching():
        sys.setprofile(None)
    assert not calls.complete
    with calls.watching():
        pass
    assert not calls.complete


def profile_and_put_back() -> None:
    before = sys.getprofile()
    sys.setprofile(None)
    sys.setprofile(before)


def trace() -> None:
    before = sys.gettrace()
    sys.settrace(None)
    sys.settrace(before)


def start_unfollowed() -> None:
    done = threading.Lock()
    done.acquire()
    _thread.start_new_thread(done.release, ())
    done.acquire()


def start_followed_by_another() -> None:
    before = threading.getprofile()
    threading.setprofile(None)
    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    threading.setprofile(before)


since_312 = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python tells of new threads from 3.12 on")


@pytest.mark.parametrize(
    "step",
    [
        profile_and_put_back,
        trace,
        pytest.param(start_unfollowed, marks=since_312),
        pytest.param(start_followed_by_another, marks=since_312),
    ],
)
def test_it_is_told_where_calls_were_not_seen_for_a_while(step: Callable[[], None]) -> None:
    calls = Calls()
    with calls.watching():
        step()
    assert not calls.complete
    step()
    calls = Calls()
    with calls.watching():
        pass
    assert calls.complete


def test_functions_are_told_by_their_names_and_where_they_are() -> None:
    calls = Calls()
    with calls.watching():
        plain()
    folder = f"{Path(plain.__code__.co_filename).parent}/"
    assert calls.ran({"plain", "other"}, ("/elsewhere/", folder))
    assert not calls.ran({"other"}, (folder,))
    assert not calls.ran({"plain"}, ("/elsewhere/",))
