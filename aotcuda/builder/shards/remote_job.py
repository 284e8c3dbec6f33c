"""Run one shard of another machine's build: the function that a worker of an executor calls.

The shard runs in a new process, which ends with the worker, or when the build is cancelled.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aotcuda.builder.write import temporary

if TYPE_CHECKING:
    from pathlib import Path

ARCHIVE, REQUEST, RESULT, ENTRIES = "project.zip", "request.json", "result.json", "entries"

_START = """
import json, sys
sys.path[:] = json.loads(sys.argv.pop(1))
from aotcuda.builder.shards import remote_build
remote_build.main()
"""

_TICK = 0.5
_TIME_LIMIT = 5.0


class CancelledError(Exception):
    """The build that requested the shard has cancelled it."""


def run(archive: bytes, request: dict[str, Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Build a shard of a project; return its outcome, and the entries of the build cache.

    Args:
        archive: The project's files.
        request: The shard, in the form for `remote_build.main`.
    """
    folder = temporary.make_folder()
    try:
        (folder / ARCHIVE).write_bytes(archive)
        (folder / REQUEST).write_text(json.dumps(request), encoding="utf-8")
        last_line = _run(folder)
        with suppress(FileNotFoundError):
            result = json.loads((folder / RESULT).read_bytes())
            entries = {path.name: path.read_bytes() for path in sorted((folder / ENTRIES).glob("*"))}
            return {**result, "worker": _worker_name()}, entries
        return {"error": f"its process ended without a result: {last_line}", "worker": _worker_name()}, {}
    finally:
        temporary.remove(folder)


def _run(folder: Path) -> str:
    """Run the process; return the last line that it printed."""
    paths = json.dumps([path for path in sys.path if path])
    with (folder / "output").open("wb+") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, paths, str(os.getpid())],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_TICK)
                if _is_cancelled():
                    raise CancelledError
        finally:
            if process.poll() is None:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_TIME_LIMIT)
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        lines = output.read().decode(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), f"exit status {process.returncode}")


def _is_cancelled() -> bool:
    """Return True if this is a task of Dask that was cancelled; Dask does not end a running task."""
    distributed: Any = sys.modules.get("distributed")
    with suppress(Exception):  # not a task of Dask
        worker = distributed.get_worker()
        task = worker.state.tasks.get(worker.get_current_task())
        return task is None or task.state == "cancelled"
    return False


def _worker_name() -> str:
    return f"{socket.gethostname()} (process {os.getpid()})"
