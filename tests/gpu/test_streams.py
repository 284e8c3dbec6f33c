"""Streams and captures of the real libraries, and launch attributes, on a real GPU."""

from __future__ import annotations

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, LaunchError
from aotcuda.runtime import fast as extension

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy")
torch = pytest.importorskip("torch")

N = 1 << 16
CYCLES = 200_000_000
"""How long a stream is kept busy: a tenth of a second, which a launch that does not wait would not see."""


@pytest.fixture(params=["general", "extension"])
def path(request, monkeypatch):
    """Return which fast path launches have."""
    if request.param == "general":
        monkeypatch.setattr(extension, "_found", [None])
    elif extension.in_use() is None:
        pytest.skip(f"there is no fast path in C: {extension.why_not()}")
    return request.param


@pytest.fixture
def square(features, path):
    """Return a kernel that has not learnt anything yet, and squares an array into another one."""
    torch.cuda.synchronize()
    features.__aotcuda__.unload()
    features.square._cache().retire()
    return features.square


class Cupy:
    """CuPy, as the tests below use a library."""

    name = "cupy"
    busy = cupy.RawKernel(
        'extern "C" __global__ void busy(long long n) { long long begin = clock64(); while (clock64() - begin < n) ; }',
        "busy",
    )

    @staticmethod
    def stream():
        return cupy.cuda.Stream(non_blocking=True)

    @staticmethod
    def current(stream):
        return stream

    @staticmethod
    def zeros():
        return cupy.zeros(N, "float32")

    @staticmethod
    def fill(array, value):
        array.fill(value)

    @classmethod
    def wait(cls):
        cls.busy((1,), (1,), (cupy.int64(CYCLES),))

    @staticmethod
    def numbers(array):
        return cupy.asnumpy(array)


class Torch:
    """PyTorch, likewise."""

    name = "torch"

    @staticmethod
    def stream():
        return torch.cuda.Stream()

    @staticmethod
    def current(stream):
        return torch.cuda.stream(stream)

    @staticmethod
    def zeros():
        return torch.zeros(N, device="cuda")

    @staticmethod
    def fill(array, value):
        array.fill_(value)

    @staticmethod
    def wait():
        torch.cuda._sleep(CYCLES)

    @staticmethod
    def numbers(array):
        return array.cpu().numpy()


@pytest.fixture(params=[Cupy, Torch], ids=lambda kind: kind.name)
def library(request):
    """Return a library with current streams of its own."""
    return request.param


def blocks():
    return N // 256, 256


def test_a_launch_is_in_line_on_the_current_stream(square, library):
    """The library's work before and after the launch on its stream runs before and after the kernel."""
    x, out = library.zeros(), library.zeros()
    for value in (2.0, 3.0, 4.0):
        stream = library.stream()
        with library.current(stream):
            library.wait()
            library.fill(x, value)
            square[blocks()](x, out)
            library.fill(x, 0)
        stream.synchronize()
        np.testing.assert_array_equal(library.numbers(out), np.full(N, value * value, "float32"))


def test_nothing_else_is_waited_for(square, library):
    """A launch on one stream ends while another one is busy."""
    x, out, busy, stream = library.zeros(), library.zeros(), library.stream(), library.stream()
    library.fill(x, 3)
    square[blocks()](x, out)
    torch.cuda.synchronize()
    with library.current(busy):
        for _ in range(20):
            library.wait()
    with library.current(stream):
        for _ in range(3):
            square[blocks()](x, out)
    stream.synchronize()
    ended = busy.done if library is Cupy else busy.query()
    torch.cuda.synchronize()
    assert not ended


@pytest.mark.parametrize("given", ["object", "handle"])
def test_a_given_stream_waits_for_the_current_one(square, library, given):
    x, out, stream = library.zeros(), library.zeros(), library.stream()
    handle = stream.ptr if library is Cupy else stream.cuda_stream
    for value in (2.0, 3.0, 4.0):
        library.wait()
        library.fill(x, value)
        square[(*blocks(), stream if given == "object" else handle)](x, out)
        stream.synchronize()
        np.testing.assert_array_equal(library.numbers(out), np.full(N, value * value, "float32"))


def test_cupys_stream_waits_for_a_launch_elsewhere(square):
    """Version 3 of the interface asks for it: what CuPy does next must not overtake the kernel."""
    x, out, stream = Cupy.zeros(), Cupy.zeros(), Cupy.stream()
    for value in (2.0, 3.0, 4.0):
        x.fill(value)
        with stream:
            Cupy.wait()
        square[(*blocks(), stream)](x, out)
        x.fill(0)  # on the default stream, which is free
        np.testing.assert_array_equal(cupy.asnumpy(out), np.full(N, value * value, "float32"))


def test_two_libraries_in_one_launch(square):
    x, out = Cupy.zeros(), Torch.zeros()
    ours, theirs = Cupy.stream(), Torch.stream()
    for value in (2.0, 3.0, 4.0):
        with ours, Torch.current(theirs):
            Cupy.wait()
            x.fill(value)
            square[blocks()](x, out)  # on CuPy's stream; PyTorch's is ordered before it
        ours.synchronize()
        np.testing.assert_array_equal(Torch.numbers(out), np.full(N, value * value, "float32"))


def test_a_capture_by_pytorch(square):
    x, out = Torch.zeros(), Torch.zeros()
    square[blocks()](x, out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            square[blocks()](x, out)
            out.add_(1)
    for value in (2.0, 3.0):
        x.fill_(value)
        graph.replay()
        np.testing.assert_array_equal(Torch.numbers(out), np.full(N, value * value + 1, "float32"))


def test_a_capture_by_cupy(square):
    x, out, stream = Cupy.zeros(), Cupy.zeros(), Cupy.stream()
    with stream:
        stream.begin_capture()
        for _ in range(10):
            square[blocks()](x, out)
        graph = stream.end_capture()
        for value in (2.0, 3.0):
            x.fill(value)
            graph.launch(stream)
            np.testing.assert_array_equal(cupy.asnumpy(out), np.full(N, value * value, "float32"))


def test_a_first_launch_may_be_captured(square):
    """The fixture has unloaded the module: it is loaded during the capture."""
    x, out = Torch.zeros(), Torch.zeros()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        square[blocks()](x, out)
    x.fill_(5)
    graph.replay()
    np.testing.assert_array_equal(Torch.numbers(out), np.full(N, 25, "float32"))


def test_a_capture_refuses_data_of_another_stream(square):
    x, out, other = Torch.zeros(), Cupy.zeros(), Cupy.stream()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with other, pytest.raises(ArgumentError, match="is not part of the graph"):
            square[blocks()](x, out)
        x.add_(1)  # the capture is as it was
    graph.replay()
    np.testing.assert_array_equal(Torch.numbers(x), np.ones(N, "float32"))


def test_a_given_stream_joins_the_capture_and_comes_back(square):
    x, out, stream = Torch.zeros(), Torch.zeros(), Torch.stream()
    square[blocks()](x, out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            square[(*blocks(), stream)](x, out)
        out.add_(1)
    x.fill_(3)
    graph.replay()
    np.testing.assert_array_equal(Torch.numbers(out), np.full(N, 10, "float32"))


def test_a_closed_stream_of_cuda_core_is_named(square):
    core = pytest.importorskip("cuda.core")
    device = core.Device()
    device.set_current()
    x, out, stream = Cupy.zeros(), Cupy.zeros(), device.create_stream()
    for _ in range(3):
        square[(*blocks(), stream)](x, out)
    stream.sync()
    stream.close()
    for _ in range(2):
        with pytest.raises(ArgumentError, match="closed"):
            square[(*blocks(), stream)](x, out)


ENVIRONMENTS = {
    "cudaMallocAsync in PyTorch": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
    "per-thread default streams": {"CUPY_CUDA_PER_THREAD_DEFAULT_STREAM": "1"},
    "pools of CuPy": {"AOTCUDA_TEST_POOL": "1"},
}

SCRIPT = """
import json, os
import cupy, torch
import quickstart.kernels as k
if "AOTCUDA_TEST_POOL" in os.environ:
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
N = 1 << 16
found = []
for _ in range(3):
    for stream in (cupy.cuda.Stream(non_blocking=True), None):
        if stream is not None:
            stream.__enter__()
        for value in range(20):
            x, y = cupy.full(N, value, "float32"), cupy.full(N, 1, "float32")
            out = cupy.empty(N, "float32")
            k.axpy[N // 256, 256](2.0, x, y, out)
            found.append(bool((out == 2 * value + 1).all()))
            del x, y, out
        if stream is not None:
            stream.__exit__()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for value in range(20):
            x, y = torch.full((N,), float(value), device="cuda"), torch.ones(N, device="cuda")
            out = torch.empty(N, device="cuda")
            k.axpy[N // 256, 256](2.0, x, y, out)
            found.append(bool((out == 2 * value + 1).all()))
            del x, y, out
print(json.dumps([all(found), len(found)]))
"""


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_pools_and_per_thread_default_streams(run_clean, environment):
    assert run_clean(SCRIPT, **ENVIRONMENTS[environment]) == [True, 180]


GIVEN = [
    {"cluster": 2},
    {"cluster": (8, 1)},
    {"cluster": 16},
    {"cooperative": True},
    {"dependent": True},
    {"priority": -1},
    {"carveout": 50},
    {"cluster": 4, "dependent": True, "priority": -2, "carveout": 100, "shared": 1000},
]


def hopper():
    return torch.cuda.get_device_capability() >= (9, 0)


@pytest.mark.skipif(not hopper(), reason="clusters and dependent launches need compute capability 9.0")
class TestAttributes:
    """`kernel.configure(...)`."""

    @pytest.mark.parametrize("given", GIVEN, ids=str)
    def test_each_is_taken_and_the_numbers_are_right(self, square, library, given):
        x, out, stream = library.zeros(), library.zeros(), library.stream()
        run = square.configure(*blocks(), **given)
        on_stream = square.configure(*blocks(), stream=stream, **given)
        for value in (2.0, 3.0, 4.0):
            library.fill(x, value)
            run(x, out)
            np.testing.assert_array_equal(library.numbers(out), np.full(N, value * value, "float32"))
            library.fill(x, value + 1)
            on_stream(x, out)
            stream.synchronize()
            np.testing.assert_array_equal(library.numbers(out), np.full(N, (value + 1) ** 2, "float32"))

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"cluster": 3}, "do not divide"),
            ({"cluster": 32}, "clusters of 32 blocks, where at most (8|16) of this block"),
            ({"priority": -100}, "priority is -100, where"),
            ({"priority": 1}, "priority is 1, where"),
        ],
    )
    def test_what_this_gpu_cannot_take_is_said_in_words(self, square, given, text):
        x, out = Torch.zeros(), Torch.zeros()
        for _ in range(2):
            with pytest.raises(LaunchError, match=text):
                square.configure(*blocks(), **given)(x, out)

    def test_a_cooperative_grid_that_does_not_fit(self, square):
        x, out = Torch.zeros(), Torch.zeros()
        with pytest.raises(LaunchError, match="must fit on the GPU at once"):
            square.configure(1 << 20, 256, cooperative=True)(x, out)

    def test_attributes_in_a_capture(self, square):
        x, out = Torch.zeros(), Torch.zeros()
        run = square.configure(*blocks(), cluster=4, priority=-1)
        run(x, out)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run(x, out)
            run(x, out)
        x.fill_(7)
        graph.replay()
        np.testing.assert_array_equal(Torch.numbers(out), np.full(N, 49, "float32"))
