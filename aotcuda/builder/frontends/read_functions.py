"""Which Python functions a compiler reads for a unit: the unit's own, and all that it finds by their values.

A function may be found by other names than its own, or by none, in a container that a library has filled. The build
cache keeps a unit only where it knows of each (`build_cache/slices.py`).
"""

from __future__ import annotations

import functools
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda import registry
from aotcuda.builder.worker import dependency_trace
from aotcuda.builder.worker.calls import Calls

if TYPE_CHECKING:
    from collections.abc import Iterator

_read: list[set[tuple[str, int]]] = []
"""What is gathered now, by file and first line; the last one is the unit's."""


UNSEEN = ("", 0)
"""Stands for functions that ran and were not seen: somebody else watched calls meanwhile."""


def note(function: Any) -> None:
    """The compiler reads a function, or a dispatcher's."""
    code = getattr(getattr(function, "py_func", function), "__code__", None)
    if code is not None and _read:
        _read[-1].add((code.co_filename, code.co_firstlineno))


@contextmanager
def running() -> Iterator[None]:
    """Note what runs in the block, too: compilers run functions of the project to have constants and code of them.

    What compilers run of their own, and of Python's, is left out.
    """
    calls = Calls()
    with calls.watching():
        yield
    own = _own()
    _read[-1].update(place for place in calls.places if not place[0].startswith(own))
    if not calls.complete:
        _read[-1].add(UNSEEN)


@functools.cache
def _own() -> tuple[str, ...]:
    compilers = (*dependency_trace.TOOLCHAIN, *registry.internals(registry.DEFAULT))
    return (f"{Path(os.__file__).parent}/", *dependency_trace.folders_of(compilers))


@contextmanager
def watching() -> Iterator[set[tuple[str, int]]]:
    """Gather what is read in the block."""
    _read.append(set())
    try:
        yield _read[-1]
    finally:
        _read.pop()
