"""Test streams, graphs and launch attributes of the real libraries on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, HostArrayWarning

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy")
torch = pytest.importorskip("torch")

from gpu.libraries import CuPy, Torch  # noqa: E402 (both libraries are there)

N = 1 << 16
GRID, BLOCK = N // 256, 256


@pytest.fixture(params=[CuPy, Torch], ids=lambda kind: kind.name)
def library(request):
    """Return a library that has current streams."""
    return request.param


def zeros(library):
    return library.put(np.zeros(N, "float32"))


def full(value):
    return np.full(N, value, "float32")


def test_launch_runs_in_order_on_current_stream(square, library):
    x, out = zeros(library), zeros(library)
    for value in (2.0, 3.0, 4.0):
        stream = library.stream()
        with library.current(stream):
            library.wait()
            library.fill(x, value)
            square[GRID, BLOCK](x, out)
            library.fill(x, 0)
        stream.synchronize()
        np.testing.assert_array_equal(library.get(out), full(value * value))


def test_launch_does_not_wait_for_other_streams(square, library):
    x, out, busy, stream = zeros(library), zeros(library), library.stream(), library.stream()
    library.fill(x, 3)
    square[GRID, BLOCK](x, out)
    torch.cuda.synchronize()
    with library.current(busy):
        for _ in range(20):
            library.wait()
    with library.current(stream):
        for _ in range(3):
            square[GRID, BLOCK](x, out)
    stream.synchronize()
    ended = library.done(busy)
    torch.cuda.synchronize()
    assert not ended


@pytest.mark.parametrize("kind", ["object", "handle"])
def test_given_stream_waits_for_current_one(square, library, kind):
    x, out, stream = zeros(library), zeros(library), library.stream()
    for value in (2.0, 3.0, 4.0):
        library.wait()
        library.fill(x, value)
        square[GRID, BLOCK, stream if kind == "object" else library.handle(stream)](x, out)
        stream.synchronize()
        np.testing.assert_array_equal(library.get(out), full(value * value))


def test_cupys_stream_waits_for_launch_on_another_stream(square):
    # Version 3 of the array interface requires it: CuPy's next work must not overtake the kernel.
    x, out, stream = zeros(CuPy), zeros(CuPy), CuPy.stream()
    for value in (2.0, 3.0, 4.0):
        x.fill(value)
        with stream:
            CuPy.wait()
        square[GRID, BLOCK, stream](x, out)
        x.fill(0)  # on the default stream
        np.testing.assert_array_equal(cupy.asnumpy(out), full(value * value))


def test_launch_with_arrays_of_two_libraries_waits_for_both_streams(square):
    x, out = zeros(CuPy), zeros(Torch)
    ours, theirs = CuPy.stream(), Torch.stream()
    for value in (2.0, 3.0, 4.0):
        with ours, Torch.current(theirs):
            CuPy.wait()
            x.fill(value)
            square[GRID, BLOCK](x, out)  # on CuPy's stream; PyTorch's is ordered before it
        ours.synchronize()
        np.testing.assert_array_equal(Torch.get(out), full(value * value))


def test_launch_on_given_stream_gets_all_data_of_host_arrays(square, library, monkeypatch):
    monkeypatch.setenv("AOTCUDA_HOST_ARRAYS", "copy")
    x, out, stream = np.arange(1 << 22, dtype="float32"), np.zeros(1 << 22, "float32"), library.stream()
    for value in (1.0, 2.0, 3.0):
        x[:] = value
        with pytest.warns(HostArrayWarning):
            square[x.size // BLOCK, BLOCK, stream](x, out)
        np.testing.assert_array_equal(out, x * x)


def test_streams_of_every_library_are_accepted(square, numba_cuda):
    x, out = CuPy.put(full(3)), zeros(CuPy)
    for stream in (CuPy.stream(), Torch.stream(), numba_cuda.stream()):
        out.fill(0)
        cupy.cuda.Device().synchronize()
        square[GRID, BLOCK, stream](x, out)
        stream.synchronize()
        np.testing.assert_array_equal(out.get(), full(9), err_msg=str(stream))


def test_pytorchs_graph_replays_launches(square):
    x, out = zeros(Torch), zeros(Torch)
    square[GRID, BLOCK](x, out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            square[GRID, BLOCK](x, out)
            out.add_(1)
    for value in (2.0, 3.0):
        x.fill_(value)
        graph.replay()
        np.testing.assert_array_equal(Torch.get(out), full(value * value + 1))


def test_cupys_graph_replays_launches(square):
    x, out, stream = zeros(CuPy), zeros(CuPy), CuPy.stream()
    with stream:
        stream.begin_capture()
        for _ in range(10):
            square[GRID, BLOCK](x, out)
        graph = stream.end_capture()
        for value in (2.0, 3.0):
            x.fill(value)
            graph.launch(stream)
            np.testing.assert_array_equal(cupy.asnumpy(out), full(value * value))


def test_first_launch_may_be_captured(square):
    # The fixture has unloaded the module; the launch loads it during the capture.
    x, out = zeros(Torch), zeros(Torch)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        square[GRID, BLOCK](x, out)
    x.fill_(5)
    graph.replay()
    np.testing.assert_array_equal(Torch.get(out), full(25))


def test_capture_refuses_arrays_of_another_stream(square):
    x, out, other = zeros(Torch), zeros(CuPy), CuPy.stream()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with other, pytest.raises(ArgumentError, match="is not part of the graph"):
            square[GRID, BLOCK](x, out)
        x.add_(1)  # the capture goes on
    graph.replay()
    np.testing.assert_array_equal(Torch.get(x), full(1))


def test_given_stream_joins_capture(square):
    x, out, stream = zeros(Torch), zeros(Torch), Torch.stream()
    square[GRID, BLOCK](x, out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            square[GRID, BLOCK, stream](x, out)
        out.add_(1)
    x.fill_(3)
    graph.replay()
    np.testing.assert_array_equal(Torch.get(out), full(10))


ENVIRONMENTS = {
    "cudaMallocAsync in PyTorch": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
    "per-thread default streams": {"CUPY_CUDA_PER_THREAD_DEFAULT_STREAM": "1"},
    "pools of CuPy": {"AOTCUDA_TEST_POOL": "1"},
}

SCRIPT = """
import contextlib, json, os
import cupy, torch
import quickstart.kernels as k
if "AOTCUDA_TEST_POOL" in os.environ:
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
N = 1 << 16
found = []

def launch(full, empty):
    for value in range(20):
        x, y, out = full(value), full(1), empty()
        k.axpy[N // 256, 256](2.0, x, y, out)
        found.append(bool((out == 2 * value + 1).all()))
        del x, y, out

for _ in range(3):
    for stream in (cupy.cuda.Stream(non_blocking=True), contextlib.nullcontext()):
        with stream:
            launch(lambda value: cupy.full(N, value, "float32"), lambda: cupy.empty(N, "float32"))
    with torch.cuda.stream(torch.cuda.Stream()):
        launch(lambda value: torch.full((N,), float(value), device="cuda"), lambda: torch.empty(N, device="cuda"))
print(json.dumps([all(found), len(found)]))
"""


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_freed_memory_is_reused_in_order_of_streams(run_clean, environment):
    assert run_clean(SCRIPT, **ENVIRONMENTS[environment]) == [True, 180]


ATTRIBUTES = [
    {"cluster": 2},
    {"cluster": (8, 1)},
    {"cluster": 16},
    {"cooperative": True},
    {"dependent": True},
    {"priority": -1},
    {"carveout": 50},
    {"cluster": 4, "dependent": True, "priority": -2, "carveout": 100, "shared": 1000},
]


@pytest.mark.parametrize("attributes", ATTRIBUTES, ids=str)
def test_numbers_are_right_with_launch_attributes(square, library, attributes):
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("clusters and dependent launches need compute capability 9.0")
    x, out, stream = zeros(library), zeros(library), library.stream()
    run = square.configure(GRID, BLOCK, **attributes)
    on_stream = square.configure(GRID, BLOCK, stream=stream, **attributes)
    for value in (2.0, 3.0, 4.0):
        library.fill(x, value)
        run(x, out)
        np.testing.assert_array_equal(library.get(out), full(value * value))
        library.fill(x, value + 1)
        on_stream(x, out)
        stream.synchronize()
        np.testing.assert_array_equal(library.get(out), full((value + 1) ** 2))
