"""Writers that are killed in the midst of their work, each in a process of its own, which is forked."""

from __future__ import annotations

import os
import signal
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def killed_at(number: int, steps: Iterable[str], write: Callable[[], None]) -> bool:
    """Write in a process that is killed before its step of this number, counted from 1; whether it came so far.

    Args:
        number: The step's.
        steps: What counts as one: functions of `os`.
        write: What the process does; whatever it raises fails the test.
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
    except BaseException:  # noqa: BLE001 (told here: this process never comes back to pytest)
        traceback.print_exc()
    finally:
        os._exit(status)
