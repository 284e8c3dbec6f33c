"""Starting the worker process in an environment of its own, following its progress, and taking its result."""

from __future__ import annotations

import json
import os
import pickle
import secrets
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, cast

from aotcuda import errors, frontends, manifest
from aotcuda.builder import progress
from aotcuda.builder.worker import channel
from aotcuda.errors import AotcudaError, BuildError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    """Do `job` in a worker process. No process of the build outlives this call.

    Args:
        job: What to do.
        variables: More environment variables for it.
        watcher: Shows the progress; a line on a terminal by default.

    Raises:
        AotcudaError: What the worker found wrong.
        BuildError: The worker died, or a source got at what it talks over.
    """
    token = secrets.token_hex(16)
    result = os.memfd_create("aotcuda-result")  # a file without a name: nobody has to remove it
    with os.fdopen(result, "rb") as file:
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as messages:
            try:
                worker = _start(job, variables, [str(os.getpid()), str(writing), str(result), token])
            except OSError as error:
                message = f"the build cannot start a process ({error.strerror}); free some memory or processes"
                raise BuildError(message) from error
            finally:
                os.close(writing)
            try:
                with suppress(BrokenPipeError), cast("IO[bytes]", worker.stdin) as stream:  # a dead one is told below
                    pickle.dump(job, stream)
                end = _follow(messages.fileno(), token, watcher or progress.line(sys.stderr))
                if end.goes_by_itself:
                    worker.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                pass
            finally:
                _stop(worker)
        if end.failure is not None:
            raise end.failure
        if end.digest is None:
            raise _death(end, worker.returncode)
        file.seek(0)  # the place in it is shared with the worker
        data = file.read()
    if manifest.digest(data) != end.digest:
        raise BuildError(_foreign(f"wrote into the build's result (file descriptor {channel.MESSAGES + 1})", end.step))
    done: Result = pickle.loads(data)  # what the worker sent, as the digest says
    return done


def _start(job: Job, variables: Mapping[str, str], arguments: list[str]) -> subprocess.Popen[bytes]:
    paths = json.dumps([path for path in sys.path if path])
    extra = frontends.requirement(job.frontend, jit=job.product == "jit")
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _START, paths, *arguments, extra],
        stdin=subprocess.PIPE,
        pass_fds=[int(descriptor) for descriptor in arguments[1:3]],
        cwd=job.root,
        env={**environment(os.environ, job.frontend, toolkit=job.toolkit), **variables},
        start_new_session=True,  # Ctrl-C on a terminal is this process's to answer
    )


def _stop(worker: subprocess.Popen[bytes]) -> None:
    """End the build's processes, if they have not ended; the supervisor does it in less than 2 seconds."""
    with suppress(ProcessLookupError):
        worker.terminate()
    with suppress(subprocess.TimeoutExpired):
        worker.wait(_PATIENCE)
    worker.kill()
    worker.wait()


def environment(current: Mapping[str, str], *front_ends: str, toolkit: Toolkit | None = None) -> dict[str, str]:
    """The environment of workers for such front ends: `current`, less what would make two builds of one project differ.

    The compilers' settings change the code that is built. Of `toolkit` the libraries are found first.
    """
    known = frontends.variables(front_ends)
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
    how = f"killed by {_name(-status)}" if status < 0 else f"exit status {status}"
    return BuildError(f"the build ended while {end.step} ({how}); what was printed stands above")


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _foreign(what: str, step: str) -> str:
    return f"{step}: code of the project {what}; a source may use only descriptors that it has opened itself"
