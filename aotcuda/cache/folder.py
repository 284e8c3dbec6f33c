"""Find the folders of caches, and check if they can be trusted."""

from __future__ import annotations

import os
import stat

from ..common import system


def folder() -> str | None:
    """Return the cache's folder: `AOTCUDA_CACHE_DIR`, or the user's cache folder; None without a home.

    The user's folder is `platformdirs.user_cache_dir("aotcuda")` on Linux, without the 20 ms of that import.
    """
    setting = os.environ.get("AOTCUDA_CACHE_DIR", "")
    if setting.strip():
        return expand(setting)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification ignores relative paths
        base = os.path.expanduser(os.path.join("~", ".cache"))
    return os.path.join(base, "aotcuda") if os.path.isabs(base) else None


def expand(path: str) -> str:
    """Return the absolute path of a folder, with ~ expanded: values from a Dockerfile have it."""
    return os.path.abspath(os.path.expanduser(path) if path.startswith("~") else path)


def distrust_reason(folder: str) -> str | None:
    """Return the reason not to trust a folder; None if only this user or the system can write it."""
    status = os.stat(folder)
    if not stat.S_ISDIR(status.st_mode):
        return "is not a folder"
    if system.is_other_user(status.st_uid):
        return "belongs to another user"
    if system.others_may_write(status.st_mode):
        return f"can be written by others (chmod go-w {folder})"
    return None


def problem(*folders: str) -> str | None:
    """Return the reason not to trust one of the existing folders, or None."""
    for path in folders:
        try:
            reason = distrust_reason(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            reason = f"cannot be read ({error.strerror})"
        if reason is not None:
            return f"{path} {reason}"
    return None
