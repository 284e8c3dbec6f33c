"""Launches one after another, on a real GPU: right numbers on every path, streams in order, and what kernels tell."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

import aotcuda
from aotcuda.runtime import fast as extension

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy")
torch = pytest.importorskip("torch")

N = 200
X = np.linspace(-3, 3, N, dtype="float32")
SQUARE = "void(float32[::1], float32[::1])"


@pytest.fixture(params=["general", "extension"])
def path(request, monkeypatch):
    """Run without the fast path and with it; arguments that no overload takes are an error."""
    monkeypatch.setenv("AOTCUDA_FALLBACK", "error")
    if request.param == "general":
        monkeypatch.setattr(extension, "_found", [None])
    elif extension.in_use() is None:
        pytest.skip(f"there is no fast path in C: {extension.why_not()}")
    return request.param


@pytest.fixture
def square(features, path):
    """Return a kernel with overloads for many dtypes, which has not learnt anything yet."""
    cupy.cuda.Device().synchronize()
    features.__aotcuda__.unload()
    features.square._cache().retire()
    return features.square


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_every_launch_gives_the_numbers_of_its_own_arguments(square, general, library):
    run = square[2, 128]
    for scale in range(5):
        x = X * scale
        if library == "cupy":
            out = cupy.zeros(N, "float32")
            run(cupy.asarray(x), out)
            result = out.get()
        else:
            out = torch.zeros(N, device="cuda")
            run(torch.from_numpy(x).cuda(), out)
            result = out.cpu().numpy()
        np.testing.assert_array_equal(result, x * x)
    assert len(general) == 1


def test_overloads_and_libraries_in_turn(square, general):
    for _ in range(3):
        for dtype in ("float32", "int64", "complex64"):
            x = X.astype(dtype)
            ours, theirs = cupy.zeros(N, dtype), torch.zeros(N, dtype=getattr(torch, dtype), device="cuda")
            square[2, 128](cupy.asarray(x), ours)
            square[2, 128](torch.from_numpy(x).cuda(), theirs)
            np.testing.assert_array_equal(ours.get(), x * x)
            np.testing.assert_array_equal(theirs.cpu().numpy(), x * x)
    assert len(general) == 6


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_a_wrong_array_is_refused_after_right_ones(square, library):
    if library == "cupy":
        good, strided, other = cupy.asarray(X), cupy.zeros(2 * N, "float32")[::2], cupy.zeros(N, "uint16")
    else:
        good, strided = torch.zeros(N, device="cuda"), torch.zeros(2 * N, device="cuda")[::2]
        other = torch.zeros(N, dtype=torch.bfloat16, device="cuda")
    for _ in range(3):
        square[2, 128](good, good)
    for bad in (strided, other, good.reshape(2, N // 2)):
        with pytest.raises(aotcuda.ArgumentError):
            square[2, 128](bad, good)
    square[2, 128](good, good)


def test_lazy_conjugates_are_refused_and_lazy_negatives_launched_as_in_memory(square):
    x = torch.ones(N, dtype=torch.complex64, device="cuda")
    for _ in range(2):
        square[2, 128](x, torch.zeros_like(x))
    with pytest.raises(aotcuda.ArgumentError, match="resolve_conj"):
        square[2, 128](x.conj(), torch.zeros_like(x))
    negative = x.conj().imag
    assert negative.is_neg()
    plain = torch.ones(N, device="cuda")
    square[2, 128](plain, plain)
    square[2, 128](plain, plain)
    single = negative[0].reshape(1)  # which is contiguous, as no longer one can be
    assert single.is_neg()
    square[2, 128](plain[:1], plain)
    with pytest.raises(aotcuda.ArgumentError):
        square[2, 128](negative, plain)  # which has steps
    memory, out = torch.from_dlpack(single), torch.zeros(1, device="cuda")
    square[2, 128](single, out)
    assert out.item() == memory.item() ** 2


def test_launches_wait_for_torchs_current_stream(square):
    stream = torch.cuda.Stream()
    for _ in range(3):
        with torch.cuda.stream(stream):
            x = torch.ones(4000, 4000, device="cuda")
            for _ in range(10):
                x = x @ x / 4000
            flat = x.reshape(-1)[:N] * 3
            out = torch.zeros(N, device="cuda")
            square[2, 128](flat, out)  # on the default stream, which the side stream is not ordered with
        torch.cuda.synchronize()
        np.testing.assert_array_equal(out.cpu().numpy(), flat.cpu().numpy() ** 2)


def test_torchs_streams_and_graphs(square):
    x, out = torch.from_numpy(X).cuda(), torch.zeros(N, device="cuda")
    square[2, 128](x, out)
    square[2, 128](x, out)
    out.zero_()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        square[2, 128, torch.cuda.current_stream()](x, out)
    assert out.sum().item() == 0
    graph.replay()
    np.testing.assert_array_equal(out.cpu().numpy(), X * X)


def test_after_preload_the_first_launch_can_be_captured(features, square):
    features.__aotcuda__.unload()
    x, out = cupy.asarray(X), cupy.zeros(N, "float32")
    cupy.cuda.Device().synchronize()
    features.__aotcuda__.preload()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        features.square[2, 128, stream](x, out)
        graph = stream.end_capture()
    graph.launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(out.get(), X * X)


def test_a_new_thread_launches_too(square):
    x, out = cupy.asarray(X), cupy.zeros(N, "float32")
    run = square[2, 128]
    run(x, cupy.zeros(N, "float32"))
    run(x, cupy.zeros(N, "float32"))
    cupy.cuda.Device().synchronize()
    errors = []

    def work():
        try:
            run(x, out)
        except Exception as error:  # noqa: BLE001 (reported below)
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert errors == []
    np.testing.assert_array_equal(out.get(), X * X)


def test_forall_and_changing_grids(square):
    for n in (1, 31, 1000, 100_000, 1000):
        x = cupy.arange(n, dtype="float32")
        out = cupy.zeros(n, "float32")
        square.forall(n)(x, out)
        np.testing.assert_array_equal(out.get(), np.arange(n, dtype="float32") ** 2)


def test_a_full_queue_and_a_host_function_do_not_wait_for_each_other(square):
    stream = cupy.cuda.Stream(non_blocking=True)
    x, out = cupy.asarray(X), cupy.zeros(N, "float32")
    cupy.cuda.Device().synchronize()
    run = square[2, 128, stream]
    called = []
    with stream:
        for _ in range(3):
            run(x, out)
        stream.launch_host_func(called.append, None)
        for _ in range(5000):  # more than the queue holds
            run(x, out)
    stream.synchronize()
    assert called == [None]


def test_host_arrays_are_copied_when_asked_for(square, monkeypatch):
    monkeypatch.setenv("AOTCUDA_HOST_ARRAYS", "copy")
    out = np.zeros(N, "float32")
    with pytest.warns(aotcuda.HostArrayWarning):
        square[2, 128](X, out)
    np.testing.assert_array_equal(out, X * X)


def test_figures_agree_with_the_manifests(features):
    resources = features.__aotcuda__.manifest["kernels"]
    (record,) = [kernel for kernel in resources if kernel["name"] == "square"]
    registers = features.square.get_regs_per_thread()
    shared = features.square.get_shared_mem_per_block()
    for overload in record["overloads"]:
        assert registers[overload["signature"]] == overload["resources"]["sm_90"]["registers"]
        # The image also counts 1 KiB that CUDA reserves from compute capability 9.0 on, where it says so at all.
        assert overload["resources"]["sm_90"]["shared"] - shared[overload["signature"]] in (0, 1024)
    assert features.square.get_max_threads_per_block(SQUARE) == 1024


def test_occupancy_bounds_cooperative_grids(features):
    blocks = features.square.occupancy(1024, signature=SQUARE)
    count = cupy.cuda.runtime.getDeviceProperties(0)["multiProcessorCount"]
    assert 1 <= blocks <= 2
    assert features.square.max_cooperative_grid_blocks(1024, signature=SQUARE) == blocks * count


def test_the_machine_code_can_be_read(features):
    try:
        text = features.square.inspect_sass(SQUARE)
    except aotcuda.DependencyError as error:
        pytest.skip(str(error))
    assert "FMUL" in text
    assert "EXIT" in text


def test_cuda_core_launches_the_kernel_itself(features):
    from cuda.core import Device, LaunchConfig
    from cuda.core import launch as launch_core

    device = Device()
    device.set_current()
    x, out = cupy.asarray(X), cupy.zeros(N, "float32")
    cupy.cuda.Device().synchronize()

    def words(array):
        return [ctypes.c_longlong(word) for word in (0, 0, array.size, 4, array.data.ptr, array.size, 4)]

    kernel = features.square.cuda_core_kernel(SQUARE)
    launch_core(device.default_stream, LaunchConfig(grid=2, block=128), kernel, *words(x), *words(out))
    device.sync()
    np.testing.assert_array_equal(out.get(), X * X)


def test_a_hundred_thousand_launches_leave_the_memory_as_it_was(square):
    x, out = cupy.asarray(X), cupy.zeros(N, "float32")
    run = square[2, 128]

    def resident():
        with open("/proc/self/status", encoding="utf-8") as file:  # noqa: PTH123
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

    for _ in range(20_000):
        run(x, out)
    cupy.cuda.Device().synchronize()
    before = resident()
    for _ in range(100_000):
        run(x, out)
    cupy.cuda.Device().synchronize()
    assert resident() - before < 1024
