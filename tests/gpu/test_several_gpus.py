"""Test one process with several GPUs; the tests skip where there are fewer than two.

The GPUs of one machine are mostly of one kind. These tests show that each GPU gets its own image and context, and that
launches, threads and streams go to the right GPU. `TestSeveralGpus` of `tests/unit/test_runtime_launch.py` tests
different kinds of GPUs.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest

from aotcuda.runtime import driver
from aotcuda.runtime.launch import execute
from support.threads import at_once

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy")
torch = pytest.importorskip("torch")

from gpu.libraries import CuPy, Numba, Torch  # noqa: E402 (both libraries are there)

N = 200
X = np.linspace(-3, 3, N, dtype="float32")
ZEROS = np.zeros(N, "float32")


@pytest.fixture(scope="module", autouse=True)
def two_gpus():
    """Skip the tests if there are fewer than two GPUs."""
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        count = 0
    if count < 2:
        pytest.skip(f"{count} GPUs")


@pytest.fixture
def square(square):
    """Return the kernel; make GPU 0 current again after the test."""
    yield square
    cupy.cuda.Device(0).use()


@pytest.fixture(params=["cupy", "torch", "numba"])
def library(request):
    if request.param == "numba":
        return Numba(request.getfixturevalue("numba_cuda"))
    return CuPy if request.param == "cupy" else Torch


@pytest.fixture
def run_there(run_clean):
    """Run a script as `run_clean` does, without the JIT fallback."""
    return lambda script, **environment: run_clean(script, **{"AOTCUDA_FALLBACK": "error", **environment})


def test_each_gpu_has_its_own_image(features, square):
    for gpu in (0, 1):
        with cupy.cuda.Device(gpu):
            square[2, 128](cupy.asarray(X), cupy.zeros(N, "float32"))
    chosen = features.__aotcuda__.chosen
    for gpu in (0, 1):
        properties = cupy.cuda.runtime.getDeviceProperties(gpu)
        expected = features.__aotcuda__.choice_for((properties["major"], properties["minor"]))
        assert chosen[gpu].arch == expected.arch
        assert f"GPU {gpu} " in str(chosen[gpu])
    tiers = [tier for tier in features.__aotcuda__.tiers["square"] if tier.choice.arch]
    assert {tier.choice.gpu for tier in tiers} >= {chosen[0].gpu, chosen[1].gpu}


def test_launch_goes_to_gpu_of_current_context(square, library):
    run = square[2, 128]
    for scale, gpu in enumerate((0, 1, 1, 0, 1, 0, 0, 1)):
        x = X * scale
        with library.on(gpu):
            out = library.put(ZEROS)
            run(library.put(x), out)
            assert driver.get().current_device() == gpu
            np.testing.assert_array_equal(library.get(out), x * x)


def test_launches_on_two_gpus_in_turn_keep_their_arguments(square, library, general):
    run = square[2, 128]
    launched = []
    for scale in range(30):
        for gpu in (0, 1):
            with library.on(gpu):
                out = library.put(ZEROS)
                run(library.put(X * scale), out)
                launched.append((X * scale, out, gpu))
    for x, out, gpu in launched:
        with library.on(gpu):
            np.testing.assert_array_equal(library.get(out), x * x)
    # Both GPUs count together: the second launch gives the fast path its GPU's kernel, the third that of the other GPU.
    assert len(general) == execute.SPECIALIZE_AT + 1


def test_thread_without_context_launches_on_gpu_of_its_arrays(square):
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
    counters, outs = {}, {}
    for number in range(4):
        with cupy.cuda.Device(number % 2):
            counters[number], outs[number] = cupy.zeros(1, "int32"), cupy.zeros(N, "float32")
            cupy.cuda.Device().synchronize()

    def work(number):
        with cupy.cuda.Device(number % 2), cupy.cuda.Stream(non_blocking=True) as stream:
            x = cupy.asarray(X * number)
            for _ in range(200):
                features.count_up[4, 32, stream](counters[number])
                square[2, 128, stream](x, outs[number])
            stream.synchronize()

    assert at_once([lambda number=number: work(number) for number in range(4)]) == []
    for number in range(4):
        with cupy.cuda.Device(number % 2):
            assert counters[number].get()[0] == 200 * 4 * 32
            np.testing.assert_array_equal(outs[number].get(), (X * number) ** 2)


def test_array_on_another_gpu_is_refused_with_both_named(run_there):
    assert run_there(STRANGERS) == [
        ["launched on GPU 1, is on GPU 0"] * 3,
        ["launched on GPU 0, is on GPU 1"] * 3,
        [[0.0, 0.0, 0.0], [12.0, 24.0, 36.0], [12.0, 24.0, 36.0]],
    ]


# In a separate process, since other tests may have enabled access between the GPUs.
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
    return "launched"

x0, y0, out0, spare0 = arrays(0)
x1, y1, out1, spare1 = arrays(1)
first = [refused(1, x0, y1, spare1)]          # the first launch of all
for gpu, arguments in ((1, (x1, y1, out1)), (0, (x0, y0, out0))) * 3:
    with cupy.cuda.Device(gpu):
        k.axpy[1, 32](2.0, *arguments)        # from the second one on, by the fast path
first += [refused(1, x1, y0, spare1), refused(1, x1, y1, spare0)]
second = [refused(0, x1, y0, spare0), refused(0, x0, y1, spare0), refused(0, x0, y0, spare1)]
with cupy.cuda.Device(0):
    results = [spare0.get().tolist(), out0.get().tolist()]
with cupy.cuda.Device(1):
    assert spare1.get().tolist() == [0, 0, 0]
    results.append(out1.get().tolist())
print(json.dumps([first, second, results]))
"""


def test_array_that_gpu_can_reach_is_accepted(run_there):
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
        before = "launched"
    except aotcuda.ArgumentError:
        before = "refused"
    cupy.cuda.runtime.deviceEnablePeerAccess(0)
    for out in outs:
        k.axpy[1, 32](2.0, x, y, out)
    print(json.dumps([before, *[out.get().tolist() for out in outs]]))
"""


def test_streams_of_second_gpu(square, library):
    with library.on(1):
        for stream in (cupy.cuda.Stream(non_blocking=True), torch.cuda.Stream(device=1)):
            x, out = library.put(X), library.put(ZEROS)
            torch.cuda.synchronize(1)
            for _ in range(3):
                square[2, 128, stream](x, out)
            stream.synchronize()
            np.testing.assert_array_equal(library.get(out), X * X)


@pytest.mark.parametrize("library", [CuPy, Torch], ids=["cupy", "torch"])
def test_launch_on_second_gpu_waits_for_its_current_stream(square, library):
    with library.on(1):
        x, out = library.put(X), library.put(ZEROS)
        for value in (3.0, 4.0, 5.0):
            with library.current(library.stream()):
                library.wait()
                library.fill(x, value)
                square[2, 128, 0](x, out)  # on the default stream
            torch.cuda.synchronize(1)
            np.testing.assert_array_equal(library.get(out), np.full(N, value**2, "float32"))


def test_stream_of_another_gpu_than_arrays_is_refused(run_there):
    # The stream of a launch decides its GPU; the current context does not.
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
            outcomes.append("launched")
        except aotcuda.AotcudaError as error:
            outcomes.append("refused" if "GPU 1" in str(error) or "INVALID" in str(error) else str(error))
        for _ in range(2):
            k.axpy[1, 32](2.0, x, y, other)  # adds these arguments to the fast path
    print(json.dumps([outcomes, out.get().tolist(), other.get().tolist()]))
"""


def test_preload_loads_for_current_gpu(features, square):
    for gpu in (1, 0):
        with cupy.cuda.Device(gpu):
            x, out = cupy.asarray(X), cupy.zeros(N, "float32")
            cupy.cuda.Device().synchronize()
            features.__aotcuda__.preload()
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                stream.begin_capture()  # nothing can be loaded during the capture
                square[2, 128, stream](x, out)
                graph = stream.end_capture()
            graph.launch(stream)
            stream.synchronize()
            np.testing.assert_array_equal(out.get(), X * X)


def test_each_gpu_allows_more_shared_memory_than_default(features, square):
    x = np.arange(25_000, dtype="float32")
    for gpu in (0, 1, 0, 1):
        with cupy.cuda.Device(gpu):
            array = cupy.asarray(x)
            features.reverse_dynamic[1, 1024, 0, x.nbytes](array)
            np.testing.assert_array_equal(array.get(), x[::-1])


ORDERS = [("aotcuda", "cupy", "torch"), ("cupy", "aotcuda", "torch"), ("torch", "cupy", "aotcuda")]


@pytest.mark.parametrize("order", ORDERS, ids=["aotcuda first", "cupy first", "torch first"])
def test_both_libraries_launch_on_both_gpus_whichever_starts_cuda(run_there, order):
    results, archs, current = run_there(f"ORDER = {order!r}\n{ORDER}", AOTCUDA_LOAD="import")
    assert archs[0] == archs[1] is not None
    assert current == [0, 0]  # the current GPU of each library in the end
    assert results == [[scale, [12.0 * scale, 24.0 * scale, 36.0 * scale]] for scale in (1, 2, 3) for _ in range(4)]


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


def test_without_context_arguments_name_gpu(run_there):
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
