"""Starting the worker process in an environment of its own, following its progress, and taking its result."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, cast

from aotcuda import errors, reads
from aotcuda.build import frontends
from aotcuda.errors import AotcudaError, BuildError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aotcuda.build.job import Job, Result

# Numba's settings from the environment change the code that is built; these say where headers are, and stay.
_KEPT = reads.SETTINGS

# The worker finds modules where this process finds them. PYTHONPATH must not say so: pip's isolation starts Python by a
# sitecustomize of its own, which gives up when the folders that it is about to add are on the path already.
_START = """
import json, os, sys
sys.path[:] = json.loads(sys.argv.pop(1))
try:
    from aotcuda.build import worker
except ImportError as error:
    message = f"building needs {error.name}, which is not installed; run: pip install {sys.argv[3]!r}"
    os.write(int(sys.argv[1]), (json.dumps({"error": "ToolchainError", "message": message}) + "\\n").encode())
    sys.exit(1)
sys.exit(worker.main())
"""


def run(job: Job, variables: Mapping[str, str] = MappingProxyType({})) -> Result:
    """Do `job` in a worker process, with more environment `variables`.

    Raises:
        AotcudaError: What the worker found wrong.
        BuildError: The worker died.
    """
    with tempfile.TemporaryDirectory(prefix="aotcuda-") as folder:
        output = Path(folder, "result")
        reading, writing = os.pipe()
        paths = json.dumps([path for path in sys.path if path])
        extra = frontends.extra_of(job.frontend, late=job.late)
        command = [sys.executable, "-P", "-c", _START, paths, str(writing), str(output), extra]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            pass_fds=[writing],
            cwd=job.root,
            env={**environment(os.environ), **variables},
        ) as worker:
            os.close(writing)
            with suppress(BrokenPipeError), cast("IO[bytes]", worker.stdin) as stream:  # a dead worker's status tells
                pickle.dump(job, stream)
            failure, step = _follow(reading)
            status = worker.wait()
        if failure is not None:
            raise failure
        if status != 0 or not output.is_file():
            how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
            message = f"the build ended while {step} ({how}); what was printed stands above"
            raise BuildError(message)
        result: Result = pickle.loads(output.read_bytes())
        return result


def environment(current: Mapping[str, str]) -> dict[str, str]:
    """The worker's environment: `current`, less what would make two builds of the same project differ."""
    found = {name: value for name, value in current.items() if not name.startswith("NUMBA_") or name in _KEPT}
    found |= {
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING": "1",
        "AOTCUDA_LOAD": "first-use",  # a source may import other packaged modules, whose images are of no use here
    }
    if toolkit := _toolkit(sys.path):
        # pip isolates builds by an overlay on PYTHONPATH, which cuda.pathfinder does not search; and a toolkit that is
        # installed on the machine must not take the place of the one that the build asked for.
        found["CUDA_PATH"] = found["CUDA_HOME"] = str(toolkit)
        found["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(toolkit / "lib"), current.get("LD_LIBRARY_PATH")]))
    return found


def _toolkit(paths: list[str]) -> Path | None:
    """The CUDA toolkit among the installed packages: the folder that `nvidia-*` wheels of CUDA 13 share.

    A folder without compilers, as other packages need it for their libraries, is none: there the machine's toolkit is
    the one to use.
    """
    for path in paths:
        candidate = Path(path, "nvidia", "cu13")
        if any(candidate.glob("lib/libnvrtc.so.*")) and any(candidate.glob("lib/libnvvm.so.*")):
            return candidate
    return None


def _follow(descriptor: int) -> tuple[AotcudaError | None, str]:
    """Show progress until the worker is done; returns the error that it reports, if it does, and its last step."""
    failure = None
    step = "starting Python"
    line = _Line()
    with os.fdopen(descriptor, encoding="utf-8") as messages:
        for text in messages:
            message = json.loads(text)
            if "error" in message:
                kind = getattr(errors, message["error"], BuildError)
                failure = kind(message["message"])
            elif "step" in message:
                step = message["step"]
                line.show(step, message["done"], message["total"])
    line.clear()
    return failure, step


class _Line:
    """One line on a terminal that is written over and over; nothing when standard error is no terminal."""

    def __init__(self) -> None:
        self.on = sys.stderr.isatty()

    def show(self, step: str, done: int, total: int) -> None:
        if self.on:
            counter = f"[{done}/{total}] " if total else ""
            width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            sys.stderr.write(f"\r\x1b[2K{f'aotcuda {counter}{step}'[: width - 1]}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self.on:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
