"""Run tasks in forked children, several at a time, each in a fresh copy of this process.

A child starts from the state of the warmed-up parent and leaves nothing behind, so one task cannot change another's
result, and a compiler that crashes takes its own child down and no more.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import traceback
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from multiprocessing.connection import Pipe, wait
from typing import TYPE_CHECKING, Any, NoReturn, cast

from aotcuda.builder.compile import captured, ipc, process_tree, telemetry
from aotcuda.common.foreign import escape
from aotcuda.errors import AotcudaError, BuildError, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

_OUT_OF_MEMORY = re.compile(r"out of memory|bad_alloc|cannot allocate memory", re.IGNORECASE)
"""Texts that compilers write before they abort without memory."""

_MORE_MEMORY = "free some, or let fewer cores build (taskset -c 0)"


class CrashError(BuildError):
    """The compiler has crashed, for another reason than a lack of memory."""


_TICK = 0.2
"""Seconds between two checks of children whose pipe is silent; a process that a child started may hold it open."""


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of work; `run` takes no argument and returns something that can be pickled.

    Attributes:
        title: The name that progress shows.
        run: The work.
        key: The configuration key that errors begin with.
        steps: Its part of the total of progress, as `Linking.total` counts; 0 for work that is not in it.
        fallback: A function that returns the outcome if the task fails or its process dies, from the error.
        count_steps: A function that returns `steps` for a result, if they are not known before.
        work: The kernels and functions that it serves, with their targets.
        times_steps: True if `run` itself collects the seconds of its steps; otherwise the task is one step.
    """

    title: str
    run: Callable[[], Any]
    key: str = ""
    steps: int = 0
    fallback: Callable[[AotcudaError], tuple[Any] | AotcudaError] | None = None
    count_steps: Callable[[Any], int] | None = None
    times_steps: bool = False
    work: telemetry.Work = ()

    @property
    def where(self) -> str:
        """Return the task's name in errors."""
        return f"{self.key}: {self.title}" if self.key else self.title


@dataclass(slots=True)
class Child:
    """A running child.

    Attributes:
        index: The place of its task among others.
        pipe: The pipe that it sends its outcome to.
        captured: The file with what its compiler has written to standard error.
        outcome: A tuple with the result, or an error; None before the child ends.
        status: Its exit status; None before the child ends.
    """

    index: int
    task: Task
    pid: int
    pipe: Connection
    captured: int
    outcome: tuple[Any] | AotcudaError | None = None
    status: int | None = None

    def read(self) -> None:
        """Read the child's message from the pipe, which has one or has ended."""
        try:
            match ipc.read(self.pipe):
                case (outcome, telemetry.Telemetry() as collected):
                    telemetry.add(collected)
                    self.outcome = cast("tuple[Any] | AotcudaError", outcome)
                case _:
                    self.outcome = BuildError(f"{self.task.where}: {ipc.UNREADABLE}")
        except EOFError:
            self.outcome = self._death_error(self._wait(0) or 0)
        except ValueError as error:
            self.outcome = BuildError(f"{self.task.where}: {error}")
        self.end()

    def check(self) -> None:
        """Set the outcome if the child has ended while another process holds its pipe open."""
        status = self._wait(os.WNOHANG)
        if status is None or self.outcome is not None:
            return
        if self.pipe.poll():  # the child sent its result before it ended
            self.read()
        else:
            self.outcome = self._death_error(status)
            self.end()

    def end(self) -> None:
        """End the process, if it has not ended, and close the pipe."""
        if self.status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._wait(0)
        if not self.pipe.closed:
            os.close(self.captured)
        self.pipe.close()

    def _death_error(self, status: int) -> BuildError:
        """Print what the compiler wrote before the child ended without a result, and return the error."""
        text = captured.read(self.captured)
        for line in text.splitlines():
            print(escape(line), file=sys.stderr)
        return _death_error(self.task, status, captured.last_error(text))

    def _wait(self, options: int) -> int | None:
        """Return the exit status; None if the process has not ended."""
        if self.status is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # a source ignores SIGCHLD, or has waited for any child; see the pipe
                self.status = 0
            else:
                self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status


def wait_for(children: Sequence[Child]) -> None:
    """Wait until a child sends its result or ends, at most `_TICK` seconds."""
    by_pipe = {child.pipe: child for child in children}
    ready = wait(list(by_pipe), _TICK)
    for pipe in ready:
        by_pipe[pipe].read()  # type: ignore[index]
    for child in children if not ready else ():
        child.check()


def start(index: int, task: Task) -> Child:
    """Fork a child that does the task; `index` is the task's place among others."""
    parent = os.getpid()
    _flush()
    try:
        receiver, sender = Pipe(duplex=False)
        file = captured.open_file()
        pid = os.fork()
    except OSError as error:
        raise process_tree.start_error(error) from error
    if pid == 0:
        process_tree.end_with_parent(parent, signal.SIGKILL)
        receiver.close()
        captured.inherit(file)
        _work(task, sender)
    sender.close()
    return Child(index, task, pid, receiver, file)


def _work(task: Task, sender: Connection) -> NoReturn:
    """Do the task and send its outcome; leave by `os._exit`, so that no exit handler of the parent runs twice."""
    status = 1
    try:
        telemetry.take()  # remove a copy of what the parent has collected
        try:
            with nullcontext() if task.times_steps else telemetry.step(task.title, task.work):
                outcome: Any = (task.run(),)
        except BaseException as error:  # noqa: BLE001 (a child reports every error)
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
    """Write out the buffers of printed text, so that no copy of this process prints the text again."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # a source may have closed them, or put something else there
            stream.flush()


def _death_error(task: Task, status: int, text: str) -> BuildError:
    """Return the error about a child that ended without a result; `text` is the last error that its compiler wrote."""
    if status == -signal.SIGKILL:
        return BuildError(
            f"{task.where}: the compiler was killed (SIGKILL), as systems do that run out of memory; {_MORE_MEMORY}"
        )
    if status < 0:
        cause = process_tree.signal_name(-status) + (f": {escape(text)}" if text else "")
        if _OUT_OF_MEMORY.search(text):
            return BuildError(f"{task.where}: the compiler had no more memory ({cause}); {_MORE_MEMORY}")
        return CrashError(
            f"{task.where}: the compiler crashed ({cause}); this is a defect of the compiler or linker. "
            "Simplify that function, or report it with its source"
        )
    return BuildError(f"{task.where}: the compiler ended without a result (exit status {status})")
