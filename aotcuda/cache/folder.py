"""Where caches lie, and whether a folder is to be trusted."""

from __future__ import annotations

import os
import stat

from aotcuda.common import system

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def folder() -> str | None:
    """The cache's folder: `AOTCUDA_CACHE_DIR`, or the user's cache folder; None if the user has no home.

    The latter is what `platformdirs.user_cache_dir("aotcuda")` gives on Linux, without the 20 ms of its import.
    """
    given = os.environ.get("AOTCUDA_CACHE_DIR", "")
    if given.strip():
        return named(given)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not base.strip():
        base = os.path.expanduser("~/.cache")
    return os.path.join(base, "aotcuda") if os.path.isabs(base) else None


def named(given: str) -> str:
    """The folder that an environment variable names; no shell has read the ~ of one that a Dockerfile sets."""
    return os.path.abspath(os.path.expanduser(given) if given.startswith("~") else given)


def whose(folder: str) -> str | None:
    """Why a folder is not to be trusted; None if it is ours, or the system's, and nobody else can write it."""
    status = os.stat(folder)
    if not stat.S_ISDIR(status.st_mode):
        return "is not a folder"
    if system.is_others(status.st_uid):
        return "belongs to another user"
    if status.st_mode & _OTHERS_WRITE:
        return f"can be written by others (chmod go-w {folder})"
    return None


def problem(*folders: str) -> str | None:
    """Which of these folders, those that are not there apart, is not to be trusted, and why; None if all are."""
    for path in folders:
        try:
            found = whose(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            found = f"cannot be read ({error.strerror})"
        if found is not None:
            return f"{path} {found}"
    return None
