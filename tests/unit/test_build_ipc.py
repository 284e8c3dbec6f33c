"""Test the messages between a build and its worker, and pipes that other code writes to or closes."""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
from typing import TYPE_CHECKING

import pytest

from aotcuda.builder.compile import ipc
from aotcuda.builder.compile.ipc import Failed, Finished, Sender, Step
from aotcuda.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="it forks"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


@pytest.fixture
def pipe() -> Iterator[tuple[Connection, Connection]]:
    """Yield the build's end and the worker's end of a pipe."""
    build, worker = multiprocessing.Pipe(duplex=False)
    with build, worker:
        yield build, worker


def status_of(work: Callable[[], object]) -> int:
    """Return the exit status of a child that runs a function and then ends with 7."""
    if (pid := os.fork()) == 0:
        try:
            work()
        finally:
            os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_messages_arrive_in_order(pipe: tuple[Connection, Connection]) -> None:
    build, worker = pipe
    sender = Sender(worker)
    sender(step="compile", done=1, total=3)
    sender(step="link", done=2, total=3, slowest="k")
    sender.send(Finished([1]))
    assert [ipc.read(build) for _ in range(3)] == [Step("compile", 1, 3, ""), Step("link", 2, 3, "k"), Finished([1])]
    sender.send(Failed(BuildError("wrong")))
    failed = ipc.read(build)
    assert isinstance(failed, Failed)
    assert (type(failed.error), str(failed.error)) == (BuildError, "wrong")
    worker.close()
    with pytest.raises(EOFError):
        ipc.read(build)


@pytest.mark.parametrize("data", [b"hello", b"\x00\x00\x00\x05hello", b"\x00\x00\x00\x05he", b"\xff" * 16])
def test_other_bytes_are_reported(data: bytes, pipe: tuple[Connection, Connection]) -> None:
    build, worker = pipe
    os.write(worker.fileno(), data)
    worker.close()
    with pytest.raises(ValueError, match=f"^{re.escape(ipc.UNREADABLE)}$"):
        ipc.read(build)


def test_copy_of_the_process_ends_without_a_message(pipe: tuple[Connection, Connection]) -> None:
    build, worker = pipe
    sender = Sender(worker)
    assert status_of(lambda: sender.send(Finished(1))) == 0
    assert not build.poll()


def test_worker_ends_if_nothing_reads_or_the_pipe_is_closed(
    pipe: tuple[Connection, Connection], capfd: pytest.CaptureFixture[str]
) -> None:
    build, worker = pipe

    def closed() -> None:
        sender = Sender(worker)
        os.close(worker.fileno())
        sender.send(Finished(1))

    assert status_of(closed) == 1
    assert capfd.readouterr().err == f"aotcuda: {ipc.UNREADABLE}\n"
    build.close()
    assert status_of(lambda: Sender(worker).send(Finished(1))) == 1
    assert capfd.readouterr().err == ""
