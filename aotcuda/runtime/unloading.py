"""Taking images out of the driver that are out of use, once the launches of them that were under way have ended.

Launches take no lock, so who unloads finds out afterwards whether any is under way: docs/design.md says how.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from aotcuda.runtime.library import Library

    Leaving = tuple[list[Library], list[Callable[[], bool]]]
    """Images that are to go together, and who is asked whether launches of them have ended."""

_PATIENCE = 100
"""Milliseconds that an unload waits for launches of other threads."""


def take_out(leaving: list[Leaving], staying: list[Leaving]) -> Exception | None:
    """Take out of the driver what no launch has any more, and give the first error of what went all the same.

    Args:
        leaving: What is to go; each is removed once it went, so that all others are there after an interrupt.
        staying: Where that is added which launches have still.
    """
    error: Exception | None = None
    while leaving:
        libraries, are_over = leaving[0]
        if not all([each.is_idle() for each in libraries] + [is_over() for is_over in are_over]):
            staying += leaving[:1]
            del leaving[0]
            continue
        for library in libraries:
            try:
                library.unload()
            except Exception as problem:  # noqa: BLE001 (raised by who asked: the others must go too)
                error = error or problem
        del leaving[0]
    return error


def persist(sweep: Callable[[], bool]) -> None:
    """Call `sweep` until it answers that all went, but no longer than launches of other threads are waited for."""
    for _ in range(_PATIENCE):
        if sweep():
            return
        time.sleep(0.001)
    sweep()
