"""Test launches of several threads while others load and unload: each launch happens once, with its own arguments.

The interpreter switches threads as often as it can; without the GIL (`python3.14t`) they run at the same time. When all
threads have ended, the log of the stand-in driver is compared with the expected launches.
"""

from __future__ import annotations

import json
import struct
import sys
import sysconfig
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from support import threads
from support.launch_paths import needs_extension
from support.manifests import kernel

THREADS = 6
LAUNCHES = 160


@pytest.fixture(autouse=True)
def _frequent_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def words(array):
    """Return the part of a parameter block for a contiguous array."""
    interface = array.__cuda_array_interface__
    shape, itemsize = interface["shape"], int(interface["typestr"][2:])
    strides = [itemsize * int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
    numbers = [0, 0, int(np.prod(shape)), itemsize, interface["data"][0], *shape, *strides]
    return struct.pack(f"<{len(numbers)}q", *numbers)


OVERLOADS = [
    ("void(int64, float32[::1])", "q", ["<f4"]),
    ("void(float64, float64[::1])", "d", ["<f8"]),
    ("void(uint32, int32[::1])", "I", ["<i4"]),
    ("void(int64, float32[::1], float32[::1])", "q", ["<f4", "<f4"]),
]
"""The signatures of the kernel `k`, each with the format of its scalar and the dtypes of its arrays."""


class Worker:
    """The launches of one thread, with its own arrays for every overload.

    Attributes:
        expected: The log entries that the launches should have.
    """

    def __init__(self, cuda, module, values, launched):
        self._arrays = [[cuda.array(np.zeros(len(values), each)) for each in dtypes] for *_, dtypes in OVERLOADS]
        self._module = module
        self._values = values
        self._launched = launched
        self.expected = Counter()

    def run(self):
        """Launch overloads in turn, by launchers that all threads share and by new ones."""
        for number, value in enumerate(self._values):
            index = number % len(OVERLOADS)
            arrays, form = self._arrays[index], OVERLOADS[index][1]
            grid, block = [(1, 32), (2, 64), (number + 100, 96)][number % 3]
            self._module.k[grid, block](float(value) if form == "d" else value, *arrays)
            self._launched.release()
            parameters = struct.pack(f"<{form}", value).ljust(8, b"\0") + b"".join(map(words, arrays))
            self.expected[f"k_{index}", grid, block, parameters.hex()] += 1


def test_threads_launch_while_another_unloads(cuda, path):
    signatures = [signature for signature, *_ in OVERLOADS]
    module = cuda.package(kernel("k", *signatures), load="first-use")
    done, launched = threading.Event(), threading.Semaphore(0)
    workers = [
        Worker(cuda, module, range(thread * LAUNCHES, (thread + 1) * LAUNCHES), launched) for thread in range(THREADS)
    ]

    def unload():
        while not done.is_set():
            module.__aotcuda__.unload()
            assert [*module.k.get_regs_per_thread()] == signatures
            for _ in range(10):  # the fast path gets some of these launches
                launched.acquire()

    with threads.started(unload):
        errors = threads.at_once([worker.run for worker in workers])
        done.set()
        launched.release(10)
    assert errors == []
    module.__aotcuda__.unload()
    logged = Counter(
        (call["kernel"], call["grid"][0], call["block"][0], call["parameters"]) for call in cuda.launches()
    )
    assert logged == sum((worker.expected for worker in workers), Counter())
    assert cuda.calls("crash") == []
    assert len(cuda.calls("cuLibraryUnload")) == len(cuda.calls("cuLibraryLoadData"))


def test_stored_launchers_use_images_of_later_load(cuda, path):
    module = cuda.package(kernel("k", "void(int64)"))
    launchers = [module.k[1, 32], *(module.k[thread + 2, 64] for thread in range(THREADS))]
    for run in launchers * 3:
        run(1)
    module.__aotcuda__.unload()
    loaded = len(cuda.calls("cuLibraryLoadData"))
    assert threads.at_once([lambda run=run: run(5) for run in launchers]) == []
    assert len(cuda.calls("cuLibraryLoadData")) == loaded + 1


@needs_extension
@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has a GIL at all times")
def test_fast_path_in_c_leaves_gil_off(cuda, extension_module):
    folder = Path(extension_module.__file__).parent
    code = f"""
import json, sys
before = sys._is_gil_enabled()
import aotcuda.runtime.launch.fast
aotcuda.runtime.launch.fast.__path__.insert(0, {str(folder)!r})
import aotcuda.runtime.launch.fast._launch
import mypkg.kernels
mypkg.kernels.k[1, 1](1)
print(json.dumps([before, sys._is_gil_enabled(), type(mypkg.kernels.k[1, 1]).__module__]))
"""
    cuda.package(kernel("k", "void(int64)"))
    assert json.loads(cuda.run(code)) == [False, False, "aotcuda.runtime.launch.fast._launch"]
