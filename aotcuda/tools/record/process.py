"""Run a command with the recorder or with packs in its Python processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda.tools.record import own_home

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType

    from aotcuda.tools.record.dry import Mode

_INJECT = Path(__file__).parent / "inject"


def run(command: Sequence[str], folder: Path, mode: Mode, types: dict[str, str], roots: Sequence[Path] = ()) -> int:
    """Run a command with the recorder in each of its Python processes; return its exit status as a shell does.

    Args:
        command: The program and its arguments.
        folder: The folder for the files of the recorder.
        mode: The way to record.
        types: `[tool.aotcuda] types` of the project.
        roots: The folders from which packages of the project are imported if they are not installed.

    Raises:
        OSError: There is no such program, or it cannot be run.
    """
    return wait_for(command, _environment(folder, mode, types, roots))


def wait_for(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a command in an environment; return its exit status as a shell does.

    Raises:
        OSError: There is no such program, or it cannot be run.
    """
    process = subprocess.Popen([_program(command[0]), *command[1:]], env=environ)

    def forward(number: int, _: FrameType | None) -> None:
        process.send_signal(number)

    def ignore(_: int, __: FrameType | None) -> None:
        """Ignore the signal; the terminal sends it to the command too."""

    # Signals must not end this process before the command, because the record is read afterwards.
    handlers: dict[signal.Signals, Any] = {signal.SIGTERM: forward, signal.SIGINT: ignore}
    if sys.platform != "win32":
        handlers[signal.SIGHUP] = forward
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - status if status < 0 else status


def injected_environment() -> dict[str, str]:
    """Return the variable that lets Python processes run the `sitecustomize` of `inject/`."""
    path = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": f"{_INJECT}{os.pathsep}{path}" if path else str(_INJECT)}


def _environment(folder: Path, mode: Mode, types: dict[str, str], roots: Sequence[Path]) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if name not in mode.removed},
        **mode.environ,
        # Modules that are packaged in place would launch packaged code, which the recorder does not see.
        "AOTCUDA_IN_PLACE": "0",
        # Autotuners may store their timings on disk; timings of launches that are not executed mean nothing.
        **({"TRITON_CACHE_DIR": str(folder / "triton"), **own_home.variables(folder)} if mode.dry else {}),
        "AOTCUDA_RECORD_FOLDER": str(folder),
        "AOTCUDA_RECORD_TYPES": json.dumps(types),
        "AOTCUDA_RECORD_ROOTS": os.pathsep.join(map(str, roots)),
        **injected_environment(),
    }


def _program(name: str) -> str:
    """Return the program, found in PATH or else in this environment."""
    if Path(name).name != name or shutil.which(name) is not None:
        return name
    return shutil.which(name, path=Path(sys.executable).parent) or name
