"""Unload images that are out of use, once launches of them in progress have ended.

Launches take no lock, so an unload checks afterwards if any is in progress; see docs/design.md.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from aotcuda.runtime.library import Library

    Leaving = tuple[list[Library], list[Callable[[], bool]]]
    """Images that are unloaded together, and the checks for launches of them in progress."""

_PATIENCE = 100
"""Milliseconds that an unload waits for launches of other threads."""


def unload_unused(leaving: list[Leaving], staying: list[Leaving]) -> Exception | None:
    """Unload the images that no launch uses any more, and return the first error.

    Args:
        leaving: The images to unload; each item is removed after its unload, so that an interrupt keeps the others.
        staying: The list to which items are added whose launches are in progress.
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
            except Exception as problem:  # noqa: BLE001 (returned after the other unloads)
                error = error or problem
        del leaving[0]
    return error


def retry(sweep: Callable[[], bool]) -> None:
    """Call `sweep` until it returns that all are unloaded, within the time limit for launches of other threads."""
    for _ in range(_PATIENCE):
        if sweep():
            return
        time.sleep(0.001)
    sweep()
