"""Report files that packages write outside of the command's own folders after an autotuner has timed configs."""

from __future__ import annotations

import os
import sys
import threading

import aotcuda_recorder
from aotcuda_recorder import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_WRITES = os.O_WRONLY | os.O_RDWR
_state = threading.local()
_watching: list[bool] = []


def watch() -> None:
    """Begin to report files, in this process."""
    if not _watching:
        _watching.append(True)
        sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        if not isinstance(arguments[2], int) or not arguments[2] & _WRITES:
            return
    elif event != "sqlite3.connect":
        return
    if getattr(_state, "is_busy", False) or isinstance(arguments[0], int):
        return
    _state.is_busy = True
    try:
        path = os.path.realpath(os.fsdecode(arguments[0]))
        home = os.path.realpath(aotcuda_recorder.environ[aotcuda_recorder.HOME])
        installed = tuple(os.path.join(entry, "") for entry in sys.path if entry.endswith("-packages"))
        own = (os.path.realpath(aotcuda_recorder.environ[aotcuda_recorder.FOLDER]), os.getcwd())
        watched = (os.path.join(home, ""), *installed)
        if path.startswith(watched) and not path.startswith(own) and "__pycache__" not in path:
            log.write_once({"kind": "file", "path": path})
    finally:
        _state.is_busy = False
