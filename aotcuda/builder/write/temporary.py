"""Make temporary files and folders whose names identify the process, so the next build can remove leftovers."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda.common import process_names
from aotcuda.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME = re.compile(rf".*\.?aotcuda-tmp-{process_names.PATTERN.pattern}")
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
    return f"{stem}aotcuda-tmp-{process_names.make()}"


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
    ended = process_names.has_ended(match)
    return time.time() - status.st_mtime > _OLD if ended is None else ended
