"""Kill a forked process in the middle of its work."""

from __future__ import annotations

import os
import signal
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def killed_at(number: int, steps: Iterable[str], write: Callable[[], None]) -> bool:
    """Write in a process that is killed before a step; return False if it ended before that step.

    Args:
        number: The number of the step, from 1.
        steps: The functions of `os` that count as steps.
        write: The work of the process; its errors fail the test.
    """
    if (pid := os.fork()) == 0:
        _write_until(number, steps, write)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


def _write_until(number: int, steps: Iterable[str], write: Callable[[], None]) -> NoReturn:
    left, status = number, 1

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **options)

        return step

    try:
        for name in steps:
            setattr(os, name, counted(getattr(os, name)))
        write()
        status = 0
    except BaseException:  # noqa: BLE001 (this process never returns to pytest)
        traceback.print_exc()
    finally:
        os._exit(status)
