"""Arrays and streams of other libraries; and what a launch refuses on a real GPU."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import aotcuda

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy")
torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def numba_cuda():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from numba import config, cuda
    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
    return cuda


class OnlyDLPack:
    """An array that can be exchanged through DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


X = np.linspace(-3, 3, 200, dtype="float32")


def test_torch_tensors_are_taken(features):
    out = torch.zeros(200, device="cuda")
    features.square[2, 128](torch.from_numpy(X).cuda(), out)
    np.testing.assert_array_equal(out.cpu().numpy(), X * X)


def test_torch_tensors_that_require_gradients_are_taken(features):
    out = torch.zeros(200, device="cuda")
    features.square[2, 128](torch.from_numpy(X).cuda().requires_grad_(), out)
    np.testing.assert_array_equal(out.cpu().numpy(), X * X)


def test_numba_arrays_are_taken(features, numba_cuda):
    out = numba_cuda.device_array(200, "float32")
    features.square[2, 128](numba_cuda.to_device(X), out)
    np.testing.assert_array_equal(out.copy_to_host(), X * X)


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_anything_with_dlpack_is_taken(features, library):
    source = cupy.asarray(X) if library == "cupy" else torch.from_numpy(X).cuda()
    out = cupy.zeros(200, "float32")
    features.square[2, 128](OnlyDLPack(source), OnlyDLPack(out))
    np.testing.assert_array_equal(out.get(), X * X)


def streams(numba_cuda):
    yield "cupy", cupy.cuda.Stream(non_blocking=True)
    yield "torch", torch.cuda.Stream()
    yield "numba", numba_cuda.stream()
    yield "handle", cupy.cuda.Stream(non_blocking=True)


def test_streams_of_every_library_are_taken(features, numba_cuda):
    for library, stream in streams(numba_cuda):
        x, out = cupy.asarray(X), cupy.zeros(200, "float32")
        cupy.cuda.Device().synchronize()
        features.square[2, 128, stream.ptr if library == "handle" else stream](x, out)
        stream.synchronize()
        np.testing.assert_array_equal(out.get(), X * X, err_msg=library)


def test_a_launch_is_ordered_after_the_stream_that_its_array_is_on(features):
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        x = cupy.random.random((4000, 4000), dtype="float32")
        for _ in range(10):
            x = x @ x / 4000
        flat = x.ravel()[:200]
        out = cupy.zeros(200, "float32")
        features.square[2, 128, 0](flat, out)  # on the default stream
    cupy.cuda.Stream.null.synchronize()
    np.testing.assert_array_equal(out.get(), flat.get() ** 2)


def test_numbers_equal_those_of_numbas_own_jit(features, numba_cuda):
    from gpufeatures import _source

    for dtype in ("float32", "float64"):
        x = cupy.asarray(np.abs(X).astype(dtype))
        ours, theirs = cupy.zeros(200, dtype), cupy.zeros(200, dtype)
        features.helped[2, 128](x, ours)
        numba_cuda.jit(jit_helped(numba_cuda, _source))[2, 128](x, theirs)
        np.testing.assert_array_equal(ours.get(), theirs.get())
    a, b = cupy.random.random((64, 64), "float32"), cupy.random.random((64, 64), "float32")
    ours, theirs = cupy.zeros((64, 64), "float32"), cupy.zeros((64, 64), "float32")
    features.matmul[(4, 4), (16, 16)](a, b, ours)
    _source.matmul[(4, 4), (16, 16)](a, b, theirs)
    np.testing.assert_array_equal(ours.get(), theirs.get())


def jit_helped(cuda, source):
    """Return the kernel `helped` with its plain helpers decorated, as Numba itself needs them."""
    from gpufeatures import helpers

    deeper = cuda.jit(device=True)(helpers.deeper)
    double = cuda.jit(device=True)(helpers.double)
    eager, on_host_too, offset = helpers.eager, helpers.on_host_too, helpers.OFFSET

    def helped(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = eager(x[i]) + on_host_too(x[i]) + (deeper(x[i]) + offset - 1) + double(x[i])

    return helped


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda x: (x,), "2"),
        (lambda x: (x.astype("uint16"), x), "uint16"),
        (lambda x: (x.get(), x), "host"),
        (lambda x: (x[::2], x), r"contiguous|::1"),
        (lambda x: (3, x), "int"),
    ],
)
def test_arguments_that_fit_no_signature_are_refused(features, arguments, message):
    with pytest.raises(aotcuda.ArgumentError, match=message):
        features.square[1, 32](*arguments(cupy.asarray(X)))


@pytest.mark.parametrize(
    ("grid", "block"), [(0, 32), (1, 0), ((1, 70000), 1), (2**31, 1), (1, 2048), (1, (1, 1, 65)), (1, -1)]
)
def test_grids_and_blocks_that_the_gpu_cannot_take_are_refused(features, grid, block):
    x = cupy.asarray(X)
    with pytest.raises(aotcuda.LaunchError, match=r"grid|block"):
        features.square[grid, block](x, x)


def test_grids_beyond_65535_blocks_are_possible_in_x(features):
    counter = cupy.zeros(1, "int32")
    features.count_up[2**18, 1](counter)
    assert counter.get()[0] == 2**18


def test_many_threads_launch_at_once(features):
    import threading

    outs = [cupy.zeros(200, "float32") for _ in range(8)]
    x = cupy.asarray(X)
    cupy.cuda.Device().synchronize()
    barrier = threading.Barrier(8)
    errors = []

    def work(out):
        try:
            barrier.wait()
            for _ in range(200):
                features.square[2, 128](x, out)
        except Exception as error:  # noqa: BLE001 (reported below)
            errors.append(error)

    threads = [threading.Thread(target=work, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for out in outs:
        np.testing.assert_array_equal(out.get(), X * X)


def test_launches_can_be_captured_in_a_graph(features):
    x, out = cupy.asarray(X), cupy.zeros(200, "float32")
    features.square[2, 128](x, out)
    out.fill(0)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        features.square[2, 128, stream](x, out)
        graph = stream.end_capture()
    assert out.get().sum() == 0
    graph.launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(out.get(), X * X)


def test_exported_functions_link_into_a_cuda_program(features):
    from cuda.core import Device, LaunchConfig, Linker, LinkerOptions, ObjectCode, Program, ProgramOptions, launch

    folder = Path(features.__aotcuda__.path).parent
    header = (folder / "gpufeatures_kernels.h").read_text()
    source = (
        header
        + """
    extern "C" __global__ void probe(int *i, double *d, float *z)
    {
        i[0] = add_i32(40, 2);
        i[1] = positive(5) + 2 * positive(-5);
        i[2] = negative_i8((signed char)-100);
        store(i + 3, 77);
        d[0] = add_f64(0.5, 0.25);
        aotcuda_complex64 product = times(1.0f, 2.0f, 3.0f, -4.0f);
        z[0] = product.real; z[1] = product.imag;
    }"""
    )
    device = Device()
    device.set_current()
    options = ProgramOptions(arch="sm_90", relocatable_device_code=True, link_time_optimization=True)
    code = Program(source, "c++", options=options).compile("ltoir")
    fatbin = ObjectCode.from_fatbin((folder / "functions.fatbin").read_bytes())
    linked = Linker(code, fatbin, options=LinkerOptions(arch="sm_90", link_time_optimization=True)).link("cubin")
    i, d, z = cupy.zeros(4, "int32"), cupy.zeros(1), cupy.zeros(2, "float32")
    kernel = linked.get_kernel("probe")
    cupy.cuda.Device().synchronize()
    stream = device.create_stream()
    launch(stream, LaunchConfig(grid=1, block=1), kernel, i.data.ptr, d.data.ptr, z.data.ptr)
    stream.sync()
    assert i.get().tolist() == [42, 1, 100, 77]
    assert d.get().tolist() == [0.75]
    assert z.get().tolist() == [11.0, 2.0]
