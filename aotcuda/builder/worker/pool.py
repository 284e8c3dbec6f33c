"""Run tasks in forked children, several at a time, each in a fresh copy of this process.

A child starts from the state of the warmed-up parent and leaves nothing behind, so one task cannot change another's
result, and a compiler that crashes takes its own child down and no more.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Pipe, wait
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast

from aotcuda.builder import failures
from aotcuda.builder.worker import ipc, process_tree, telemetry
from aotcuda.errors import AotcudaError, BuildError, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from multiprocessing.connection import Connection

_TICK = 0.2
"""Seconds between two looks at children whose pipe is silent: a process that a child has left may hold it open."""


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of work; `run` takes no argument and returns something that can be pickled.

    Attributes:
        title: The name that progress shows.
        run: The work.
        key: The configuration key that it comes from, for errors.
        steps: How many steps it is, as progress counts them.
        instead: Makes the result in another way if the task fails or its process dies.
        counted: Returns the number of steps by the result, where `steps` does not tell.
        notes_steps: `run` itself collects how long its steps took; else the task is one step.
    """

    title: str
    run: Callable[[], Any]
    key: str = ""
    steps: int = 1
    instead: Callable[[], Any] | None = None
    counted: Callable[[Any], int] | None = None
    notes_steps: bool = False

    @property
    def where(self) -> str:
        """The task's name in errors."""
        return f"{self.key}: {self.title}" if self.key else self.title


@dataclass(frozen=True, slots=True)
class Round:
    """Tasks of a flow that may run at the same time.

    Attributes:
        rank: The kind of work; a flow's later rounds have no lower ranks.
        tasks: The tasks.
        meanwhile: Work that the flow itself does while they run, if any.
    """

    rank: int
    tasks: Sequence[Task]
    meanwhile: Callable[[], None] | None = None


T = TypeVar("T")
Flow = Generator[Round, list[Any], T]
"""Work in rounds, one after the other: a flow yields each round and receives its tasks' results, in their order."""


def run(tasks: Sequence[Task], jobs: int, done: Callable[[Task], None]) -> list[Any]:
    """Run all `tasks`, at most `jobs` at a time, and return their results in the order of the tasks.

    Args:
        tasks: The work.
        jobs: Number of children at a time.
        done: Called with each task as it ends.

    Raises:
        AotcudaError: A task raised it; errors of several tasks are joined.
        BuildError: A child died; the message names its task and the signal.
    """

    def once() -> Flow[list[Any]]:
        return (yield Round(0, tasks))

    (results,) = flow([once()], jobs, done)
    return results


def flow(flows: Iterable[Flow[T]], jobs: int, done: Callable[[Task], None]) -> list[T]:
    """Run several flows beside each other, at most `jobs` of their tasks at a time, and return their results.

    A flow waits for nothing but its own round. Tasks of higher rank start first, since others wait for them. After a
    failure no task of a higher rank starts, so that the errors are the same whichever task was quicker.

    Raises:
        AotcudaError: A task or a flow raised it. Of several, those of the lowest rank are joined.
        BuildError: A child died; the message names its task and the signal.
    """
    states = [_FlowState(number, item) for number, item in enumerate(flows)]
    running: list[tuple[_Child, _FlowState[T]]] = []
    try:
        while True:
            for state in states:
                while state.has_all() and state.level < _limit(states):
                    state.advance()
            while len(running) < jobs and (chosen := _highest(states, lambda state: bool(state.waiting))):
                running.append((_start(*chosen.waiting.pop()), chosen))
            aside = _highest(states, lambda state: state.meanwhile is not None and not state.failures)
            if aside is not None:
                aside.do_meanwhile()
            elif not running:
                break
            _await([child for child, _ in running], 0 if aside is not None else _TICK)
            for child, state in [one for one in running if one[0].outcome is not None]:
                running.remove((child, state))
                done(state.take(child.index, child.outcome))
    finally:
        for child, _ in running:  # an error was raised here; no child may go on alone
            child.end()
    failed = [failure for state in states for failure in state.failures]
    if failed:
        lowest = [failure for failure in failed if failure[0] == _limit(states)]
        raise failures.join([error for *_, error in sorted(lowest, key=lambda failure: failure[1:3])])
    return [returned for state in states for returned in state.returned]


@dataclass(slots=True)
class _FlowState(Generic[T]):
    """A flow under way.

    Attributes:
        number: Its place among the flows.
        flow: The flow.
        level: Twice the rank of its round's tasks; the flow's own work with their results is one level higher.
        tasks: Its round.
        waiting: The tasks that were not started, with their places; the last one is the next.
        meanwhile: What the flow does while they run, if it has not done it.
        returned: The flow's result, if it has ended.
        failures: Level, number of the flow, place and error of each failure.
    """

    number: int
    flow: Flow[T]
    level: int = -2
    tasks: Sequence[Task] = ()
    waiting: list[tuple[int, Task]] = field(default_factory=list)
    meanwhile: Callable[[], None] | None = None
    returned: list[T] = field(default_factory=list)
    failures: list[tuple[int, int, int, AotcudaError]] = field(default_factory=list)
    _results: list[Any] = field(default_factory=list)
    _left: int = 0

    def has_all(self) -> bool:
        """Return True if the round has ended well, and the flow has not ended."""
        return not self._left and self.meanwhile is None and not self.failures and not self.returned

    def advance(self) -> None:
        """Hand the round's results to the flow, and take its next round."""
        try:
            following = next(self.flow) if self.level < 0 else self.flow.send(self._results)
        except StopIteration as end:
            self.returned.append(end.value)
        except AotcudaError as error:
            self._fail(self.level + 1, 0, error)
        else:
            self.level, self.tasks, self.meanwhile = following.rank * 2, following.tasks, following.meanwhile
            self.waiting = list(enumerate(self.tasks))[::-1]
            self._results = [None] * len(self.tasks)
            self._left = len(self.tasks)

    def do_meanwhile(self) -> None:
        """Do the flow's own work."""
        work, self.meanwhile = self.meanwhile, None
        try:
            if work is not None:
                work()
        except AotcudaError as error:
            self._fail(self.level + 1, 0, error)

    def take(self, place: int, outcome: tuple[Any] | AotcudaError | None) -> Task:
        """Take the outcome of a task; return the task with its true number of steps."""
        task = self.tasks[place]
        self._left -= 1
        if isinstance(outcome, AotcudaError) and task.instead is not None:
            outcome = (task.instead(),)
        if isinstance(outcome, tuple):
            self._results[place] = outcome[0]
            return replace(task, steps=task.counted(*outcome)) if task.counted is not None else task
        if outcome is not None:
            self._fail(self.level, place, outcome)
        return task

    def _fail(self, level: int, place: int, error: AotcudaError) -> None:
        self.failures.append((level, self.number, place, error))


_NEVER = 1 << 30


def _limit(states: Iterable[_FlowState[Any]]) -> int:
    """Return the lowest level of a failure."""
    return min((failure[0] for state in states for failure in state.failures), default=_NEVER)


def _highest(states: Sequence[_FlowState[T]], is_ready: Callable[[_FlowState[T]], bool]) -> _FlowState[T] | None:
    """Return the ready flow with the highest level, the first of several; None if no flow may go on."""
    limit = _limit(states)
    ready = [state for state in states if state.level <= limit and is_ready(state)]
    return max(ready, key=lambda state: (state.level, -state.number), default=None)


@dataclass(slots=True)
class _Child:
    """A child at work.

    Attributes:
        index: The place of its task in the round.
        task: The task.
        pid: Its process.
        pipe: The pipe that its outcome comes through.
        outcome: A tuple with the result, or an error; None until it is known.
        status: The exit status, once the process has ended.
    """

    index: int
    task: Task
    pid: int
    pipe: Connection
    outcome: tuple[Any] | AotcudaError | None = None
    status: int | None = None

    def read(self) -> None:
        """Take the message that the child has sent; its pipe has one, or has ended."""
        try:
            match ipc.read(self.pipe):
                case (outcome, telemetry.Telemetry() as collected):
                    telemetry.add(collected)
                    self.outcome = cast("tuple[Any] | AotcudaError", outcome)
                case _:
                    self.outcome = BuildError(f"{self.task.where}: {ipc.UNREADABLE}")
        except EOFError:
            self.outcome = _death(self.task, self._wait(0) or 0)
        except ValueError as error:
            self.outcome = BuildError(f"{self.task.where}: {error}")
        self.end()

    def check(self) -> None:
        """Set the outcome if the child has ended while another process holds its pipe open."""
        status = self._wait(os.WNOHANG)
        if status is None or self.outcome is not None:
            return
        if self.pipe.poll():  # it sent its result before it ended
            self.read()
        else:
            self.outcome = _death(self.task, status)
            self.end()

    def end(self) -> None:
        """End the process, if it has not ended, and close the pipe."""
        if self.status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._wait(0)
        self.pipe.close()

    def _wait(self, options: int) -> int | None:
        """Return the exit status; None if the process has not ended."""
        if self.status is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # a source ignores SIGCHLD, or has waited for any child; the pipe tells the rest
                self.status = 0
            else:
                self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status


def _await(children: Sequence[_Child], seconds: float) -> None:
    """Wait until a child sends its result or ends, but no longer than `seconds`."""
    by_pipe = {child.pipe: child for child in children}
    ready = wait(list(by_pipe), seconds)
    for pipe in ready:
        by_pipe[pipe].read()  # type: ignore[index]
    for child in children if not ready else ():
        child.check()


def _start(index: int, task: Task) -> _Child:
    receiver, sender = Pipe(duplex=False)
    parent = os.getpid()
    _flush()
    if (pid := os.fork()) == 0:
        process_tree.die_with(parent, signal.SIGKILL)
        receiver.close()
        _work(task, sender)
    sender.close()
    return _Child(index, task, pid, receiver)


def _work(task: Task, sender: Connection) -> NoReturn:
    """Do the task and send its outcome; leave by `os._exit`, so that no exit handler of the parent runs twice."""
    status = 1
    try:
        telemetry.take()  # the parent has collected this
        try:
            with nullcontext() if task.notes_steps else telemetry.step(task.title):
                outcome: Any = (task.run(),)
        except BaseException as error:  # noqa: BLE001 (a child reports everything; nobody else would)
            if os.environ.get("AOTCUDA_DEBUG") == "1":
                traceback.print_exc()
            outcome = error
            if not isinstance(error, AotcudaError):
                outcome = BuildError(
                    f"{task.where}: {type(error).__name__}: {text_of(error)} (AOTCUDA_DEBUG=1 shows where)"
                )
        sender.send((outcome, telemetry.take()))
        status = 0
        _flush()
    finally:
        os._exit(status)


def _flush() -> None:
    """Empty the buffers of what was printed, so that no copy of this process prints it again."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # a source may have closed them, or put something else there
            stream.flush()


def _death(task: Task, status: int) -> BuildError:
    """Return the error about a child that ended without a result."""
    if status == -signal.SIGKILL:
        return BuildError(
            f"{task.where}: the compiler was killed (SIGKILL), as systems do that run out of memory; free some, or let "
            "fewer cores build (taskset -c 0)"
        )
    if status < 0:
        return BuildError(
            f"{task.where}: the compiler crashed ({signal.Signals(-status).name}); this is a defect of the compiler or "
            "linker. Simplify that function, or report it with its source"
        )
    return BuildError(f"{task.where}: the compiler ended without a result (exit status {status})")


@contextmanager
def spare(work: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
    """Yield a function that does `work` in a copy of this process as it is now; the copy ends with the block.

    The function returns the result of `work`, or raises as `run` does.
    """
    bell, ring = Pipe(duplex=False)

    def wait_and_work() -> Any:
        ring.close()
        bell.recv()
        return work()

    child = _start(0, Task("the sources, imported for each target", wait_and_work, notes_steps=True))
    bell.close()

    def call() -> Any:
        ring.send(True)
        while child.outcome is None:
            _await([child], _TICK)
        if isinstance(child.outcome, AotcudaError):
            raise child.outcome
        return child.outcome[0]

    try:
        yield call
    finally:
        ring.close()
        child.end()
