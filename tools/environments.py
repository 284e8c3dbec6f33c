#!/usr/bin/env python3
"""Virtual environments for the scripts beside this file: made once, in git-ignored folders of the checkout.

The standard library only: this runs on a fresh machine with nothing but Python and pip.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parent.parent


def check_machine() -> None:
    """End with one line if Python is too old or the system is none that builds run on."""
    if sys.version_info < (3, 11):  # noqa: UP036 (whoever has an older one is to read why it does not work)
        sys.exit(f"aotcuda needs Python 3.11 or newer; {sys.executable} is {sys.version.partition(' ')[0]}")
    if sys.platform != "linux":
        sys.exit(f"aotcuda builds on Linux; this is {sys.platform}")


def say(text: str) -> None:
    """Print a heading, ahead of what the next command prints."""
    print(f"\n== {text}", flush=True)


def environment() -> dict[str, str]:
    """Return the environment variables, less those that would show an environment other packages than its own."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def run(*command: str | Path, folder: Path = ROOT) -> None:
    """Run a command in `folder`; end the script if it fails."""
    done = subprocess.run([str(part) for part in command], cwd=folder, env=environment(), check=False)
    if done.returncode:
        sys.exit(f"\nThis failed with exit status {done.returncode}: {' '.join(map(str, command))}")


def make(name: str, *requirements: str, fresh: bool = False) -> Path:
    """Return the Python of environment `name`, with the requirements installed in their current state.

    Args:
        name: The environment's name; it lies in the folder `.venv-<name>`.
        requirements: What pip installs into it.
        fresh: Whether to empty it first.
    """
    folder = ROOT / f".venv-{name}"
    python = folder / "bin" / "python"
    marker = folder / "made-by"  # written last, so that a half-made environment is made again
    if fresh or not marker.is_file() or marker.read_text(encoding="utf-8") != sys.version:
        run(sys.executable, "-m", "venv", "--clear", folder)
        marker.write_text(sys.version, encoding="utf-8")
    started = time.monotonic()
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)
    print(f"{folder.name}: ready after {time.monotonic() - started:.0f} s", flush=True)
    return python


def install_beside(python: Path, name: str, requirements: Iterable[str]) -> None:
    """Install packages, without their dependencies, in folder `name` of an environment.

    A folder that was made for another list of requirements is made again.
    """
    folder = python.parents[1] / name
    marker = folder / "requirements.txt"  # written last, so that a half-made folder is made again
    wanted = "".join(f"{item}\n" for item in requirements)
    if marker.is_file() and marker.read_text(encoding="utf-8") == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps")
    run(*pip, "--target", folder, *wanted.splitlines())
    marker.write_text(wanted, encoding="utf-8")
