"""`aotcuda run`: run a command with packs in each of its Python processes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from aotcuda import packs
from aotcuda.tools.record import process

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOT_FOUND = 127
"""A shell's exit status for a command that it cannot run."""


def run(command: Sequence[str], names: Sequence[str]) -> int:
    """Run a command with packs in each of its Python processes that imports Triton, and return the exit status.

    Args:
        command: The program and its arguments.
        names: The packs.
    """
    environ = {**os.environ, **process.injected_environment(), packs.VARIABLE: ",".join(names)}
    try:
        return process.wait_for(command, environ)
    except OSError as error:
        print(f"aotcuda: {command[0]} cannot be run: {error.strerror}", file=sys.stderr)
        return _NOT_FOUND
