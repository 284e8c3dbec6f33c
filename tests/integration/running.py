"""Run builds in the background: wait until they reach a point, list their processes, and stop them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = (sys.executable, "-m", "aotcuda", "build")


SECONDS = 120
"""The time after which a wait fails, so a hanging build does not hang the tests."""


class Running:
    """A running build of `project`, with all of its processes.

    Attributes:
        process: The first one.
    """

    def __init__(self, project: Path, command: tuple[str, ...], environ: dict[str, str]) -> None:
        self._mark = f"AOTCUDA_TEST_MARK={uuid.uuid4()}"
        name, _, value = self._mark.partition("=")
        self.process = subprocess.Popen(
            command,
            cwd=project,
            env={**os.environ, "AOTCUDA_PROGRESS": "0", name: value, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait(self) -> tuple[int, str, str]:
        """Wait for the end; return the exit code and the output."""
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out, err

    def stop(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal to the first process alone; return its exit code and error output."""
        self.process.send_signal(number)
        status, _, err = self.wait()
        return status, err

    def has_ended(self) -> bool:
        """Wait for the processes of the build; return True if all of them end."""
        for pid in self.processes():
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            has_ended = is_readable(descriptor)
            os.close(descriptor)
            if not has_ended:
                return False
        return not self.processes()

    def processes(self) -> dict[int, int]:
        """Return the processes whose environment has the build's mark, each with its parent."""
        parents = {}
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdecimal() and self._mark.encode() in (folder / "environ").read_bytes():
                    parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
        return parents

    def kill(self) -> None:
        """Kill all processes of the build."""
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        self.process.communicate()


@contextmanager
def running(project: Path, command: tuple[str, ...] = COMMAND, **environ: str) -> Iterator[Running]:
    """Run a build in the background during the block."""
    build = Running(project, command, environ)
    try:
        yield build
    finally:
        build.kill()


@contextmanager
def waiting(project: Path, command: tuple[str, ...], fifo: Path, **environ: str) -> Iterator[Running]:
    """Run a build in the background; enter the block when the project's code opens the file `$REACHED` for writing."""
    os.mkfifo(fifo)
    with running(project, command, REACHED=str(fifo), **environ) as build:
        descriptor = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        assert is_readable(descriptor), "the build does not open the file"
        os.close(descriptor)
        fifo.unlink()
        yield build


def is_readable(descriptor: int) -> bool:
    """Wait until a descriptor is readable; return False after `SECONDS`."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(SECONDS * 1000))
