"""A build killed at any step of writing to its cache leaves nothing that a later one trips over.

Every step that the write asks of the system is tried in turn. `bench/build_kills.py` kills whole builds instead.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from aotcuda.builder.build_cache import remote
from aotcuda.builder.build_cache.settings import Settings
from aotcuda.builder.build_cache.store import Store
from aotcuda.cache import entries
from aotcuda.cache.entries import Files
from support.killed import killed_at

NAMES = ("ab" + "0" * 62, "ab" + "1" * 62)
VALUE = {"kernels.cubin": b"\x7fELF" * 1000, "about": (1, "two", [3])}
STEPS = ("open", "mkdir", "write", "close", "rename", "unlink", "rmdir")


def store(folder: Path) -> Store:
    found = Settings(folder=str(folder), url=None, writes=True, sends=False, facts="")
    return Store(found, remote.fetch, remote.send)


def put(folder: Path) -> None:
    store(folder).put(dict.fromkeys(NAMES, VALUE), "step", dict.fromkeys(NAMES, "a step"))


@pytest.mark.parametrize("damaged", [False, True], ids=["made", "replaced"])
def test_killed_build_leaves_whole_entries_or_none(tmp_path: Path, damaged: bool) -> None:
    seen = set()
    for number in range(1, 1000):
        folder = tmp_path / str(number)  # the cache's own folders are made as well
        if damaged:
            put(folder)
            for name in NAMES:
                os.truncate(Path(Files(str(folder)).path(name), entries.ENTRY), 7)
        killed = killed_at(number, STEPS, partial(put, folder))
        later = store(folder)
        found = later.get(dict.fromkeys(NAMES, object))
        assert all(value == VALUE for value in found.values())
        seen.add(len(found))
        put(folder)
        assert store(folder).get(dict.fromkeys(NAMES, object)) == dict.fromkeys(NAMES, VALUE)
        still_damaged = damaged and len(found) < len(NAMES)
        assert len(later.problems) <= still_damaged
        if not killed:
            break
    assert number > 12
    assert seen == {0, 1, 2}
