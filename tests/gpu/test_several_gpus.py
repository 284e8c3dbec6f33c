"""One process, several GPUs, on real ones; skipped where there are fewer than two.

The GPUs of one machine are mostly of one kind, so what is shown here is that each gets an image, a context and
callbacks of its own, and that launches, threads and streams go where they belong. That GPUs of *different* kinds get
the right images side by side is shown with the stand-in driver, which has any: `TestSeveralGpus` of
`tests/unit/test_runtime_launch.py`.

Run twice, with AOTCUDA_EXTENSION=0 and 1: whichever launch path there is, the answers are the same.
"""

from __future__ import annotations

import importlib.util
import os
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

from aotcuda.runtime import driver
from aotcuda.runtime import fast as extension
from gpu.conftest import LIBRARIES

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy")
torch = pytest.importorskip("torch")

REPOSITORY = Path(__file__).parents[2]
N = 200
X = np.linspace(-3, 3, N, dtype="float32")


@pytest.fixture(scope="module", autouse=True)
def two_gpus():
    """Skips where there are fewer."""
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        count = 0
    if count < 2:
        pytest.skip(f"{count} GPUs")


@pytest.fixture
def square(features):
    """Return a kernel with overloads for many dtypes, of a module that is not loaded yet; GPU 0 is current."""
    for gpu in (0, 1):
        cupy.cuda.Device(gpu).synchronize()
    cupy.cuda.Device(0).use()
    features.__aotcuda__.unload()
    features.square._cache().retire()
    yield features.square
    cupy.cuda.Device(0).use()


class CuPy:
    """A library as the tests use it: select a GPU, make an array there, read its values."""

    @staticmethod
    def on(gpu):
        return cupy.cuda.Device(gpu)

    put = staticmethod(cupy.asarray)
    zeros = staticmethod(lambda: cupy.zeros(N, "float32"))
    get = staticmethod(cupy.asnumpy)


class Torch:
    @staticmethod
    def on(gpu):
        return torch.cuda.device(gpu)

    put = staticmethod(lambda values: torch.from_numpy(values).cuda())
    zeros = staticmethod(lambda: torch.zeros(N, device="cuda"))
    get = staticmethod(lambda array: array.cpu().numpy())


class Numba:
    @staticmethod
    def on(gpu):
        return _numba().gpus[gpu]

    put = staticmethod(lambda values: _numba().to_device(values))
    zeros = staticmethod(lambda: _numba().to_device(np.zeros(N, "float32")))
    get = staticmethod(lambda array: array.copy_to_host())


def _numba():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from numba import config, cuda
    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
    return cuda


@pytest.fixture(params=[CuPy, Torch, Numba], ids=["cupy", "torch", "numba"])
def library(request):
    if request.param is Numba and importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("numba-cuda is not installed")
    return request.param


# Where a launch goes


def test_every_gpu_has_an_image_of_its_own(features, square):
    for gpu in (0, 1):
        with cupy.cuda.Device(gpu):
            square[2, 128](cupy.asarray(X), cupy.zeros(N, "float32"))
    chosen = features.__aotcuda__.chosen
    assert len(chosen) >= 2
    for gpu in (0, 1):
        properties = cupy.cuda.runtime.getDeviceProperties(gpu)
        expected = features.__aotcuda__.choice_for((properties["major"], properties["minor"]))
        assert chosen[gpu].arch == expected.arch
        assert f"GPU {gpu} " in str(chosen[gpu])
    tiers = [tier for tier in features.__aotcuda__.tiers["square"] if tier.choice.arch]
    assert {tier.choice.gpu for tier in tiers} >= {chosen[0].gpu, chosen[1].gpu}


def test_a_launch_goes_to_the_gpu_whose_context_is_current(square, library):
    run = square[2, 128]
    for scale, gpu in enumerate((0, 1, 1, 0, 1, 0, 0, 1)):
        x = X * scale
        with library.on(gpu):
            out = library.zeros()
            run(library.put(x), out)
            assert driver.get().current_device() == gpu
            np.testing.assert_array_equal(library.get(out), x * x)


def test_launches_on_two_gpus_in_turn_do_not_wait_for_each_other_or_mix(square, library, general):
    run = square[2, 128]
    kept = []
    for scale in range(30):
        x = X * scale
        for gpu in (0, 1):
            with library.on(gpu):
                out = library.zeros()
                run(library.put(x), out)
                kept.append((x, out, gpu))
    for x, out, gpu in kept:
        with library.on(gpu):
            np.testing.assert_array_equal(library.get(out), x * x)
    if extension.in_use() is not None:
        assert len(general) == 2, "the fast path takes all but the first launch on each GPU"


def test_arrays_of_two_libraries_on_two_gpus_at_once(square):
    for scale in range(5):
        x = X * scale
        with cupy.cuda.Device(0):
            first = cupy.zeros(N, "float32")
            square[2, 128](cupy.asarray(x), first)
        with torch.cuda.device(1):
            second = torch.zeros(N, device="cuda")
            square[2, 128](torch.from_numpy(x).cuda(), second)
        with cupy.cuda.Device(1):
            third = cupy.zeros(N, "float32")
            square[2, 128](cupy.asarray(x), third)
        with cupy.cuda.Device(0):
            np.testing.assert_array_equal(first.get(), x * x)
        np.testing.assert_array_equal(second.cpu().numpy(), x * x)
        with cupy.cuda.Device(1):
            np.testing.assert_array_equal(third.get(), x * x)


def test_a_thread_without_a_context_launches_where_its_arrays_are(square):
    found = {}

    def work(gpu, x, out):
        square[2, 128](x, out)
        found[gpu] = driver.get().current_device()

    for gpu in (1, 0, 1):
        with cupy.cuda.Device(gpu):
            x, out = cupy.asarray(X), cupy.zeros(N, "float32")
            cupy.cuda.Device(gpu).synchronize()
        thread = threading.Thread(target=work, args=(gpu, x, out))
        thread.start()
        thread.join()
        assert found.pop(gpu) == gpu
        with cupy.cuda.Device(gpu):
            cupy.cuda.Device(gpu).synchronize()
            np.testing.assert_array_equal(out.get(), X * X)


def test_threads_launch_on_two_gpus_at_once(features, square):
    counters, outs, errors = {}, {}, []
    for number in range(4):
        with cupy.cuda.Device(number % 2):
            counters[number], outs[number] = cupy.zeros(1, "int32"), cupy.zeros(N, "float32")
            cupy.cuda.Device().synchronize()
    barrier = threading.Barrier(4)

    def work(number):
        try:
            with cupy.cuda.Device(number % 2), cupy.cuda.Stream(non_blocking=True) as stream:
                x = cupy.asarray(X * number)
                barrier.wait()
                for _ in range(200):
                    features.count_up[4, 32, stream](counters[number])
                    square[2, 128, stream](x, outs[number])
                stream.synchronize()
        except Exception as error:  # noqa: BLE001 (reported below)
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for number in range(4):
        with cupy.cuda.Device(number % 2):
            assert counters[number].get()[0] == 200 * 4 * 32
            np.testing.assert_array_equal(outs[number].get(), (X * number) ** 2)


# Arrays of the wrong GPU


def test_an_array_on_another_gpu_is_refused_with_both_named(run_there):
    assert run_there(STRANGERS) == [
        ["launched on GPU 1, is on GPU 0"] * 3,
        ["launched on GPU 0, is on GPU 1"] * 3,
        [[0.0, 0.0, 0.0], [12.0, 24.0, 36.0], [12.0, 24.0, 36.0]],
    ]


# In a process of its own: other tests, or libraries in them, may have let the GPUs read each other's memory.
STRANGERS = """
import json, re
import cupy
import aotcuda, quickstart.kernels as k

def arrays(gpu):
    with cupy.cuda.Device(gpu):
        made = [cupy.array(values, "float32") for values in ([1, 2, 3], [10, 20, 30], [0, 0, 0], [0, 0, 0])]
        cupy.cuda.Device().synchronize()
        return made

def refused(gpu, *args):
    with cupy.cuda.Device(gpu):
        try:
            k.axpy[1, 32](2.0, *args)
        except aotcuda.ArgumentError as error:
            return re.sub(r".*(launched on GPU \\d) .*(is on GPU \\d) .*", r"\\1, \\2", str(error))
    return "taken"

x0, y0, out0, spare0 = arrays(0)
x1, y1, out1, spare1 = arrays(1)
first = [refused(1, x0, y1, spare1)]          # the first launch of all
for gpu, arguments in ((1, (x1, y1, out1)), (0, (x0, y0, out0))) * 3:
    with cupy.cuda.Device(gpu):
        k.axpy[1, 32](2.0, *arguments)        # from the second on, whatever quick path there is
first += [refused(1, x1, y0, spare1), refused(1, x1, y1, spare0)]
second = [refused(0, x1, y0, spare0), refused(0, x0, y1, spare0), refused(0, x0, y0, spare1)]
with cupy.cuda.Device(0):
    results = [spare0.get().tolist(), out0.get().tolist()]
with cupy.cuda.Device(1):
    assert spare1.get().tolist() == [0, 0, 0]
    results.append(out1.get().tolist())
print(json.dumps([first, second, results]))
"""


def test_an_array_that_the_gpu_can_reach_is_taken(run_there):
    found = run_there(PEERS)
    if found is None:
        pytest.skip("these GPUs cannot reach each other's memory")
    assert found == ["refused", [12.0, 24.0, 36.0], [12.0, 24.0, 36.0]]


PEERS = """
import json
import cupy
import aotcuda, quickstart.kernels as k

if not cupy.cuda.runtime.deviceCanAccessPeer(1, 0):
    print("null")
    raise SystemExit
with cupy.cuda.Device(0):
    x = cupy.array([1, 2, 3], "float32")
    cupy.cuda.Device().synchronize()
with cupy.cuda.Device(1):
    y, outs = cupy.array([10, 20, 30], "float32"), [cupy.zeros(3, "float32") for _ in range(2)]
    try:
        k.axpy[1, 32](2.0, x, y, outs[0])
        before = "taken"
    except aotcuda.ArgumentError:
        before = "refused"
    cupy.cuda.runtime.deviceEnablePeerAccess(0)
    for out in outs:
        k.axpy[1, 32](2.0, x, y, out)
    print(json.dumps([before, *[out.get().tolist() for out in outs]]))
"""


# Streams


def test_streams_of_the_second_gpu(square, library):
    with library.on(1):
        for stream in (cupy.cuda.Stream(non_blocking=True), torch.cuda.Stream(device=1)):
            out = library.zeros()
            x = library.put(X)
            torch.cuda.synchronize(1)
            for _ in range(3):
                square[2, 128, stream](x, out)
            stream.synchronize()
            np.testing.assert_array_equal(library.get(out), X * X)


@pytest.mark.parametrize("gpu", [0, 1])
def test_a_launch_waits_for_the_stream_that_its_array_is_on(square, gpu):
    for scale in (3, 4, 5):  # the first launch goes another way than the later ones; memory may hold the last numbers
        with cupy.cuda.Device(gpu):
            with cupy.cuda.Stream(non_blocking=True):
                x = cupy.ones((4000, 4000), dtype="float32")
                for _ in range(10):
                    x = x @ x / 4000
                flat, out = x.ravel()[:N] * scale, cupy.zeros(N, "float32")
                square[2, 128, 0](flat, out)  # on the default stream, which that one is not ordered with
            cupy.cuda.Stream.null.synchronize()
            np.testing.assert_array_equal(out.get(), np.full(N, scale**2, "float32"))
        with torch.cuda.device(gpu):
            with torch.cuda.stream(torch.cuda.Stream()):
                x = torch.ones(4000, 4000, device="cuda")
                for _ in range(10):
                    x = x @ x / 4000
                flat, out = x.reshape(-1)[:N] * scale, torch.zeros(N, device="cuda")
                square[2, 128, 0](flat, out)
            torch.cuda.synchronize()
            np.testing.assert_array_equal(out.cpu().numpy(), np.full(N, scale**2, "float32"))


def test_a_stream_of_another_gpu_than_the_arrays_is_no_silent_mistake(run_there):
    """The driver takes a launch's GPU from its stream, whatever context is current: it must not run there."""
    outcomes, result, alive = run_there(FOREIGN_STREAM)
    assert outcomes == ["refused"] * 3
    assert result == [0.0, 0.0, 0.0]
    assert alive == [12.0, 24.0, 36.0]


FOREIGN_STREAM = """
import json
import cupy
import aotcuda, quickstart.kernels as k

with cupy.cuda.Device(1):
    stream = cupy.cuda.Stream(non_blocking=True)
with cupy.cuda.Device(0):
    x, y = cupy.array([1, 2, 3], "float32"), cupy.array([10, 20, 30], "float32")
    out, other = cupy.zeros(3, "float32"), cupy.zeros(3, "float32")
    cupy.cuda.Device().synchronize()
    outcomes = []
    run = k.axpy[1, 32, stream]
    for attempt in range(3):
        try:
            run(2.0, x, y, out)
            outcomes.append("taken")
        except aotcuda.AotcudaError as error:
            outcomes.append("refused" if "GPU 1" in str(error) or "INVALID" in str(error) else str(error))
        for _ in range(2):
            k.axpy[1, 32](2.0, x, y, other)  # lets the quick paths learn these arguments
    print(json.dumps([outcomes, out.get().tolist(), other.get().tolist()]))
"""


def test_a_freed_streams_handle_that_another_gpu_got_is_refused(run_there):
    found = run_there(REUSED_HANDLE)
    if found is None:
        pytest.skip("the driver gave no handle of a freed stream to another GPU")
    outcomes, untouched, result = found
    assert outcomes == ["refused"] * 2
    assert untouched == [0.0, 0.0, 0.0]
    assert result == [12.0, 24.0, 36.0]


REUSED_HANDLE = """
import ctypes, json
import cupy
import aotcuda, quickstart.kernels as k

cuda = ctypes.CDLL("libcuda.so.1")

def streams(gpu, count):
    with cupy.cuda.Device(gpu):
        made = [ctypes.c_void_p() for _ in range(count)]
        for stream in made:
            assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
        return [stream.value for stream in made]

with cupy.cuda.Device(1):
    cupy.zeros(1)
with cupy.cuda.Device(0):
    x, y = cupy.array([1, 2, 3], "float32"), cupy.array([10, 20, 30], "float32")
    out, other = cupy.zeros(3, "float32"), cupy.zeros(3, "float32")
    cupy.cuda.Device().synchronize()
    before = streams(0, 10)
    runs = {handle: k.axpy[1, 32, handle] for handle in before}
    for run in runs.values():
        for _ in range(3):
            run(2.0, x, y, other)
    cupy.cuda.Device().synchronize()
    for handle in before:
        assert cuda.cuStreamDestroy_v2(ctypes.c_void_p(handle)) == 0
    reused = sorted(set(before) & set(streams(1, 300)))
    if not reused:
        print("null")
        raise SystemExit
    outcomes = []
    for run in (runs[reused[0]], k.axpy[2, 32, reused[0]]):
        try:
            run(2.0, x, y, out)
            outcomes.append("taken")
        except aotcuda.LaunchError as error:
            outcomes.append("refused" if "GPU 1" in str(error) else str(error))
    print(json.dumps([outcomes, out.get().tolist(), other.get().tolist()]))
"""


# What is kept for each GPU


def test_preload_is_for_the_current_gpu(features, square):
    for gpu in (1, 0):
        with cupy.cuda.Device(gpu):
            x, out = cupy.asarray(X), cupy.zeros(N, "float32")
            cupy.cuda.Device().synchronize()
            features.__aotcuda__.preload()
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                stream.begin_capture()  # during which nothing can be loaded
                square[2, 128, stream](x, out)
                graph = stream.end_capture()
            graph.launch(stream)
            stream.synchronize()
            np.testing.assert_array_equal(out.get(), X * X)


def test_more_shared_memory_than_the_default_is_allowed_on_each_gpu(features, square):
    x = np.arange(25_000, dtype="float32")
    for gpu in (0, 1, 0, 1):
        with cupy.cuda.Device(gpu):
            array = cupy.asarray(x)
            features.reverse_dynamic[1, 1024, 0, x.nbytes](array)
            np.testing.assert_array_equal(array.get(), x[::-1])


def test_what_a_kernel_tells_is_of_the_current_gpu(features, square):
    signature = "void(float32[::1], float32[::1])"
    for gpu in (0, 1):
        with cupy.cuda.Device(gpu):
            properties = cupy.cuda.runtime.getDeviceProperties(gpu)
            blocks = square.occupancy(1024, signature=signature)
            assert 1 <= blocks <= properties["maxThreadsPerMultiProcessor"] // 1024
            most = square.max_cooperative_grid_blocks(1024, signature=signature)
            assert most == blocks * properties["multiProcessorCount"]
            x, out = cupy.asarray(X), cupy.zeros(N, "float32")
            square.forall(N)(x, out)
            np.testing.assert_array_equal(out.get(), X * X)


def test_callbacks_run_once_for_each_gpus_context(run_there):
    calls, numbers, values = run_there(CALLBACKS, "foreign", AOTCUDA_LOAD="first-use")
    one, other = "setup on GPU 0", "setup on GPU 1"
    assert calls == [
        [one],
        [one, other],
        [one, other],
        [one, other, "teardown on GPU 0", "teardown on GPU 1"],
        [one, other, "teardown on GPU 0", "teardown on GPU 1", other],
    ]
    assert numbers == [values] * 6


CALLBACKS = """
import json
import cupy
from aotcuda.runtime import driver
from foreign import _hooks

calls, numbers = [], []
for name in ("upload", "release"):
    def noted(code, original=getattr(_hooks, name)):
        original(code)
        _hooks.calls[-1] = f"{_hooks.calls[-1][0]} on GPU {driver.get().current_device()}"
    setattr(_hooks, name, noted)
import foreign.table as k

def look_up(gpu):
    with cupy.cuda.Device(gpu):
        out = cupy.zeros(8, "float32")
        k.look_up[1, 32](cupy.arange(8, dtype="int32"), out)
        numbers.append(out.get().tolist())

for gpus in ((0,), (1,), (0, 1, 0)):
    for gpu in gpus:
        look_up(gpu)
    calls.append(list(_hooks.calls))
k.__aotcuda__.unload()
calls.append(list(_hooks.calls))
look_up(1)
calls.append(list(_hooks.calls))
print(json.dumps([calls, numbers, _hooks.VALUES]))
"""


# Processes of their own


@pytest.fixture
def run_there(run_clean, installed):
    """As `run_clean`, with what was given together with the wheels to import as well."""

    def run(script, wheel="quickstart", **environment):
        folders = [installed / wheel, REPOSITORY, REPOSITORY / "tests", LIBRARIES]
        path = os.pathsep.join([str(folder) for folder in folders if folder])
        return run_clean(script, wheel, **{"PYTHONPATH": path, "AOTCUDA_FALLBACK": "error", **environment})

    return run


ORDERS = [("aotcuda", "cupy", "torch"), ("cupy", "aotcuda", "torch"), ("torch", "cupy", "aotcuda")]


@pytest.mark.parametrize("order", ORDERS, ids=["aotcuda first", "cupy first", "torch first"])
def test_both_libraries_on_both_gpus_whichever_starts_cuda(run_there, order):
    results, archs, current = run_there(f"ORDER = {order!r}\n{ORDER}", AOTCUDA_LOAD="import")
    assert archs[0] == archs[1]
    assert archs[0] is not None
    assert current == [0, 0]  # of each library, after all of it
    assert len(results) == 12
    for scale, values in results:
        assert values == [12.0 * scale, 24.0 * scale, 36.0 * scale]


ORDER = """
import json, sys

for name in ORDER:
    if name == "aotcuda":
        import quickstart.kernels as k      # starts the driver
    elif name == "cupy":
        import cupy
        cupy.cuda.Device(1).use()           # makes a context on the second GPU, and none on the first
        cupy.zeros(1)
        cupy.cuda.Device(0).use()
    else:
        import torch
        torch.zeros(1, device="cuda:1")

results = []
for scale in (1, 2, 3):
    for gpu in (1, 0):
        with cupy.cuda.Device(gpu):
            x, y = cupy.array([1, 2, 3], "float32") * scale, cupy.array([10, 20, 30], "float32") * scale
            out = cupy.zeros(3, "float32")
            k.axpy[1, 32](2.0, x, y, out)
            results.append([scale, out.get().tolist()])
        with torch.cuda.device(gpu):
            x = torch.tensor([1.0, 2.0, 3.0], device="cuda") * scale
            y = torch.tensor([10.0, 20.0, 30.0], device="cuda") * scale
            out = torch.zeros(3, device="cuda")
            assert out.get_device() == gpu
            k.axpy[1, 32](2.0, x, y, out)
            results.append([scale, out.cpu().tolist()])
chosen = k.__aotcuda__.chosen
current = [cupy.cuda.runtime.getDevice(), torch.cuda.current_device()]
print(json.dumps([results, [chosen[0].arch, chosen[1].arch], current]))
"""


def test_without_a_context_the_arguments_say_which_gpu(run_there):
    assert run_there(NO_CONTEXT) == [[[12.0, 24.0, 36.0], True]] * 3


NO_CONTEXT = """
import ctypes, json
from gpu import buffers
import quickstart.kernels as k

cuda = buffers.cuda
buffers.check(cuda.cuInit(0))
contexts = []
for gpu in (0, 1):
    device, context = ctypes.c_int(), ctypes.c_void_p()
    buffers.check(cuda.cuDeviceGet(ctypes.byref(device), gpu))
    buffers.check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    contexts.append(context)
result = []
for gpu in (1, 0, 1):
    buffers.check(cuda.cuCtxSetCurrent(contexts[gpu]))
    x, y, out = (buffers.Buffer("f", values) for values in ([1, 2, 3], [10, 20, 30], [0, 0, 0]))
    buffers.check(cuda.cuCtxSetCurrent(None))
    k.axpy[1, 32](2.0, x, y, out)
    device, expected = ctypes.c_int(), ctypes.c_int()
    buffers.check(cuda.cuCtxGetDevice(ctypes.byref(device)))
    buffers.check(cuda.cuDeviceGet(ctypes.byref(expected), gpu))
    result.append([out.read(), device.value == expected.value])
print(json.dumps(result))
"""


@pytest.mark.parametrize(("visible", "count"), [("1", 1), ("1,0", 2)])
def test_the_gpus_are_those_that_are_visible(run_there, visible, count):
    result, chosen = run_there(VISIBLE, CUDA_VISIBLE_DEVICES=visible)
    assert result == [[12.0, 24.0, 36.0]] * count
    assert len(chosen) == count
    assert all(chosen)


VISIBLE = """
import json
import cupy
import quickstart.kernels as k

results = []
for gpu in range(cupy.cuda.runtime.getDeviceCount()):
    with cupy.cuda.Device(gpu):
        x, y = cupy.array([1, 2, 3], "float32"), cupy.array([10, 20, 30], "float32")
        out = cupy.zeros(3, "float32")
        k.axpy[1, 32](2.0, x, y, out)
        results.append(out.get().tolist())
print(json.dumps([results, [choice.arch for choice in k.__aotcuda__.chosen.values()]]))
"""
