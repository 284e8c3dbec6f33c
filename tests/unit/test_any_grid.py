"""Launches with ever new grids, streams and attributes: nothing is cached by them, and limits hold at each launch."""

from __future__ import annotations

import gc
import sys
from collections import deque

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, LaunchError
from aotcuda.runtime.launch.arguments import arrays
from aotcuda.runtime.launch.execute import Launcher
from support import libraries
from support.libraries import Array, State
from support.manifests import kernel

pytestmark = pytest.mark.usefixtures("path")


@pytest.fixture
def k(cuda):
    return cuda.package(kernel("k", "void(int32)")).k


class Stream:
    """A stream object."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


LAUNCHES = {
    "an int": lambda k, at: k[at, 32],
    "tuples": lambda k, at: k[(at, 2), (8, 2)],
    "a list": lambda k, at: k[[at, 1, 3], 32],
    "NumPy's ints": lambda k, at: k[np.int64(at), np.int32(32), None, np.uint8(16)],
    "a handle": lambda k, at: k[1, 32, 16 * at],
    "a stream object": lambda k, at: k[at, 32, Stream(16 * at), 8],
    "large shared memory": lambda k, at: k[at, 32, None, 60_000],
    "a cluster": lambda k, at: k.configure(2 * at, 32, cluster=2),
    "a cooperative grid": lambda k, at: k.configure(at, 32, cooperative=True),
    "a priority and a stream": lambda k, at: k.configure(at, 32, stream=Stream(16 * at), priority=0),
    "elements": lambda k, at: k.forall(1000 * at),
    "elements and a block": lambda k, at: k.forall(1000 * at, 64, 16 * at, 8),
}
_QUESTIONS = (
    "cuOccupancyMaxPotentialClusterSize",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuOccupancyMaxPotentialBlockSize",
    "cuCtxGetStreamPriorityRange",
    "cuKernelSetAttribute",
)


@pytest.mark.parametrize("name", LAUNCHES)
def test_new_grids_and_streams_leave_nothing_behind(cuda, k, name):
    make = LAUNCHES[name]
    for at in range(1, 4):
        make(k, at)(1)
    asked = len(cuda.calls(*_QUESTIONS))
    objects = _count()
    for at in range(4, 104):
        make(k, at)(1)
    assert _count() - objects < 50
    launches = cuda.launches()
    assert len(cuda.calls(*_QUESTIONS)) == asked <= 2
    if "elements" in name:
        grids = [-(-1000 * at // launches[0]["block"][0]) for at in range(1, 104)]
    else:
        grids = [make(k, at).grid[0] for at in range(1, 104)]
    assert [call["grid"][0] for call in launches] == grids


@pytest.mark.parametrize("name", LAUNCHES)
def test_later_launches_take_one_step(cuda, k, name, monkeypatch):
    for at in (1, 2):
        LAUNCHES[name](k, at)(7)
    monkeypatch.setattr(Launcher, "submit", lambda *_: pytest.fail("a launch with all checks"))
    for at in range(3, 6):
        LAUNCHES[name](k, at)(at)
    assert [launch["parameters"][:2] for launch in cuda.launches()] == ["07", "07", "03", "04", "05"]


class Open:
    """An array by an attribute of the object, which others of its class may lack."""

    def __init__(self) -> None:
        data = {"data": (4096, False), "shape": (8,), "typestr": "<f4", "strides": None}
        self.__cuda_array_interface__ = {"version": 3, **data}


def test_open_types_take_one_step_too(cuda, path, monkeypatch):
    if path != "general":
        pytest.skip("C launches")
    k, array = cuda.package(kernel("k", "void(float32[::1])")).k, Open()
    for _ in range(2):
        k[1, 32](array)
    monkeypatch.setattr(Launcher, "submit", lambda *_: pytest.fail("a launch with all checks"))
    for _ in range(2):
        k[2, 32](array)
    assert len(cuda.launches()) == 4


@pytest.mark.parametrize("library", ["cupy", "torch", "numba", "interface"])
@pytest.mark.parametrize("stream", [None, 0x40])
def test_later_launches_make_no_views_of_contiguous_arrays(cuda, path, monkeypatch, library, stream):
    if path != "general":
        pytest.skip("C launches")
    with libraries.installed():
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        first, second = (libraries.make(Array(library, State(address=at))) for at in (1 << 40, 1 << 41))
        for _ in range(3):
            k[1, 32, stream](first)
        monkeypatch.setattr(arrays, "_view", lambda *_: pytest.fail("a view"))
        k[1, 32, stream](second)
    before, after = (bytes.fromhex(launch["parameters"]) for launch in cuda.launches()[-2:])
    assert after == before.replace((1 << 40).to_bytes(8, "little"), (1 << 41).to_bytes(8, "little")) != before


def test_error_of_current_stream_is_that_of_an_argument(cuda, monkeypatch, path):
    if path != "general":
        pytest.skip("C has the function")
    with libraries.installed():
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        array = libraries.make(Array("cupy", State()))
        for _ in range(4):
            k[1, 32](array)
        monkeypatch.setattr(sys.modules["cupy"].cuda, "get_current_stream", lambda: 1 // 0)
        for launch in (k[1, 32], k.forall(100)):
            with pytest.raises(ArgumentError, match="ZeroDivisionError"):
                launch(array)


class Emptied(deque):
    """Slots that another thread takes between a test for them and their use."""

    def __bool__(self):
        return True


def test_other_threads_may_take_all_slots(cuda, k):
    (overload,) = k._images.ready().table("k").overloads
    overload.slots = Emptied()
    for at in range(1, 6):
        k[at, 32](7)
        overload.slots.clear()
    assert len(cuda.launches()) == 5


def _count() -> int:
    gc.collect()
    return len(gc.get_objects())


BEYOND = {
    "a grid that its clusters do not divide": (
        lambda k, at: k.configure((4, 4)[at > 3] - (at > 3), 32, cluster=2), "do not divide",
    ),
    "a cooperative grid that does not fit": (
        lambda k, at: k.configure(1 if at < 4 else 1 << 20, 32, cooperative=True), "must fit on the GPU at once",
    ),
    "a grid beyond the GPU": (lambda k, at: k[1 if at < 4 else 1 << 31, 32], "at most 2147483647 are possible"),
    "a grid beyond 32 bits": (lambda k, at: k[1 if at < 4 else 1 << 40, 32], "at most 2147483647 are possible"),
    "shared memory beyond the GPU": (
        lambda k, at: k[1, 32, None, 60_000 if at < 4 else 10**6], "bytes of dynamic shared memory",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BEYOND)
def test_limits_hold_for_grids_after_others(cuda, k, name):
    make, message = BEYOND[name]
    for at in range(1, 4):
        make(k, at)(1)
    for at in (4, 5):
        with pytest.raises(LaunchError, match=message):
            make(k, at)(1)
    make(k, 3)(1)
    assert len(cuda.launches()) == 4


def test_attributes_are_checked_with_each_block(cuda, k):
    for block in (32, 64, 32, 64):
        most = k.max_cooperative_grid_blocks(block)
        for _ in range(3):
            k.configure(most, block, cooperative=True)(1)
        with pytest.raises(LaunchError, match="must fit"):
            k.configure(most + 1, block, cooperative=True)(1)
    assert len({call["grid"][0] for call in cuda.launches()}) == 2
