"""Functions of the run time that differ between operating systems, and the abilities of each system.

For another system change this file, and `LIBRARY` and `after_fork` in `aotcuda.runtime.driver`. docs/systems.md lists
the tested systems.
"""

from __future__ import annotations

import os
import stat
import sys


def why_no_launches() -> str | None:
    """Return the reason that this system cannot launch kernels; None on Linux and Windows."""
    return None if sys.platform == "win32" else why_not("launches kernels", "Linux and Windows")


def why_not(what: str, where: str = "Linux") -> str | None:
    """Return the reason that this system cannot do `what` ("builds"); None on Linux."""
    if sys.platform == "linux":
        return None
    return f"aotcuda {what} on {where} alone, and this is {sys.platform}; use one of these systems"


def kind_of_python() -> str:
    """Return the tag of Pythons with the same extension modules: `cpython-314t`."""
    return f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}"  # Windows has had the flags since 3.14


if sys.platform == "linux":

    def is_other_user(owner: int) -> bool:
        """Return True if the owner of a file is neither this process's user nor the system."""
        return owner not in (os.geteuid(), 0)

    def others_may_write(mode: int) -> bool:
        """Return True if a file's mode lets other users write the file."""
        return bool(mode & (stat.S_IWGRP | stat.S_IWOTH))

else:

    def is_other_user(owner: int) -> bool:  # noqa: ARG001 (as on Linux)
        """Return False, since owner and mode of a file have no meaning on this system."""
        return False

    others_may_write = is_other_user
