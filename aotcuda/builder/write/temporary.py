"""Make temporary files and folders whose names identify the process, so the next build can remove leftovers.

A name contains the machine (its boot and its process namespace, because containers and hosts may share a folder), the
process number and the start time, because process numbers are used again.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
import time
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME = re.compile(r".*\.?aotcuda-tmp-(?P<place>[0-9a-f]{12})-(?P<pid>\d+)-(?P<start>\d+)-[0-9a-f]+")
_OLD = 7 * 24 * 3600
"""Seconds after which leftovers of another machine, or of this one before a restart, are removed."""


def make_folder() -> Path:
    """Make a folder for files of this build, which only this user can read."""
    try:
        home = Path(tempfile.gettempdir())
        sweep(home)
        path = home / make_name("")
        path.mkdir(mode=0o700)
    except OSError as error:
        message = f"no temporary folder can be made ({error}); set TMPDIR to a folder with free space"
        raise BuildError(message) from error
    return path


@contextmanager
def folder() -> Iterator[Path]:
    """Make a folder as `make_folder` does, and remove it after the block."""
    path = make_folder()
    try:
        yield path
    finally:
        remove(path)


def make_name(stem: str) -> str:
    """Return a new name for a file of this process, beginning with `stem`."""
    pid = os.getpid()
    return f"{stem}aotcuda-tmp-{_machine()}-{pid}-{_start_time(pid)}-{secrets.token_hex(4)}"


def sweep(folder: Path) -> None:
    """Remove leftovers of killed builds from `folder`."""
    with suppress(OSError):
        for path in folder.iterdir():
            if (match := _NAME.fullmatch(path.name)) and _is_leftover(path, match):
                remove(path)


def remove(path: Path) -> None:
    """Remove a file or folder if possible."""
    if os.path.isdir(path) and not path.is_symlink():  # noqa: PTH112 (pathlib raises where a name is too long)
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _is_leftover(path: Path, match: re.Match[str]) -> bool:
    """Return True if this user owns the file and its process has ended."""
    status = path.lstat()
    if status.st_uid != os.getuid():
        return False
    if match["place"] != _machine():
        return time.time() - status.st_mtime > _OLD
    return _start_time(int(match["pid"])) != int(match["start"])


def _machine() -> str:
    """Return a name for the boot of this machine and its process namespace, in which process numbers are valid."""
    parts = [os.uname().nodename]
    with suppress(OSError):
        parts = [Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()]
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return sha256(" ".join(parts).encode()).hexdigest()[:12]


def _start_time(pid: int) -> int:
    """Return the start time of a process in ticks after the start of the machine (proc_pid_stat(5)); 0 if it ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])  # the program's name before it may hold any character
