#!/usr/bin/env python3
"""Make virtual environments for the scripts in this folder, once, in git-ignored folders of the checkout.

This module imports the standard library alone, since it runs on fresh machines with Python and pip.
"""

from __future__ import annotations

import ast
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
    """Exit with one line if Python is too old, or if builds do not run on the system."""
    if sys.version_info < (3, 11):  # noqa: UP036 (users of older Pythons read the message)
        sys.exit(f"aotcuda needs Python 3.11 or newer; {sys.executable} is {sys.version.partition(' ')[0]}")
    if sys.platform != "linux":
        sys.exit(f"aotcuda builds on Linux; this is {sys.platform}")


def say(text: str) -> None:
    """Print a heading before the output of the next command."""
    print(f"\n== {text}", flush=True)


def environment() -> dict[str, str]:
    """Return the environment variables, except those that add packages to a virtual environment."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def run(*command: str | Path, folder: Path = ROOT) -> None:
    """Run a command in `folder`; end the script if it fails."""
    done = subprocess.run([str(part) for part in command], cwd=folder, env=environment(), check=False)
    if done.returncode:
        sys.exit(f"\nThis failed with exit status {done.returncode}: {' '.join(map(str, command))}")


def make(name: str, *requirements: str, fresh: bool = False) -> Path:
    """Return the Python of environment `name`, with the requirements installed in their current state.

    Args:
        name: The environment's name; it is in the folder `.venv-<name>`.
        requirements: The packages to install, as arguments of pip.
        fresh: Empty the environment first.
    """
    started = time.monotonic()
    python = _make_empty(name, fresh=fresh)
    install(python, *requirements)
    print(f".venv-{name}: ready after {time.monotonic() - started:.0f} s", flush=True)
    return python


def _make_empty(name: str, *, fresh: bool) -> Path:
    """Return the Python of environment `name`; make the environment if it is missing or incomplete."""
    folder = ROOT / f".venv-{name}"
    marker = folder / "made-by"  # the last file, so that an incomplete environment is made again
    if fresh or not marker.is_file() or marker.read_text(encoding="utf-8") != sys.version:
        run(sys.executable, "-m", "venv", "--clear", folder)
        marker.write_text(sys.version, encoding="utf-8")
    return folder / "bin" / "python"


def install(python: Path, *arguments: str | Path) -> None:
    """Install packages for a Python with uv, which takes a third of pip's time and a fifth of its processor time.

    uv uses the indexes of pip's configuration. If uv cannot be installed, pip installs the packages.
    """
    python_of_uv = _make_empty("uv", fresh=False)
    uv = python_of_uv.with_name("uv")
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    if uv.is_file() or not subprocess.run([python_of_uv, *pip, "uv>=0.5"], env=environment(), check=False).returncode:
        again = ("--reinstall-package", "aotcuda")  # builds the extension in C of an editable install
        run(uv, "pip", "install", "--quiet", "--python", python, *again, *_settings(python_of_uv), *arguments)
    else:
        run(python, *pip, *arguments)


def _settings(python: Path) -> list[str]:
    """Return pip's configuration as options of uv."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "config", "list"]
    listed = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout
    options = ["--index-strategy", "unsafe-best-match"]  # pip also uses the best version of all indexes
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        if option := _OPTIONS.get(key.rpartition(".")[2]):
            options += [part for word in ast.literal_eval(value).split() for part in (option, word)]
        elif key.endswith(".cert"):
            os.environ.setdefault("SSL_CERT_FILE", ast.literal_eval(value))
    return options


_OPTIONS = {
    "constraint": "--constraint",
    "extra-index-url": "--extra-index-url",
    "find-links": "--find-links",
    "index-url": "--index-url",
    "trusted-host": "--allow-insecure-host",
}
"""The options of uv, by the keys of pip's configuration."""


def install_folder(python: Path, name: str, requirements: Iterable[str]) -> None:
    """Install packages, without their dependencies, into folder `name` of an environment.

    If the folder has another list of requirements, it is made again.
    """
    folder = python.parents[1] / name
    marker = folder / "requirements.txt"  # the last file, so that an incomplete folder is made again
    text = "".join(f"{item}\n" for item in requirements)
    if marker.is_file() and marker.read_text(encoding="utf-8") == text:
        return
    shutil.rmtree(folder, ignore_errors=True)
    install(python, "--no-deps", "--target", folder, *text.splitlines())
    marker.write_text(text, encoding="utf-8")
