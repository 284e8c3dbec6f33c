"""Start a worker process in a clean environment, show its progress, and return its result."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import TYPE_CHECKING, cast

from aotcuda import registry
from aotcuda.builder.compile import ipc, process_tree
from aotcuda.builder.compile.job import NeedsImports
from aotcuda.builder.emit import progress
from aotcuda.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from multiprocessing.connection import Connection

    from aotcuda.builder.compile.job import Job, OtherImport, Result
    from aotcuda.builder.emit.progress import Progress
    from aotcuda.builder.plan.toolkits import Toolkit

# The worker gets the path of this process as an argument. PYTHONPATH does not work, because pip's sitecustomize for
# isolated builds fails if its folders are on the path already. The worker writes the compiler's bytecode if this
# process would: uv installs packages without bytecode, which takes seconds to make.
_START = """
import json, sys
sys.path[:], sys.dont_write_bytecode = json.loads(sys.argv.pop(1))
from aotcuda.builder.compile import start
sys.exit(start.main())
"""

_TICK = 0.5
"""Seconds between two updates of the progress display."""

_PATIENCE = 2.0
"""Seconds that a worker has to end after its last message; threads of a source may never end."""


JIT_VARIABLES = {"AOTCUDA_FALLBACK": "error"}
"""More environment variables of a JIT build's workers.

The user's modules may import packages that aotcuda built. These must not start another JIT build.
"""


def run(job: Job, watcher: Progress | None = None) -> Result:
    """Do `job` in a worker process, and end all processes below the worker before this call returns.

    Sources that query the target are imported once for each compute capability, each time by a worker of its own.

    Raises:
        AotcudaError: A worker reports what is wrong with the project or the toolchain.
        BuildError: A worker died, or a source interfered with its messages.
    """
    result = _run_worker(job, watcher)
    if isinstance(result, NeedsImports):
        jobs = [replace(job, import_for=each) for each in result.imports]
        others = tuple(cast("OtherImport", _run_worker(other, watcher)) for other in jobs)
        result = _run_worker(replace(job, others=replace(job.others, imports=others)), watcher)
    return cast("Result", result)


def _run_worker(job: Job, watcher: Progress | None) -> object:
    """Do `job` in a worker process, and return its answer."""
    watcher = watcher or progress.line(sys.stderr)
    with _start_worker(job) as (process, messages):
        step = "starting Python"
        try:
            while True:
                while not messages.poll(_TICK):
                    watcher.tick()
                match ipc.read(messages):
                    case ipc.Step(title, done, total, slowest):
                        step = title
                        watcher.show(title, done, total, slowest)
                    case ipc.Failed(error):
                        _await_end(messages)
                        raise error
                    case ipc.Finished(result):
                        _await_end(messages)
                        return result
        except ValueError as error:
            text = f"{step}: {error}"
            raise BuildError(text) from None
        except EOFError:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE)
            _stop(process)
            raise _death_error(step, process.returncode) from None
        finally:
            watcher.clear()


@contextmanager
def _start_worker(job: Job) -> Iterator[tuple[subprocess.Popen[bytes], Connection]]:
    """Start a worker and send it its job; end the worker and all processes below it when the block ends."""
    _fill_standard_streams()
    receiver, sender = Pipe(duplex=False)
    requirement = registry.requirement(job.frontend, jit=job.product.kind == "jit")
    variables = JIT_VARIABLES if job.product.kind == "jit" else {}
    settings = json.dumps([[path for path in sys.path if path], sys.dont_write_bytecode])
    with receiver:
        try:
            with sender:
                process = subprocess.Popen(
                    _command(settings, str(os.getpid()), str(sender.fileno()), requirement),
                    stdin=subprocess.PIPE,
                    pass_fds=[sender.fileno()],
                    cwd=job.root,
                    env=environment(os.environ, job.frontend, toolkit=job.toolkit) | variables,
                    start_new_session=True,  # the build answers Ctrl-C on a terminal
                )
        except OSError as error:
            raise process_tree.start_error(error) from error
        try:
            with suppress(BrokenPipeError), process.stdin:  # type: ignore[union-attr]  # `run` reports a worker that has ended
                pickle.dump(job, process.stdin)  # type: ignore[arg-type]
            yield process, receiver
        finally:
            _stop(process)


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-c", _START, *arguments]


def _fill_standard_streams() -> None:
    """Open the null device for each standard stream that is closed, so that no pipe gets its number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _await_end(messages: Connection) -> None:
    """Give a worker that has sent its last message the time to end by itself."""
    with suppress(ValueError, EOFError):
        if messages.poll(_PATIENCE):  # the pipe ends with the last process that has it open
            ipc.read(messages)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the reaper, which ends all processes below it in less than two seconds."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_PATIENCE)
    process.kill()
    process.wait()


def environment(current: Mapping[str, str], *front_ends: str, toolkit: Toolkit | None = None) -> dict[str, str]:
    """Return the environment of workers for these front ends: `current` without variables that change the result.

    The compilers' settings change the code that is built. The libraries of `toolkit` are found first.
    """
    of_compilers = registry.variables(front_ends)
    variables = {
        name: value
        for name, value in current.items()
        if not name.startswith(of_compilers.prefixes) or name in of_compilers.kept
    }
    variables |= {
        **dict(of_compilers.given),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "AOTCUDA_BUILDING": "1",  # sources may check it
        "AOTCUDA_LOAD": "first-use",  # sources may import packaged modules, which must not load images here
    }
    if toolkit is not None:
        # pip isolates builds by an overlay on PYTHONPATH, which cuda.pathfinder does not search; and a toolkit that is
        # installed on the machine must not replace the one that the build needs.
        folders = dict.fromkeys(str(Path(path).parent) for path in toolkit.libraries.values())
        variables["CUDA_PATH"] = variables["CUDA_HOME"] = toolkit.home
        variables["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [*folders, current.get("LD_LIBRARY_PATH")]))
    return variables


def _death_error(step: str, status: int) -> BuildError:
    """Return the error about a worker that ended without a last message; `status` is the reaper's exit status."""
    number = -status if status < 0 else status - 128
    cause = f"killed by {process_tree.signal_name(number)}" if number > 0 else f"exit status {status}"
    return BuildError(f"the build ended while {step} ({cause}); its output is printed above")
