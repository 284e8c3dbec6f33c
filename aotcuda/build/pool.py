"""Running tasks in forked children: each in a fresh copy of this process, several at a time.

A child starts from the state of the warmed-up parent and leaves nothing behind, so one task cannot change another's
result, and a compiler that crashes takes its own child down and no more.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import sys
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from aotcuda.errors import AotcudaError, BuildError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of work; `run` takes no argument and returns something that can be pickled.

    Attributes:
        title: What progress calls it.
        run: Does it.
        key: The configuration key that it comes from, for errors.
    """

    title: str
    run: Callable[[], Any]
    key: str = ""

    @property
    def where(self) -> str:
        """What errors call it."""
        return f"{self.key}: {self.title}" if self.key else self.title


@dataclass(slots=True)
class _Child:
    index: int
    pid: int
    pipe: int
    data: bytearray


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
    results: list[Any] = [None] * len(tasks)
    failures: dict[int, AotcudaError] = {}
    waiting = list(enumerate(tasks))[::-1]
    with selectors.DefaultSelector() as selector:
        running = 0
        while waiting or running:
            while waiting and running < jobs:
                index, task = waiting.pop()
                child = _start(index, task)
                selector.register(child.pipe, selectors.EVENT_READ, child)
                running += 1
            for key, _ in selector.select():
                child = key.data
                chunk = os.read(child.pipe, 1 << 20)
                if chunk:
                    child.data += chunk
                    continue
                selector.unregister(child.pipe)
                os.close(child.pipe)
                running -= 1
                outcome = _finish(child, tasks[child.index])
                if isinstance(outcome, AotcudaError):
                    failures[child.index] = outcome
                else:
                    results[child.index] = outcome[0]
                done(tasks[child.index])
    if failures:
        raise _join([failures[index] for index in sorted(failures)])
    return results


def _start(index: int, task: Task) -> _Child:
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _work(task, writing)
    os.close(writing)
    return _Child(index, pid, reading, bytearray())


def _work(task: Task, pipe: int) -> NoReturn:
    """The child's whole life; it leaves by `os._exit`, so that nothing of the parent's is run or flushed twice."""
    try:
        try:
            outcome: Any = (task.run(),)
        except AotcudaError as error:
            outcome = error
            if os.environ.get("AOTCUDA_DEBUG") == "1":
                traceback.print_exc()
        except BaseException as error:  # noqa: BLE001 (a child reports everything; nobody else would)
            if os.environ.get("AOTCUDA_DEBUG") == "1":
                traceback.print_exc()
            outcome = BuildError(f"{task.where}: {type(error).__name__}: {error} (AOTCUDA_DEBUG=1 shows where)")
        with os.fdopen(pipe, "wb") as stream:
            pickle.dump(outcome, stream)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _finish(child: _Child, task: Task) -> tuple[Any] | AotcudaError:
    _, status = os.waitpid(child.pid, 0)
    code = os.waitstatus_to_exitcode(status)
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
    try:
        outcome: tuple[Any] | AotcudaError = pickle.loads(bytes(child.data))
    except (EOFError, pickle.UnpicklingError):
        return BuildError(f"{task.where}: the compiler ended without a result (exit status {code})")
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
    first, rest = errors[0], errors[1:]
    seen = {str(first).partition("\n")[0]}
    lines = []
    for error in rest:
        line = str(error).partition("\n")[0]
        if line not in seen:
            seen.add(line)
            lines.append(line)
    if not lines:
        return first
    return type(first)("\n".join([str(first), *lines]))
