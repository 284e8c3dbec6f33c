"""Tasks in forked children: fresh state, order, crashes, and errors told together."""

from __future__ import annotations

import faulthandler
import os
import pickle
import select
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aotcuda.builder import failures
from aotcuda.builder.worker import flows, pool
from aotcuda.builder.worker.pool import Task
from aotcuda.errors import BuildError, CompileError, ConfigError, LinkError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable

# Test runners have threads; from Python 3.12 on, forking beside them warns. The worker that uses the pool has none.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

STATE: list[int] = []


def ignore(task: Task) -> None:
    del task


def run(*tasks: Task, jobs: int = 2) -> list[object]:
    return flows.run(tasks, jobs, ignore)


def failing(error: Exception, title: str = "task", key: str = "") -> Task:
    def fail() -> None:
        raise error

    return Task(title, fail, key)


def test_results_come_in_the_order_of_the_tasks_however_they_end() -> None:
    reading, writing = os.pipe()
    first = Task("waits for the second", lambda: os.read(reading, 1))
    second = Task("lets the first go", lambda: os.write(writing, b"x"))
    assert run(first, second) == [b"x", 1]
    os.close(reading)
    os.close(writing)


def test_each_task_starts_from_the_state_of_the_parent() -> None:
    def remember() -> list[int]:
        STATE.append(1)
        return STATE

    tasks = [Task(str(number), remember) for number in range(4)]
    assert run(*tasks, jobs=1) == [[1]] * 4
    assert STATE == []


def test_no_more_than_the_given_number_run_at_a_time(tmp_path: Path) -> None:
    def count() -> int:
        mark = tmp_path / str(os.getpid())
        mark.touch()
        running = len(list(tmp_path.iterdir()))
        mark.unlink()
        return running

    assert set(run(*[Task(str(number), count) for number in range(8)], jobs=1)) == {1}
    assert max(run(*[Task(str(number), count) for number in range(8)], jobs=3)) <= 3


def test_error_of_a_task_is_raised() -> None:
    with pytest.raises(LinkError, match=r"^it cannot be linked$"):
        run(Task("good", int), failing(LinkError("it cannot be linked")))


def test_first_error_is_whole_and_others_are_lines_below_it() -> None:
    tasks = [
        failing(CompileError("one\n    in detail")),
        Task("good", int),
        failing(LinkError("two\n    in detail")),
        failing(CompileError("one\n    for another target")),
    ]
    with pytest.raises(CompileError) as caught:
        run(*tasks, jobs=4)
    assert str(caught.value) == "one\n    in detail\ntwo"


def test_a_crash_takes_one_child_and_is_told_by_key_task_and_signal() -> None:
    def crash() -> None:
        faulthandler.disable()  # the test runner's, which would report it as its own
        os.kill(os.getpid(), signal.SIGSEGV)

    with pytest.raises(BuildError) as caught:
        run(Task("mypkg.k.axpy for sm_80", crash, key="tool.aotcuda.axpy"), failing(LinkError("another")))
    first, second = str(caught.value).splitlines()
    assert first.startswith("tool.aotcuda.axpy: mypkg.k.axpy for sm_80: the compiler crashed (SIGSEGV); ")
    assert second == "another"


def test_a_child_that_the_system_killed_is_not_called_a_crash() -> None:
    with pytest.raises(
        BuildError, match=r"^a task: the compiler was killed \(SIGKILL\), as systems do that run out of "
    ):
        run(Task("a task", lambda: os.kill(os.getpid(), signal.SIGKILL)))


def test_a_child_that_ends_without_a_result_is_told_with_its_status() -> None:
    with pytest.raises(BuildError, match=r"^a task: the compiler ended without a result \(exit status 3\)$"):
        run(Task("a task", lambda: os._exit(3)))


def test_an_error_that_nobody_foresaw_is_told_by_its_type(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BuildError) as caught:
        run(failing(ZeroDivisionError("by zero"), title="a task"))
    assert str(caught.value) == "a task: ZeroDivisionError: by zero (AOTCUDA_DEBUG=1 shows where)"
    assert capfd.readouterr().err == ""


def descriptors() -> set[int]:
    return {int(path.name) for path in Path("/proc/self/fd").iterdir()}


def for_each_new_descriptor(do: Callable[[int], object]) -> Callable[[], None]:
    """A task that does something with each descriptor that it has open and this process, the test runner's, has not."""
    here = descriptors()

    def task() -> None:
        for number in descriptors() - here:
            with suppress(OSError):  # the one that the folder was read by is closed again; some are for reading
                do(number)

    return task


@pytest.mark.parametrize("data", [b"x", b"\n" * 100, b"\0" * 48, pickle.dumps("a string")])
def test_a_task_that_writes_into_the_pipe_of_results_is_an_error(data: bytes) -> None:
    with pytest.raises(BuildError, match=r"^a task: code of the project wrote to, or closed, file descriptors that "):
        run(Task("a task", for_each_new_descriptor(lambda number: os.write(number, data))))


@pytest.mark.parametrize("lose", [os.close, lambda number: os.dup2(2, number)], ids=["closes", "replaces"])
def test_a_task_that_loses_its_pipe_is_an_error(lose: Callable[[int], object]) -> None:
    with pytest.raises(BuildError, match=r"^a task: the compiler ended without a result "):
        run(Task("a task", for_each_new_descriptor(lose)))


def test_a_process_that_a_task_leaves_behind_with_its_pipe_holds_nothing_up(tmp_path: Path) -> None:
    def leave() -> str:
        if (pid := os.fork()) == 0:
            signal.pause()
        (tmp_path / "pid").write_text(str(pid))
        return "done"

    def leave_and_die() -> None:
        leave()
        os._exit(3)

    for task in (leave, leave_and_die):
        try:
            if task is leave:
                assert run(Task("leaves", task)) == ["done"]
            else:
                with pytest.raises(BuildError, match=r"ended without a result \(exit status 3\)"):
                    run(Task("leaves", task))
        finally:
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_a_source_that_has_children_reaped_by_itself_does_no_harm() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert run(*[Task(str(number), int) for number in range(5)]) == [0] * 5
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_children_go_when_something_is_raised_while_they_run(tmp_path: Path) -> None:
    def wait() -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))
        os.write(writing_end, b"x")
        signal.pause()

    def interrupt(task: Task) -> None:
        os.read(reading, 1)  # the other one is at work
        raise KeyboardInterrupt

    reading, writing_end = os.pipe()
    with pytest.raises(KeyboardInterrupt):
        flows.run([Task("ends", int), Task("waits", wait)], 2, interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_child_goes_with_its_parent() -> None:
    reading, writing_end = os.pipe()
    parent = os.fork()
    if parent == 0:
        run(Task("waits", lambda: [os.write(writing_end, b"%d\n" % os.getpid()), signal.pause()]))
    assert os.read(reading, 20)
    os.close(writing_end)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    assert os.read(reading, 1) == b""  # the end of the pipe that the child had is closed


def test_gathered_attempts_go_on_after_a_failure_and_are_raised_together() -> None:
    done = []

    def three_attempts() -> None:
        with failures.gathered() as attempt:
            for number, error in enumerate([SourceError("one\n  detail"), None, ConfigError("two")]):
                with attempt():
                    if error is not None:
                        raise error
                    done.append(number)

    with pytest.raises(SourceError) as caught:
        three_attempts()
    assert str(caught.value) == "one\n  detail\ntwo"
    assert done == [1]


def test_a_spare_process_runs_tasks_of_its_own_and_tells_what_they_raise() -> None:
    with pool.spare(lambda *_: run(Task("one", lambda: 1), Task("two", lambda: b"x" * 3_000_000)), print) as call:
        assert call(None) == [1, b"x" * 3_000_000]
    with (
        pool.spare(lambda *_: run(failing(SourceError("not there"))), print) as call,
        pytest.raises(SourceError, match="not there"),
    ):
        call(None)


def test_a_spare_process_and_its_children_report_steps() -> None:
    steps: list[dict[str, object]] = []

    def work(_: object, tell: Callable[..., None]) -> list[object]:
        tell(step="one", done=0, total=2)
        return run(Task("two", lambda: tell(step="two", done=1, total=2)))

    with pool.spare(work, lambda **step: steps.append(step)) as call:
        call(None)
    assert [step["step"] for step in steps] == ["one", "two"]


def test_a_spare_process_that_dies_is_told() -> None:
    with (
        pool.spare(lambda *_: os.kill(os.getpid(), signal.SIGKILL), print) as call,
        pytest.raises(BuildError, match=r"imported for each target: .* was killed"),
    ):
        call(None)


def in_rounds(*rounds: tuple[int, list[Task]], then: Exception | None = None) -> flows.Flow[list[object]]:
    """Return a flow of such rounds, each a rank and tasks, that returns what all of them returned, or raises."""
    found: list[object] = []
    for rank, tasks in rounds:
        found += yield flows.Round(rank, tasks)
    if then is not None:
        raise then
    return found


def telling(told: list[str]) -> Callable[[Task], None]:
    return lambda task: told.append(task.title)


def test_a_flow_goes_on_while_another_is_at_its_first_round() -> None:
    reading, writing = os.pipe()
    slow = Task("compiles until the other one is linked", lambda: bool(select.select([reading], [], [], 60)[0]))
    linked = Task("linked", lambda: os.write(writing, b"x"))
    several = [in_rounds((0, [slow]), (3, [])), in_rounds((0, [Task("compiled", int)]), (3, [linked]))]
    assert flows.flow(several, 2, ignore) == [[True], [0, 1]]
    os.close(reading)
    os.close(writing)


def test_the_errors_are_those_of_the_lowest_rank_whatever_was_quicker() -> None:
    told: list[str] = []
    quick = in_rounds((0, [Task("quick", int)]), (3, [failing(LinkError("not linked"), "linked")]))
    slow = in_rounds((0, [Task("slow", int), failing(CompileError("one"), "s1"), failing(CompileError("two"), "s2")]))
    last = in_rounds((0, [failing(CompileError("three"), "last")]), (3, [Task("never", int)]))
    with pytest.raises(CompileError) as caught:
        flows.flow([quick, slow, last], 1, telling(told))
    assert str(caught.value).splitlines() == ["one", "two", "three"]
    assert sorted(told) == ["last", "linked", "quick", "s1", "s2", "slow"]
