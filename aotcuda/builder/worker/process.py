"""Starting the worker process in an environment of its own, following its progress, and taking its result."""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import secrets
import select
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, NamedTuple, cast

from aotcuda import errors, manifest, registry
from aotcuda.builder import progress
from aotcuda.builder.worker import channel
from aotcuda.errors import AotcudaError, BuildError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aotcuda.builder.progress import Progress
    from aotcuda.builder.toolkits import Toolkit
    from aotcuda.builder.worker.job import Job, Result

# The worker finds modules where this process finds them. PYTHONPATH must not say so: pip's isolation starts Python by a
# sitecustomize of its own, which gives up when the folders that it is about to add are on the path already.
_START = """
import json, sys
sys.path[:] = json.loads(sys.argv.pop(1))
from aotcuda.builder.worker import supervisor
sys.exit(supervisor.main())
"""

_PATIENCE = 2.0
"""Seconds that a worker has to end once it has said that it is done; a source's threads may never end."""


def run(job: Job, variables: Mapping[str, str] = MappingProxyType({}), watcher: Progress | None = None) -> Result:
    """Do `job` in a worker process: one that was started `ahead`, if it fits. No process of it outlives this call.

    Args:
        job: What to do.
        variables: More environment variables for it.
        watcher: Shows the progress; a line on a terminal by default.

    Raises:
        AotcudaError: What the worker found wrong.
        BuildError: The worker died, or a source got at what it talks over.
    """
    with closing(_taken(_kind(job.root, job.frontend, job.toolkit, variables, jit=job.product == "jit"))) as worker:
        with suppress(BrokenPipeError), worker.jobs as stream:  # a dead one is told below
            pickle.dump(job, stream)
        end = _follow(worker.messages, worker.token, watcher or progress.line(sys.stderr))
        done = _checked(worker.result(), end) if end.digest is not None else None  # while it ends
        if end.goes_by_itself:
            worker.wait()
        worker.stop()
        if end.failure is not None:
            raise end.failure
        if done is None:
            raise _death(end, worker.process.returncode)
    return done


def _checked(data: bytes, end: _End) -> Result:
    """What a worker has sent.

    Raises:
        BuildError: Somebody has changed it.
    """
    if manifest.digest(data) != end.digest:
        raise BuildError(_foreign(f"wrote into the build's result (file descriptor {channel.MESSAGES + 1})", end.step))
    done: Result = pickle.loads(data)  # what the worker sent, as the digest says
    return done


@contextmanager
def ahead(
    root: str,
    front_end: str,
    toolkit: Toolkit | None,
    variables: Mapping[str, str] = MappingProxyType({}),
    *,
    jit: bool = False,
) -> Iterator[None]:
    """Have a worker get ready for the block's first job, which is put together meanwhile.

    It imports no compiler before it has a job. `run` takes it for a job of this folder, front end and toolkit, if the
    environment is what it was, and starts another one for any other. What cannot be started is left to `run`, which
    says so.

    Args:
        root: The project's folder, an absolute path.
        front_end: The name of one of aotcuda's own front ends.
        toolkit: What the job will be built with.
        variables: More environment variables, as for `run`.
        jit: Whether the job will be a JIT build's.
    """
    try:
        with suppress(BuildError):
            _ready.append(_Worker(_kind(root, front_end, toolkit, variables, jit=jit)))
        yield
    finally:
        for worker in _waiting():
            worker.close()


def _owner() -> tuple[int, int]:
    """This process and this thread."""
    return os.getpid(), threading.get_ident()


class _Kind(NamedTuple):
    """All that a worker is started with, beside what is its own alone.

    Attributes:
        root: The folder that it works in.
        paths: Where it finds modules.
        environ: Its environment.
        extra: What pip installs for it, for what is said where that is missing.
        owner: The process that it is a child of, and the thread, with which it ends: no other may take it.
    """

    root: str
    paths: tuple[str, ...]
    environ: dict[str, str]
    extra: str
    owner: tuple[int, int]


def _kind(root: str, front_end: str, toolkit: Toolkit | None, variables: Mapping[str, str], *, jit: bool) -> _Kind:
    """The kind of worker that a job wants, as things are now."""
    return _Kind(
        root=root,
        paths=tuple(path for path in sys.path if path),
        environ={**environment(os.environ, front_end, toolkit=toolkit), **variables},
        extra=registry.requirement(front_end, jit=jit),
        owner=_owner(),
    )


class _Worker:
    """A worker process, which waits for its job.

    Attributes:
        kind: What it was started with.
        process: The supervisor, which ends everything below it when it is told to end.
        token: That of its messages.
        messages: The descriptor from which they are read.
        jobs: Where its job is written.

    Raises:
        BuildError: There is no process to be had.
    """

    def __init__(self, kind: _Kind) -> None:
        self.kind = kind
        self.token = secrets.token_hex(16)
        self._streams = _inherited(1), _inherited(2)  # before what is opened gets the number of one
        with ExitStack() as opened:
            try:
                # A file without a name: nobody has to remove it.
                self._result = _behind_streams(os.memfd_create("aotcuda-result"))
                opened.callback(os.close, self._result)
                with ExitStack() as own:
                    reading, writing = os.pipe()
                    own.callback(os.close, writing)
                    self.messages = _behind_streams(reading)
                    opened.callback(os.close, self.messages)
                    told = fcntl.fcntl(writing, fcntl.F_DUPFD_CLOEXEC, 3)
                    own.callback(os.close, told)
                    self.process = self._started(told)
            except OSError as error:
                message = f"the build cannot start a process ({error.strerror}); free some memory or processes"
                raise BuildError(message) from error
            self._opened = opened.pop_all()
        self.jobs = cast("IO[bytes]", self.process.stdin)

    def _started(self, writing: int) -> subprocess.Popen[bytes]:
        arguments = [str(os.getpid()), str(writing), str(self._result), self.token]
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _START, json.dumps(self.kind.paths), *arguments, self.kind.extra],
            stdin=subprocess.PIPE,
            stdout=self._streams[0],
            stderr=self._streams[1],
            pass_fds=[writing, self._result],
            cwd=self.kind.root,
            env=self.kind.environ,
            start_new_session=True,  # Ctrl-C on a terminal is this process's to answer
        )

    def result(self) -> bytes:
        """What it has written."""
        with open(self._result, "rb", closefd=False) as file:
            file.seek(0)  # the place in it is shared with the worker
            return file.read()

    def wait(self) -> None:
        """Wait until it has ended, but no longer than it may take."""
        with suppress(subprocess.TimeoutExpired):
            try:
                descriptor = os.pidfd_open(self.process.pid)
            # A kernel, a container or a Python without it: asked again and again, at longer and longer intervals.
            except (OSError, AttributeError):
                self.process.wait(_PATIENCE)
                return
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            try:
                poll.poll(_PATIENCE * 1000)
            finally:
                os.close(descriptor)

    def stop(self) -> None:
        """End the build's processes, if they have not ended; the supervisor does it in less than 2 seconds."""
        if self.jobs.closed:  # else there is nothing below it that anybody has started
            with suppress(ProcessLookupError):
                self.process.terminate()
            self.wait()
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End it, and let go of what this process has open of it."""
        try:
            self.stop()
        finally:
            self.jobs.close()
            self._opened.close()


def _inherited(number: int) -> int | None:
    """What a child gets for a standard stream: that of this process; one that leads nowhere where there is none."""
    try:
        os.fstat(number)
    except OSError:
        return subprocess.DEVNULL
    return None


def _behind_streams(descriptor: int) -> int:
    """Its content, by a number that no standard stream has: whoever is started without these gets theirs."""
    if descriptor > 2:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(descriptor)


_ready: list[_Worker] = []
"""The workers that were started ahead and wait for a job: one, but where several threads build."""


def _waiting() -> Iterator[_Worker]:
    """Those that this thread has started; each is its caller's from now on, to take or to close."""
    for worker in reversed(_ready.copy()):
        if worker.kind.owner == _owner():
            _ready.remove(worker)
            yield worker


def _taken(kind: _Kind) -> _Worker:
    """The worker that was started ahead if it is of such a kind, else another one."""
    for worker in _waiting():
        if worker.kind == kind:
            return worker
        worker.close()
    return _Worker(kind)


def environment(current: Mapping[str, str], *front_ends: str, toolkit: Toolkit | None = None) -> dict[str, str]:
    """The environment of workers for such front ends: `current`, less what would make two builds of one project differ.

    The compilers' settings change the code that is built. Of `toolkit` the libraries are found first.
    """
    known = registry.variables(front_ends)
    found = {
        name: value for name, value in current.items() if not name.startswith(known.prefixes) or name in known.kept
    }
    found |= {
        **dict(known.given),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "AOTCUDA_BUILDING": "1",  # for sources that have to know
        "AOTCUDA_LOAD": "first-use",  # a source may import other packaged modules, whose images are of no use here
    }
    if toolkit is not None:
        # pip isolates builds by an overlay on PYTHONPATH, which cuda.pathfinder does not search; and a toolkit that is
        # installed on the machine must not take the place of the one that the build asked for.
        folders = dict.fromkeys(str(Path(path).parent) for path in toolkit.libraries.values())
        found["CUDA_PATH"] = found["CUDA_HOME"] = toolkit.home
        found["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [*folders, current.get("LD_LIBRARY_PATH")]))
    return found


@dataclass(slots=True)
class _End:
    """How a worker ended.

    Attributes:
        step: What it was doing.
        failure: The error that it reported, or that was found in what it sent.
        digest: The SHA-256 of its result, if it has one.
        status: Its exit code, as the supervisor saw it; None if that was stopped before.
        goes_by_itself: It has said its last word, or is gone.
    """

    step: str = "starting Python"
    failure: AotcudaError | None = None
    digest: str | None = None
    status: int | None = None
    goes_by_itself: bool = True


def _follow(descriptor: int, token: str, watcher: Progress) -> _End:
    """Show progress until the worker is done; returns how it ended, as far as it says so itself."""
    end = _End()
    try:
        for message in channel.receive(descriptor, token, watcher.tick):
            match message:
                case {"error": str(kind), "message": text}:
                    end.failure = getattr(errors, kind, BuildError)(text)
                    break
                case {"finished": str(digest)}:
                    end.digest = digest
                    break
                case {"step": str(step), "done": int(done), "total": int(total)}:
                    end.step = step
                    watcher.show(step, done, total)
                case {"ended": int(status)}:
                    end.status = status
    except channel.ForeignBytesError as error:
        (data,) = error.args
        what = f"wrote {data[:40]!r} to file descriptor {channel.MESSAGES}, which the build's processes talk over"
        end.failure = BuildError(_foreign(what, end.step))
        end.goes_by_itself = False
    finally:
        watcher.clear()
    return end


def _death(end: _End, supervisor: int) -> BuildError:
    """What to say of a worker that ended without a word; `supervisor` is the exit code of the process above it."""
    status = supervisor if end.status is None else end.status
    if status == channel.LOST:
        return BuildError(_foreign("closed file descriptors that the build's processes talk over", end.step))
    if status == channel.FULL:
        return BuildError(f"{end.step}: {channel.NO_ROOM}")
    how = f"killed by {_name(-status)}" if status < 0 else f"exit status {status}"
    return BuildError(f"the build ended while {end.step} ({how}); what was printed stands above")


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _foreign(what: str, step: str) -> str:
    return f"{step}: code of the project {what}; a source may use only descriptors that it has opened itself"
