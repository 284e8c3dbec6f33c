"""Threads: whatever they launch, learn, load and unload at once, every launch has its own arguments and happens once.

With the GIL they take turns as often as the interpreter allows; without it (`python3.14t`) they run at once, which is
where these tests see most. Nothing here waits for time to pass. What a race can damage is looked at when all threads
have ended: the stand-in driver has logged each launch with its parameter block, and the tests know what each should be.
"""

from __future__ import annotations

import itertools
import json
import struct
import sys
import sysconfig
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from aotcuda.runtime.arguments import arrays
from aotcuda.runtime.fast import specializations as fast_path
from support import libraries, threads
from support.manifests import kernel
from support.quick import needs_extension

THREADS = 6
ROUNDS = 4
LAUNCHES = 40


@pytest.fixture(autouse=True)
def _turns(monkeypatch):
    """Threads take turns in the midst of anything, and classes made here stay out of other tests."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    monkeypatch.setattr(arrays, "_families", {})
    yield
    sys.setswitchinterval(before)


def at_once(*works):
    """Run functions in threads that begin together, and raise what one of them raised."""
    errors = threads.at_once(works)
    if errors:
        message = f"{len(errors)} of {len(works)} threads"
        raise ExceptionGroup(message, errors)


def background(again, work):
    """Two functions: `work`, and one that does `again` over and over, until the first is done."""
    done = threading.Event()

    def repeat():
        while not done.is_set():
            again()

    def finish():
        try:
            work()
        finally:
            done.set()

    return repeat, finish


def words(array):
    """Return what a parameter block holds of a contiguous array."""
    interface = array.__cuda_array_interface__
    shape, itemsize = interface["shape"], int(interface["typestr"][2:])
    strides = [itemsize * int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
    numbers = [0, 0, int(np.prod(shape)), itemsize, interface["data"][0], *shape, *strides]
    return struct.pack(f"<{len(numbers)}q", *numbers)


class Overload:
    """An overload of the kernel `k`, with arrays of one thread's own for it.

    Attributes:
        symbol: Its symbol.
        arrays: The arrays.
    """

    def __init__(self, cuda, number, form, *likes):
        self.symbol = f"k_{number}"
        self.arrays = [cuda.array(like) for like in likes]
        self._form = form

    def args(self, value):
        """Arguments with a value of their own."""
        return (float(value) if self._form == "d" else value, *self.arrays)

    def block(self, value):
        """Return the parameter block that belongs to them, in hexadecimal."""
        scalar = struct.pack(f"<{self._form}", value).ljust(8, b"\0")
        return (scalar + b"".join(map(words, self.arrays))).hex()


SIGNATURES = [
    "void(int64, float32[::1])",
    "void(float64, float64[::1])",
    "void(uint32, int32[:,::1])",
    "void(int64, float32[::1], float32[::1])",
]


def overloads(cuda, thread):
    """One `Overload` for each of SIGNATURES; no two threads' arrays have the same size or address."""
    size = 10 + thread
    return [
        Overload(cuda, 0, "q", np.zeros(size, "<f4")),
        Overload(cuda, 1, "d", np.zeros(size, "<f8")),
        Overload(cuda, 2, "I", np.zeros((3, size), "<i4")),
        Overload(cuda, 3, "q", np.zeros(size, "<f4"), np.zeros(2 * size, "<f4")),
    ]


def logged(cuda):
    """Return what was launched, and how often."""
    return Counter((call["kernel"], call["grid"][0], call["block"][0], call["parameters"]) for call in cuda.launches())


class Storm:
    """Threads that do all at once what programs do, on two packaged modules.

    Attributes:
        expected: What must be launched, and how often.
    """

    def __init__(self, cuda, module, other):
        self.cuda = cuda
        self.module = module
        self.other = other
        self.expected = Counter()
        self.overloads = [overloads(cuda, thread) for thread in range(THREADS + 1)]
        self._values = itertools.count(1)  # all are different

    def round(self):
        """All of it once, after the module was unloaded: so the first launches of all threads meet in loading it."""
        self.module.__aotcuda__.unload()
        launchers = [lambda thread=thread: self.launch(thread) for thread in range(THREADS)]
        at_once(*launchers, self.learn, self.reload, self.ask)

    def launch(self, thread):
        """Every overload in turn: by launchers that all threads share, by one's own, and by ever new ones."""
        seen = []
        for number in range(LAUNCHES):
            overload = self.overloads[thread][(thread + number) % len(SIGNATURES)]
            grid, block = [(1, 32), (thread + 2, 64), (number + 100, 96)][number % 3]
            value = next(self._values)
            self.module.k[grid, block](*overload.args(value))
            seen.append((overload.symbol, grid, block, overload.block(value)))
        self.expected.update(seen)

    def learn(self):
        """Arguments of types that nobody has met, by the launcher that the others use."""
        seen = []
        for _ in range(LAUNCHES // 4):
            array = self.overloads[THREADS][0].arrays[0]
            fresh = type("Fresh", (type(array),), {})(array.address, np.zeros(9, "<f4"))
            for _ in range(3):
                value = next(self._values)
                self.module.k[1, 32](value, fresh)
                seen.append(("k_0", 1, 32, (struct.pack("<q", value) + words(fresh)).hex()))
        self.expected.update(seen)

    def reload(self):
        """Another module, unloaded and loaded again, which only this thread launches."""
        seen = []
        for number in range(LAUNCHES):
            value = next(self._values)
            self.other.j[2, 16](value)
            seen.append(("j_0", 2, 16, struct.pack("<q", value).hex()))
            if number % 4 == 3:
                self.other.__aotcuda__.unload()
        self.expected.update(seen)

    def ask(self):
        """Return what tells of a module and its kernels."""
        for _ in range(LAUNCHES // 4):
            assert set(self.module.k.get_regs_per_thread()) == set(SIGNATURES)
            assert "sm_90" in repr(self.module.__aotcuda__)
            assert list(self.module.__aotcuda__.kernels) == ["k"]
            assert self.module.__aotcuda__.chosen[0].arch == "sm_90"


@pytest.fixture
def storm(cuda):
    """Return a storm on a module that is not loaded yet."""
    other = cuda.package(kernel("j", "void(int64)"), name="mypkg.others", load="first-use")
    return Storm(cuda, cuda.package(kernel("k", *SIGNATURES), load="first-use"), other)


def test_each_launch_has_its_own_arguments(cuda, storm, path, general):
    storm.module.k[1, 1](0, storm.overloads[0][0].arrays[0])
    storm.expected[("k_0", 1, 1, storm.overloads[0][0].block(0))] += 1
    for _ in range(ROUNDS):
        storm.round()
    assert logged(cuda) == storm.expected

    # Nothing got lost of what was learnt, so that a launcher would go the general way for ever.
    launchers = [storm.module.k[1, 32], *(storm.module.k[thread + 2, 64] for thread in range(THREADS))]
    cases = list(itertools.product(launchers, storm.overloads[0]))
    for run, overload in cases:
        run(*overload.args(1))
    general.clear()
    for run, overload in cases:
        run(*overload.args(2))
    assert general == []


def test_unloading_ends_what_all_threads_learnt(cuda, storm, path):
    storm.round()
    kept = [storm.module.k[1, 32], *(storm.module.k[thread + 2, 64] for thread in range(THREADS))]
    storm.module.__aotcuda__.unload()
    loaded = len(cuda.calls("cuLibraryLoadData"))
    at_once(*[lambda run=run: run(*storm.overloads[0][0].args(5)) for run in kept])  # of dead images: an invalid handle
    assert len(cuda.calls("cuLibraryLoadData")) == loaded + 1


def test_threads_launch_more_types_than_the_tables_hold(cuda, path):
    """Tables fill up and are emptied while others look things up in them."""
    k = cuda.package(kernel("k", "void(int64, float32[::1])")).k
    run = k[1, 32]
    array = cuda.array(np.zeros(9, "<f4"))
    expected, values = Counter(), itertools.count()

    def launch_all(count):
        seen = []
        for _ in range(count):
            fresh = type("Fresh", (type(array),), {})(array.address, np.zeros(9, "<f4"))
            for _ in range(2):
                value = next(values)
                run(value, fresh)
                seen.append(("k_0", 1, 32, (struct.pack("<q", value) + words(fresh)).hex()))
        expected.update(seen)

    at_once(*[lambda: launch_all(40)] * 4)
    assert logged(cuda) == expected


def test_launches_wait_for_other_streams_while_others_learn(cuda, current, path):
    """The fast path stores where CuPy tells its stream whenever it learns CuPy's arrays; every launch reads that."""
    current.update(cupy=77)
    k = cuda.package(kernel("k", "void(int64, float32[::1])")).k
    plain = cuda.array(np.zeros(9, "<f4"))
    array = libraries.of("cupy", plain)

    def work(stream):
        for value in range(2 * LAUNCHES):
            k[1, 1, stream](value, array)

    def learn():
        if path == "extension":
            fast_path._use_cupy()
        else:
            k[1, 1, 77](0, libraries.of("cupy", plain))

    at_once(*background(learn, lambda: at_once(*[lambda: work(0)] * 2, *[lambda: work(77)] * 2)))
    ordered = [call["stream"] for call in cuda.calls("cuEventRecord")]
    assert ordered.count(0) == 4 * LAUNCHES
    # A launch that the fast path gives up, because the other thread has just learnt, is ordered again: once too often.
    assert 4 * LAUNCHES <= ordered.count(77) <= 5 * LAUNCHES
    assert len(cuda.launches()) >= 8 * LAUNCHES


def test_an_interface_may_change_while_it_is_read(cuda, path):
    """Some arrays give the same dictionary each time."""
    run = cuda.package(kernel("k", "void(float32[::1])")).k[1, 1]
    shared = cuda.array(np.zeros(9, "<f4"))
    possible = [cuda.allocate(64) for _ in range(3)]
    run(shared)
    before = shared.address
    addresses = itertools.cycle(possible)

    def change():
        shared.interface["data"] = (next(addresses), False)
        shared.interface["shape"] = (int("9"),)

    def work():
        for _ in range(5 * LAUNCHES):
            run(shared)

    at_once(*background(change, lambda: at_once(work, work)))
    assert {call["parameters"] for call in cuda.launches()} <= {
        words(type(shared)(address, np.zeros(9, "<f4"))).hex() for address in [before, *possible]
    }


@needs_extension
@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has a GIL at all times")
def test_the_fast_path_in_c_leaves_the_gil_off(cuda, extension_module):
    folder = Path(extension_module.__file__).parent
    code = f"""
import json, sys
before = sys._is_gil_enabled()
import aotcuda.runtime.fast
aotcuda.runtime.fast.__path__.insert(0, {str(folder)!r})
import aotcuda.runtime.fast._launch
import mypkg.kernels
mypkg.kernels.k[1, 1](1)
print(json.dumps([before, sys._is_gil_enabled(), type(mypkg.kernels.k[1, 1]).__module__]))
"""
    cuda.package(kernel("k", "void(int64)"))
    assert json.loads(cuda.run(code)) == [False, False, "aotcuda.runtime.fast._launch"]
