"""Unload images that are out of use, once the launches in progress have ended.

Launches take no lock, so an unload checks afterwards if any is in progress; see docs/design.md.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .library import Library

    Retired = tuple[list[Library], list[Callable[[], bool]]]
    """Images that are unloaded together, and functions that return True once launches of them have ended."""

_PATIENCE = 100
"""Milliseconds that an unload waits for launches of other threads."""


def unload_idle(retired: list[Retired], in_use: list[Retired]) -> Exception | None:
    """Unload the images that no launch uses any more, and return the first error.

    Args:
        retired: The images to unload. The function removes each item after its unload, so an interrupt loses none.
        in_use: The list to which the function adds items whose launches are in progress.
    """
    error: Exception | None = None
    while retired:
        libraries, checks = retired[0]
        if not all([library.is_idle() for library in libraries] + [is_idle() for is_idle in checks]):
            in_use += retired[:1]
            del retired[0]
            continue
        for library in libraries:
            try:
                library.unload()
            except Exception as problem:  # noqa: BLE001 (returned after the other unloads)
                error = error or problem
        del retired[0]
    return error


def retry(sweep: Callable[[], bool]) -> None:
    """Call `sweep` until it returns that all are unloaded, within the time limit for launches of other threads."""
    for _ in range(_PATIENCE):
        if sweep():
            return
        time.sleep(0.001)
    sweep()
