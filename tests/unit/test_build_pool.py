"""Run tasks in forked children: fresh state, order, crashes, and common errors."""

from __future__ import annotations

import errno
import faulthandler
import os
import pickle
import select
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aotcuda.builder.compile import captured, flows
from aotcuda.builder.compile.pool import Task
from aotcuda.errors import BuildError, CompileError, LinkError

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


def test_results_come_in_the_order_of_the_tasks() -> None:
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


def test_first_error_is_complete_and_others_have_a_line() -> None:
    tasks = [
        failing(CompileError("one\n    in detail")),
        Task("good", int),
        failing(LinkError("two\n    in detail")),
        failing(CompileError("one\n    for another target")),
    ]
    with pytest.raises(CompileError) as caught:
        run(*tasks, jobs=4)
    assert str(caught.value) == "one\n    in detail\ntwo"


def crash() -> None:
    faulthandler.disable()  # the test runner's, which would report the crash as its own
    os.kill(os.getpid(), signal.SIGSEGV)


def abort_with_text() -> None:
    """Do what LLVM does in a compiler whose output is captured."""
    with captured.capturing():
        os.write(2, b"LLVM ERROR: Cannot select \x1b[1mthis\nsome input\n")
        faulthandler.disable()
        os.abort()


def raise_error() -> None:
    raise ZeroDivisionError("by zero")  # noqa: EM101


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (crash, "tool.aotcuda.k: a task: the compiler crashed (SIGSEGV); "),
        (
            abort_with_text,
            r"tool.aotcuda.k: a task: the compiler crashed (SIGABRT: LLVM ERROR: Cannot select \x1b[1mthis); this ",
        ),
        (
            lambda: os.kill(os.getpid(), signal.SIGKILL),
            "tool.aotcuda.k: a task: the compiler was killed (SIGKILL), as systems do that run out of ",
        ),
        (lambda: os.kill(os.getpid(), 40), "tool.aotcuda.k: a task: the compiler crashed (signal 40); "),
        (lambda: os._exit(3), "tool.aotcuda.k: a task: the compiler ended without a result (exit status 3)"),
        (raise_error, "tool.aotcuda.k: a task: ZeroDivisionError: by zero (AOTCUDA_DEBUG=1 shows where)"),
    ],
)
def test_failed_child_is_reported_with_other_errors(work: Callable[[], object], message: str) -> None:
    with pytest.raises(BuildError) as caught:
        run(Task("a task", work, key="tool.aotcuda.k"), failing(LinkError("another")))
    first, second = str(caught.value).splitlines()
    assert first.startswith(message)
    assert second == "another"


def test_captured_text_of_a_crash_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BuildError):
        run(Task("a task", abort_with_text))
    assert capfd.readouterr().err == "LLVM ERROR: Cannot select \\x1b[1mthis\nsome input\n"


def test_captured_text_of_a_block_is_printed_unless_it_fails(capfd: pytest.CaptureFixture[str]) -> None:
    with captured.capturing():
        os.write(2, b"fine\n")
    with pytest.raises(ZeroDivisionError), captured.capturing() as texts:
        os.write(2, b"error: wrong\n")
        raise ZeroDivisionError
    assert (capfd.readouterr().err, texts) == ("fine\n", ["error: wrong\n"])


def test_child_that_the_system_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(os, "fork", fork)
    with pytest.raises(BuildError, match=r"^the build cannot start a process \(no more processes\); free some memory"):
        run(Task("a task", int))


def descriptors() -> set[int]:
    return {int(path.name) for path in Path("/proc/self/fd").iterdir()}


def for_each_new_descriptor(do: Callable[[int], object]) -> Callable[[], None]:
    """Return a task that calls a function with each descriptor that only the child has."""
    descriptors_of_parent = descriptors()

    def task() -> None:
        for number in descriptors() - descriptors_of_parent:
            with suppress(OSError):  # one was closed after the folder was read, and some are for reading
                do(number)

    return task


@pytest.mark.parametrize("data", [b"x", pickle.dumps("a string")])
def test_task_that_writes_to_the_result_pipe_is_an_error(data: bytes) -> None:
    with pytest.raises(BuildError, match=r"^a task: code of the project wrote to, or closed, file descriptors that "):
        run(Task("a task", for_each_new_descriptor(lambda number: os.write(number, data))))


def test_process_that_a_task_leaves_behind_delays_nothing(tmp_path: Path) -> None:
    def leave() -> str:
        if (pid := os.fork()) == 0:
            signal.pause()
        (tmp_path / "pid").write_text(str(pid))
        return "result"

    try:
        assert run(Task("leaves", leave)) == ["result"]
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_children_end_when_the_parent_raises(tmp_path: Path) -> None:
    def wait() -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))
        os.write(writing_end, b"x")
        signal.pause()

    def interrupt(task: Task) -> None:
        os.read(reading, 1)  # the other task runs
        raise KeyboardInterrupt

    reading, writing_end = os.pipe()
    with pytest.raises(KeyboardInterrupt):
        flows.run([Task("ends", int), Task("waits", wait)], 2, interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_child_ends_with_its_parent() -> None:
    reading, writing_end = os.pipe()
    parent = os.fork()
    if parent == 0:
        run(Task("waits", lambda: [os.write(writing_end, b"%d\n" % os.getpid()), signal.pause()]))
    assert os.read(reading, 20)
    os.close(writing_end)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    assert os.read(reading, 1) == b""  # the child's end of the pipe is closed


def test_flows_side_by_side_share_rounds_of_one_rank():
    log: list[list[str]] = []

    def flow(name, ranks):
        results = []
        for rank in ranks:
            results += yield flows.Round(rank, [f"{name}{rank}"])
        return results

    def drive(both):
        answers = None
        while True:
            item = both.send(answers)
            log.append(item.tasks)
            answers = [f"{task}!" for task in item.tasks]

    with pytest.raises(StopIteration) as ended:
        drive(flows.side_by_side([flow("a", [0, 2]), flow("b", [1, 2, 3]), flow("c", [])]))
    assert ended.value.value == [["a0!", "a2!"], ["b1!", "b2!", "b3!"], []]
    assert log == [["a0"], ["b1"], ["a2", "b2"], ["b3"]]


def in_rounds(*rounds: tuple[int, list[Task]]) -> flows.Flow[list[object]]:
    """Return a flow of rounds (rank and tasks) that returns all results."""
    results: list[object] = []
    for rank, tasks in rounds:
        results += yield flows.Round(rank, tasks)
    return results


def test_flow_continues_while_another_is_in_its_first_round() -> None:
    reading, writing = os.pipe()
    slow = Task("compiles until the other one is linked", lambda: bool(select.select([reading], [], [], 60)[0]))
    link = Task("linked", lambda: os.write(writing, b"x"))
    several = [in_rounds((0, [slow]), (3, [])), in_rounds((0, [Task("compiled", int)]), (3, [link]))]
    assert flows.run_flows(several, 2, ignore) == [[True], [0, 1]]
    os.close(reading)
    os.close(writing)


def test_errors_of_the_lowest_rank_are_raised() -> None:
    titles: list[str] = []
    quick = in_rounds((0, [Task("quick", int)]), (3, [failing(LinkError("not linked"), "linked")]))
    slow = in_rounds((0, [Task("slow", int), failing(CompileError("one"), "s1"), failing(CompileError("two"), "s2")]))
    last = in_rounds((0, [failing(CompileError("three"), "last")]), (3, [Task("never", int)]))
    with pytest.raises(CompileError) as caught:
        flows.run_flows([quick, slow, last], 1, lambda task: titles.append(task.title))
    assert str(caught.value).splitlines() == ["one", "two", "three"]
    assert sorted(titles) == ["last", "linked", "quick", "s1", "s2", "slow"]
