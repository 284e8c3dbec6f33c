"""Test launches on a GPU: numbers on both paths, arrays of the libraries, and a kernel's figures."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import aotcuda
from aotcuda.runtime.launch import execute

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy")
torch = pytest.importorskip("torch")

from gpu.libraries import CuPy, Numba, Torch  # noqa: E402 (both libraries are there)

N = 200
X = np.linspace(-3, 3, N, dtype="float32")
ZEROS = np.zeros(N, "float32")
SQUARE = "void(float32[::1], float32[::1])"


class OnlyDLPack:
    """An array that has DLPack's methods alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("name", ["cupy", "torch", "numba"])
def test_each_launch_uses_its_own_arguments(square, general, name, request):
    library = Numba(request.getfixturevalue("numba_cuda")) if name == "numba" else CuPy if name == "cupy" else Torch
    run = square[2, 128]
    for scale in range(5):
        x, out = library.put(X * scale), library.put(ZEROS)
        run(x, out)
        np.testing.assert_array_equal(library.get(out), (X * scale) ** 2)
    assert len(general) == execute.SPECIALIZE_AT


def test_overloads_and_libraries_in_turn(square, general):
    for _ in range(3):
        for dtype in ("float32", "int64", "complex64"):
            x = X.astype(dtype)
            ours, theirs = cupy.zeros(N, dtype), torch.zeros(N, dtype=getattr(torch, dtype), device="cuda")
            square[2, 128](cupy.asarray(x), ours)
            square[2, 128](torch.from_numpy(x).cuda(), theirs)
            np.testing.assert_array_equal(ours.get(), x * x)
            np.testing.assert_array_equal(theirs.cpu().numpy(), x * x)
    assert len(general) == 6 * execute.SPECIALIZE_AT


def test_dlpack_and_tensors_with_gradients_are_accepted(square):
    for x in (OnlyDLPack(cupy.asarray(X)), OnlyDLPack(Torch.put(X)), Torch.put(X).requires_grad_()):
        out = cupy.zeros(N, "float32")
        square[2, 128](x, OnlyDLPack(out))
        np.testing.assert_array_equal(out.get(), X * X)


@pytest.mark.parametrize("library", [CuPy, Torch], ids=["cupy", "torch"])
def test_wrong_array_is_refused_after_right_ones(square, library):
    good, strided = library.put(ZEROS), library.put(np.zeros(2 * N, "float32"))[::2]
    other = cupy.zeros(N, "uint16") if library is CuPy else torch.zeros(N, dtype=torch.bfloat16, device="cuda")
    for _ in range(3):
        square[2, 128](good, good)
    for bad in (strided, other, good.reshape(2, N // 2)):
        with pytest.raises(aotcuda.ArgumentError):
            square[2, 128](bad, good)
    square[2, 128](good, good)


def test_lazy_conjugates_are_refused_and_lazy_negatives_read_as_in_memory(square):
    x = torch.ones(N, dtype=torch.complex64, device="cuda")
    for _ in range(2):
        square[2, 128](x, torch.zeros_like(x))
    with pytest.raises(aotcuda.ArgumentError, match="resolve_conj"):
        square[2, 128](x.conj(), torch.zeros_like(x))
    plain = torch.ones(N, device="cuda")
    for _ in range(2):
        square[2, 128](plain, plain)
    negative = x.conj().imag[0].reshape(1)  # one number, since more of them have steps
    assert negative.is_neg()
    memory, out = torch.from_dlpack(negative), torch.zeros(1, device="cuda")
    square[2, 128](negative, out)
    assert out.item() == memory.item() ** 2


def test_full_queue_and_host_function_do_not_wait_for_each_other(square):
    stream = CuPy.stream()
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


def test_grid_may_have_more_than_65535_blocks_in_x(features):
    counter = cupy.zeros(1, "int32")
    features.count_up[2**18, 1](counter)
    assert counter.get()[0] == 2**18


def test_occupancy_bounds_cooperative_grids(features):
    blocks = features.square.occupancy(1024, signature=SQUARE)
    count = cupy.cuda.runtime.getDeviceProperties(0)["multiProcessorCount"]
    assert 1 <= blocks <= 2
    assert features.square.max_cooperative_grid_blocks(1024, signature=SQUARE) == blocks * count


def test_cuda_core_launches_kernel_itself(features):
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
