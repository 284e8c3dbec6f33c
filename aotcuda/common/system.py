"""What the run time takes of the operating system that others have not, or have otherwise: what is Linux's alone.

For another system this is the file to change, and beside it `LIBRARY` and `after_fork` in `aotcuda.runtime.driver`.
There an import works as far as Python has what it needs, and the first use of the driver is refused in one line.
docs/systems.md says what was run where.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def why_not(what: str) -> str | None:
    """Why this system cannot do `what` ("launches kernels"), in a line; None on Linux."""
    if sys.platform == "linux":
        return None
    return f"aotcuda {what} on Linux alone, and this is {sys.platform}; docs/systems.md says what is known to run where"


if sys.platform == "linux":

    def machine() -> str:
        """Where process numbers mean something: this host, and in it this container."""
        try:
            space = os.readlink("/proc/self/ns/pid")
        except OSError:
            space = ""
        return f"{os.uname().nodename} {space}"

    def started(pid: int) -> str:
        """When a process was started, which tells it from a later one of its number; empty if that is not known."""
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                return file.read().rpartition(b")")[2].split()[19].decode()
        except (OSError, IndexError):
            return ""

    def is_gone(pid: int) -> bool:
        """Whether there is no process of a number; of those of other users that is known as well."""
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass
        return False

    def is_others(owner: int) -> bool:
        """Whether the owner of a file is another user than this process's and the system's."""
        return owner not in (os.geteuid(), 0)

    def kind_of_python() -> str:
        """For which Pythons extension modules are like this one's: `cpython-314t`."""
        return f"{sys.implementation.cache_tag}{sys.abiflags}"

else:

    def __getattr__(name: str) -> Any:
        from aotcuda.errors import AotcudaError  # noqa: PLC0415 (nothing else here needs it)

        del name
        raise AotcudaError(why_not("launches kernels and keeps what it compiled"))
