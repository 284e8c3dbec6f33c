"""Running tasks in forked children: each in a fresh copy of this process, several at a time.

A child starts from the state of the warmed-up parent and leaves nothing behind, so one task cannot change another's
result, and a compiler that crashes takes its own child down and no more.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import select
import signal
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from aotcuda.builder.worker import lifetime, observations
from aotcuda.builder.worker.channel import FULL, LOST, NO_ROOM, Owned
from aotcuda.errors import AotcudaError, BuildError, SourceError, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of work; `run` takes no argument and returns something that can be pickled.

    Attributes:
        title: What progress calls it.
        run: Does it.
        key: The configuration key that it comes from, for errors.
        steps: How many steps it is, as progress counts them.
        instead: Makes the result of one that failed or whose process died: somebody does the work in another way.
        counted: Tells how many steps it was by its result, where `steps` does not.
        notes_steps: It notes how long its steps took; else it is one.
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
        """What errors call it."""
        return f"{self.key}: {self.title}" if self.key else self.title


@dataclass(frozen=True, slots=True)
class Round:
    """Tasks of a flow that may run at the same time.

    Attributes:
        rank: What kind of work it is; a flow's later rounds have no lower ranks.
        tasks: The tasks.
        meanwhile: What the flow itself does while they run, if anything.
    """

    rank: int
    tasks: Sequence[Task]
    meanwhile: Callable[[], None] | None = None


T = TypeVar("T")
Flow = Generator[Round, list[Any], T]
"""Work in rounds, one after the other: each is yielded, and what its tasks returned comes back, in their order."""


_TICK = 0.2
"""Seconds between looks at children whose pipe has nothing to say: what a child started may hold its pipe open."""


_HEAD = 56
"""Bytes before a child's result: its mark, the result's digest and length."""


@dataclass(slots=True)
class _Child:
    """A child at work: its result comes out of `pipe`, behind `mark`, which tells it from what other code writes."""

    index: int
    pid: int
    pipe: int
    mark: bytes
    data: bytearray = field(default_factory=bytearray)
    status: int | None = None

    def read(self) -> bool:
        """Take what has come in; whether there may be more."""
        try:
            while chunk := os.read(self.pipe, 1 << 20):
                self.data += chunk
        except BlockingIOError:
            return not self.has_ended()
        return False

    def has_ended(self) -> bool:
        """Whether its process has; if so, all that it wrote has been taken."""
        if self.status is None and self._wait(os.WNOHANG):
            self.read()
        return self.status is not None

    def wait(self) -> int:
        """Its exit code, when it has ended."""
        if self.status is None:
            self._wait(0)
        return self.status or 0

    def _wait(self, options: int) -> bool:
        try:
            pid, status = os.waitpid(self.pid, options)
        except ChildProcessError:  # a source ignores SIGCHLD, or waits for any child itself; the result will tell
            self.status = 0
            return True
        if pid:
            self.status = os.waitstatus_to_exitcode(status)
        return bool(pid)


def run(tasks: Sequence[Task], jobs: int, done: Callable[[Task], None]) -> list[Any]:
    """Run all `tasks`, at most `jobs` at a time, and return their results in the order of the tasks.

    Args:
        tasks: What to run.
        jobs: Number of children at a time.
        done: Called with each task as it ends.

    Raises:
        AotcudaError: What a task raised. Of several, the one of the first task, with the others' first lines below.
        BuildError: A child died; the message names its task and the signal.
    """

    def once() -> Flow[list[Any]]:
        return (yield Round(0, tasks))

    (results,) = flow([once()], jobs, done)
    return results


def flow(flows: Iterable[Flow[T]], jobs: int, done: Callable[[Task], None]) -> list[T]:
    """Run several flows beside each other, at most `jobs` of their tasks at a time; returns what each returns.

    Nothing waits but a flow for its own round. Tasks of higher rank are started first: they are what others wait for.
    After a failure nothing of a higher rank is begun, so that errors are the same ones whatever was quicker.

    Raises:
        AotcudaError: What a task or a flow raised. Of several, those of the lowest rank: the one of the first flow and
            task, with the others' first lines below.
        BuildError: A child died; the message names its task and the signal.
    """
    runs = [_Run(number, item) for number, item in enumerate(flows)]
    running: dict[int, tuple[_Child, _Run[T]]] = {}
    try:
        while True:
            for item in runs:
                while item.has_all() and item.level < _limit(runs):
                    item.go_on()
            while len(running) < jobs and (chosen := _next(runs)) is not None:
                child = _start(*chosen.waiting.pop())
                running[child.pipe] = (child, chosen)
            if (aside := _aside(runs)) is not None:
                aside.do_meanwhile()
            elif not running:
                break
            children = {pipe: child for pipe, (child, _) in running.items()}
            for child in _ended(children, 0 if aside is not None else _TICK):
                _, item = running.pop(child.pipe)
                task = item.tasks[child.index]
                outcome = _finish(child, task)
                if isinstance(outcome, AotcudaError) and task.instead is not None:
                    outcome = (task.instead(),)
                item.take(child.index, outcome)
                if task.counted is not None and not isinstance(outcome, AotcudaError):
                    task = replace(task, steps=task.counted(*outcome))
                done(task)
    finally:
        for child, item in running.values():  # something was raised; none of them is to go on alone
            os.kill(child.pid, signal.SIGKILL)
            _finish(child, item.tasks[child.index])
    failures = [(level, item.number, place, error) for item in runs for level, place, error in item.failures]
    if failures:
        lowest = [one for one in failures if one[0] == _limit(runs)]
        raise _join([error for *_, error in sorted(lowest, key=lambda one: one[1:3])])
    return [returned for item in runs for returned in item.returned]


_NEVER = 1 << 30


class _Run(Generic[T]):
    """A flow under way.

    Attributes:
        number: Its place among the flows.
        level: Of its round's tasks, twice the rank; what the flow itself does with their results is one level higher.
        tasks: Its round.
        waiting: Those of them that were not started, with their places; the first is the last.
        meanwhile: What it does while they run, if it has not.
        returned: What it returned, if it has.
        failures: Level, place and error of each.
    """

    def __init__(self, number: int, flow: Flow[T]) -> None:
        self.number = number
        self.level = -2
        self.tasks: Sequence[Task] = ()
        self.waiting: list[tuple[int, Task]] = []
        self.meanwhile: Callable[[], None] | None = None
        self.returned: list[T] = []
        self.failures: list[tuple[int, int, AotcudaError]] = []
        self._flow = flow
        self._results: list[Any] = []
        self._left = 0

    def has_all(self) -> bool:
        """Whether all of its round has ended well, and the flow has not."""
        return not self._left and self.meanwhile is None and not self.failures and not self.returned

    def go_on(self) -> None:
        """Hand the round's results over, and take the next round."""
        try:
            following = next(self._flow) if self.level < 0 else self._flow.send(self._results)
        except StopIteration as end:
            self.returned.append(end.value)
        except AotcudaError as error:
            self.failures.append((self.level + 1, 0, error))
        else:
            self.level, self.tasks = following.rank * 2, following.tasks
            self.waiting = list(enumerate(self.tasks))[::-1]
            self.meanwhile = following.meanwhile
            self._results = [None] * len(self.tasks)
            self._left = len(self.tasks)

    def do_meanwhile(self) -> None:
        """Do what the flow does while its tasks run."""
        work, self.meanwhile = self.meanwhile, None
        try:
            if work is not None:
                work()
        except AotcudaError as error:
            self.failures.append((self.level + 1, 0, error))

    def take(self, place: int, outcome: tuple[Any] | AotcudaError) -> None:
        """Take what became of a task."""
        self._left -= 1
        if isinstance(outcome, AotcudaError):
            self.failures.append((self.level, place, outcome))
        else:
            self._results[place] = outcome[0]


def _limit(runs: Iterable[_Run[Any]]) -> int:
    """The lowest level that something failed on."""
    return min((level for item in runs for level, *_ in item.failures), default=_NEVER)


def _next(runs: Iterable[_Run[T]]) -> _Run[T] | None:
    """The flow of which a task is to be started: others wait for those of the highest rank."""
    limit = _limit(runs)
    ready = [item for item in runs if item.waiting and item.level <= limit]
    return max(ready, key=lambda item: (item.level, -item.number), default=None)


def _aside(runs: Iterable[_Run[T]]) -> _Run[T] | None:
    """The flow that has something to do itself now: one at a time, so that no process waits long for its next task."""
    limit = _limit(runs)
    ready = [item for item in runs if item.meanwhile is not None and not item.failures and item.level <= limit]
    return max(ready, key=lambda item: (item.level, -item.number), default=None)


@contextmanager
def spare(work: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
    """A copy of this process as it is now, which waits until it is called to do `work`; it goes with the block.

    It is no child of this process: code that is run in the block may wait for any child, and would wait for this one.
    The call returns what `work` does, or raises as `run` does.
    """
    waiting, calling = os.pipe()
    reading, writing = os.pipe()
    mark = os.urandom(16)
    _flush()
    if (pid := os.fork()) == 0:
        if os.fork() == 0:
            os.close(calling)
            os.close(reading)
            if os.read(waiting, 1):
                lifetime.die_with(os.getppid(), signal.SIGKILL)
                _work(Task("the sources, imported for each target", work), Owned(writing), mark)
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(waiting)
    os.close(writing)
    bell, answer = Owned(calling), Owned(reading)

    def call() -> Any:
        bell.write(b"1")
        outcome = _answer(answer, mark)
        if isinstance(outcome, AotcudaError):
            raise outcome
        return outcome[0]

    try:
        yield call
    finally:
        for owned in (bell, answer):
            owned.check()
            os.close(owned.number)


def _answer(pipe: Owned, mark: bytes) -> tuple[Any] | AotcudaError:
    """What a spare process has sent; others may hold its pipe open, so its length comes first."""
    data = b""
    while len(data) < _HEAD or len(data) < _HEAD + int.from_bytes(data[48:_HEAD], "big"):
        pipe.check()
        chunk = os.read(pipe.number, 1 << 20)
        if not chunk:
            break
        data += chunk
    content = _content(data, mark)
    if content is None:
        message = "the process that imports the sources for each target ended without a result"
        raise BuildError(message)
    return _received(content)


def _ended(running: dict[int, _Child], seconds: float) -> list[_Child]:
    """Those of the children that have nothing more to say; waits so long for one at most."""
    poll = select.poll()
    for pipe in running:
        poll.register(pipe, select.POLLIN)
    ready = dict(poll.poll(seconds * 1000))
    return [child for child in running.values() if (not child.read() if child.pipe in ready else child.has_ended())]


def _start(index: int, task: Task) -> _Child:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    mark = os.urandom(16)
    parent = os.getpid()
    _flush()
    pid = os.fork()
    if pid == 0:
        lifetime.die_with(parent, signal.SIGKILL)
        os.close(reading)
        _work(task, Owned(writing), mark)
    os.close(writing)
    return _Child(index, pid, reading, mark)


def _flush() -> None:
    """Empty the buffers of what was printed, so that no copy of this process prints it again."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # a source may have closed them, or put something else there
            stream.flush()


def _work(task: Task, pipe: Owned, mark: bytes) -> NoReturn:
    """The child's whole life; it leaves by `os._exit`, so that nothing of the parent's is run or flushed twice."""
    try:
        observations.take()  # what the parent has noted is the parent's
        try:
            with nullcontext() if task.notes_steps else observations.step(task.title):
                outcome: Any = (task.run(),)
        except BaseException as error:  # noqa: BLE001 (a child reports everything; nobody else would)
            if os.environ.get("AOTCUDA_DEBUG") == "1":
                traceback.print_exc()
            outcome = error
            if not isinstance(error, AotcudaError):
                outcome = BuildError(
                    f"{task.where}: {type(error).__name__}: {text_of(error)} (AOTCUDA_DEBUG=1 shows where)"
                )
        data = pickle.dumps((outcome, observations.take()))
        pipe.write(mark + hashlib.sha256(data).digest() + len(data).to_bytes(8, "big") + data)
        _flush()
    finally:
        os._exit(0)


def _finish(child: _Child, task: Task) -> tuple[Any] | AotcudaError:
    code = child.wait()
    os.close(child.pipe)
    if code == -signal.SIGKILL:
        message = (
            f"{task.where}: the compiler was killed (SIGKILL), as systems do that run out of memory; free some, or let "
            "fewer cores build (taskset -c 0)"
        )
        return BuildError(message)
    if code < 0:
        message = (
            f"{task.where}: the compiler crashed ({signal.Signals(-code).name}); this is a defect of the compiler or "
            "linker. Simplify that function, or report it with its source"
        )
        return BuildError(message)
    content = _content(bytes(child.data), child.mark)
    if content is not None:
        return _received(content)
    if code == FULL:
        return BuildError(f"{task.where}: {NO_ROOM}")
    if child.data or code == LOST:
        message = (
            f"{task.where}: code of the project wrote to, or closed, file descriptors that the build's processes talk "
            "over; it may use only those that it has opened itself"
        )
        return BuildError(message)
    return BuildError(f"{task.where}: the compiler ended without a result (exit status {code})")


def _content(data: bytes, mark: bytes) -> bytes | None:
    """What stands behind the head of a child's answer; None if others wrote any of it, or it is not all there."""
    content = data[_HEAD:]
    return content if data[:48] == mark + hashlib.sha256(content).digest() else None


def _received(data: bytes) -> tuple[Any] | AotcudaError:
    """A child's result; what it has noted is noted here."""
    outcome: tuple[Any] | AotcudaError
    outcome, noted = pickle.loads(data)
    observations.add(noted)
    return outcome


@contextmanager
def gathered() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Several attempts in this process, each inside `with attempt():`; what they raise is raised together at the end.

    Raises:
        AotcudaError: As for `run`.
    """
    failures: list[AotcudaError] = []

    @contextmanager
    def attempt() -> Iterator[None]:
        try:
            yield
        except AotcudaError as error:
            failures.append(error)

    yield attempt
    if failures:
        raise _join(failures)


def _join(errors: list[AotcudaError]) -> AotcudaError:
    first = errors[0]
    found: dict[str, dict[str, AotcudaError]] = {}
    for error in errors:
        line = str(error).partition("\n")[0]
        found.setdefault(getattr(error, "fault", "") or line, {}).setdefault(line, error)
    lines: list[str] = []
    for same in found.values():
        line, error = next(iter(same.items()))
        text = line if lines else str(first)
        more = len(same) - 1
        others = f"module{'s' * (more > 1)}" if isinstance(error, SourceError) else "of its variants and targets"
        lines.append(f"{text}; likewise for {more} more {others}" if more else text)
    return first if lines == [str(first)] else type(first)("\n".join(lines))
