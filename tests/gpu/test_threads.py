"""Test threads that launch at once on a GPU. The tests need the driver alone, so Pythons without the GIL can run them.

Every launch adds to an array, `y += a * x`, with another `a`. The sums show if a launch was lost, made twice, or made
with another launch's arguments. The numbers are small integers, so the sums are exact.
"""

from __future__ import annotations

import ctypes
import sys

import pytest

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


@pytest.fixture
def axpy(quickstart, path):
    """Return the kernel of a module that is not loaded."""
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
        """Launch once."""
        a = (number + self._thread) % 7
        x, y = self.pairs[number % 2]
        run(float(a), x, y, y)
        self._added[number % 2] += a

    def wrong(self):
        """Return the numbers on the GPU that are not the expected ones."""
        wrong = []
        for (_, y), added in zip(self.pairs, self._added, strict=True):
            for index, value in enumerate(y.read()):
                if value != index + added * (self._thread + 1):
                    wrong.append((self._thread, y.host.typecode, index, value))
        return wrong


def test_threads_share_one_launcher(axpy):
    # The first launches load the module at the same time, and no thread has a context yet.
    sums = [Sums(thread) for thread in range(THREADS)]
    run = axpy[2, 256]

    def work(own):
        for number in range(LAUNCHES):
            own.add(run, number)

    assert at_once([lambda own=own: work(own) for own in sums]) == []
    assert [wrong for own in sums for wrong in own.wrong()] == []


def test_each_thread_has_its_own_stream_and_launchers(axpy):
    sums = [Sums(thread) for thread in range(THREADS)]
    buffers.check(buffers.cuda.cuCtxSynchronize())
    streams = [ctypes.c_void_p() for _ in sums]
    for stream in streams:
        buffers.check(buffers.cuda.cuStreamCreate(ctypes.byref(stream), _NON_BLOCKING))

    def work(own, stream):
        for number in range(LAUNCHES):
            own.add(axpy[2 + number % 40, 256, stream.value], number)  # with a new launcher

    pairs = zip(sums, streams, strict=True)
    assert at_once([lambda own=own, stream=stream: work(own, stream) for own, stream in pairs]) == []
    buffers.check(buffers.cuda.cuCtxSynchronize())
    assert [wrong for own in sums for wrong in own.wrong()] == []
    for stream in streams:
        buffers.check(buffers.cuda.cuStreamDestroy_v2(stream))


def test_python_without_gil_stays_without_it(axpy):
    if "t" not in sys.abiflags:
        pytest.skip("this Python has a GIL at all times")
    assert not sys._is_gil_enabled()
