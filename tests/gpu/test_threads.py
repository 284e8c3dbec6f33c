"""Threads that launch at once on a real GPU. Nothing but the driver is needed, so Pythons without the GIL can run this.

Every launch adds to an array, `y += a * x`, with another `a`: a launch that was lost, made twice, or given another
one's arguments shows in the sums. The numbers are small integers, so that the sums are exact.
"""

from __future__ import annotations

import ctypes
import sys

import pytest

from aotcuda.runtime import fast as extension
from support.threads import at_once

try:
    from gpu import buffers
except OSError:
    pytest.skip("there is no driver", allow_module_level=True)

pytestmark = pytest.mark.gpu

THREADS = 8
LAUNCHES = 500
N = 300
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


@pytest.fixture(scope="module")
def quickstart(installed):
    """Return the module `quickstart.kernels`."""
    sys.path.insert(0, str(installed / "quickstart"))
    import quickstart.kernels

    return quickstart.kernels


@pytest.fixture(params=["general", "extension"])
def axpy(request, quickstart, monkeypatch):
    """Return the kernel with one of the fast paths, not loaded and with nothing learnt yet."""
    if request.param == "general":
        monkeypatch.setattr(extension, "_found", [None])
    elif extension.in_use() is None:
        pytest.skip(f"there is no fast path in C: {extension.why_not()}")
    buffers.primary_context()
    buffers.check(buffers.cuda.cuCtxSynchronize())
    quickstart.__aotcuda__.unload()
    return quickstart.axpy


class Sums:
    """The sums of one thread, in both of the kernel's types.

    Attributes:
        pairs: For each type `x` and `y`, of values that no other thread has.
    """

    def __init__(self, thread):
        self._thread = thread
        self._added = [0, 0]
        self.pairs = [
            (buffers.Buffer(typecode, [thread + 1] * N), buffers.Buffer(typecode, range(N))) for typecode in "fd"
        ]

    def add(self, run, number):
        """One launch."""
        a = (number + self._thread) % 7
        x, y = self.pairs[number % 2]
        run(float(a), x, y, y)
        self._added[number % 2] += a

    def wrong(self):
        """Return what the GPU has other than it should be."""
        wrong = []
        for (_, y), added in zip(self.pairs, self._added, strict=True):
            for index, value in enumerate(y.read()):
                if value != index + added * (self._thread + 1):
                    wrong.append((self._thread, y.host.typecode, index, value))
        return wrong


def test_all_with_one_launcher(axpy):
    """The first launches of all threads meet in loading the module; none of the threads has a context yet."""
    sums = [Sums(thread) for thread in range(THREADS)]
    run = axpy[2, 256]

    def work(own):
        for number in range(LAUNCHES):
            own.add(run, number)

    assert at_once([lambda own=own: work(own) for own in sums]) == []
    assert [wrong for own in sums for wrong in own.wrong()] == []


def test_each_with_a_stream_and_launchers_of_its_own(axpy):
    sums = [Sums(thread) for thread in range(THREADS)]
    buffers.check(buffers.cuda.cuCtxSynchronize())
    streams = [ctypes.c_void_p() for _ in sums]
    for stream in streams:
        buffers.check(buffers.cuda.cuStreamCreate(ctypes.byref(stream), _NON_BLOCKING))

    def work(own, stream):
        for number in range(LAUNCHES):
            own.add(axpy[2 + number % 40, 256, stream.value], number)  # ever new launchers

    pairs = zip(sums, streams, strict=True)
    assert at_once([lambda own=own, stream=stream: work(own, stream) for own, stream in pairs]) == []
    buffers.check(buffers.cuda.cuCtxSynchronize())
    assert [wrong for own in sums for wrong in own.wrong()] == []
    for stream in streams:
        buffers.check(buffers.cuda.cuStreamDestroy_v2(stream))


def test_loading_anew_time_and_again(axpy, quickstart):
    """Between rounds nothing runs, and the module is unloaded, as its documentation asks for."""
    sums = [Sums(thread) for thread in range(THREADS)]
    kept = axpy[2, 256]

    def work(own, first):
        for number in range(first, first + 20):
            own.add(kept if number % 3 else axpy.forall(N), number)

    for first in range(0, 200, 20):
        assert at_once([lambda own=own, first=first: work(own, first) for own in sums]) == []
        buffers.check(buffers.cuda.cuCtxSynchronize())
        quickstart.__aotcuda__.unload()
    assert [wrong for own in sums for wrong in own.wrong()] == []


def test_others_learn_types_while_threads_launch(axpy):
    sums = [Sums(thread) for thread in range(THREADS)]
    run = axpy[2, 256]

    def work(own):
        for number in range(LAUNCHES):
            own.add(run, number)

    def learn(own):
        pairs = own.pairs
        for number in range(40):
            fresh = type("Fresh", (buffers.Buffer,), {})
            for x, _ in pairs:
                x.__class__ = fresh  # arrays of a type that nobody has met
            own.add(run, number)

    works = [lambda own=own: work(own) for own in sums[2:]] + [lambda own=own: learn(own) for own in sums[:2]]
    assert at_once(works) == []
    assert [wrong for own in sums for wrong in own.wrong()] == []


def test_the_gil_stays_off(axpy):
    """Where this Python runs without it, nothing that was imported here has switched it on."""
    if "t" not in sys.abiflags:
        pytest.skip("this Python has a GIL at all times")
    assert not sys._is_gil_enabled()
