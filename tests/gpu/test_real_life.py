"""Test records, strings, random numbers, exceptions and more against NumPy and Numba's own JIT."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

import aotcuda
from support import front_ends

pytestmark = [pytest.mark.gpu, pytest.mark.front_end(front_ends.NUMBA)]
cupy = pytest.importorskip("cupy")

BOTH = pytest.mark.front_end(*front_ends.ALL)  # the other tests need numba-cuda itself
X = np.linspace(-3, 3, 200, dtype="float32")


@pytest.fixture(scope="module")
def real(features):
    import gpufeatures.real

    return gpufeatures.real


@pytest.fixture(scope="module")
def source(real, numba_cuda):
    from gpufeatures import _real

    return _real


@pytest.fixture(scope="module")
def checked(packaged):
    return packaged("checked", "checked.kernels")


def test_structured_arrays_are_read_and_written(real, source, numba_cuda):
    particles = np.zeros(50, source.particle)
    particles["x"], particles["id"] = np.arange(50) / 2, np.arange(50) * 3
    device, out = numba_cuda.to_device(particles), cupy.zeros(50, "float32")
    real.records[1, 64](device, out)
    np.testing.assert_array_equal(out.get(), (particles["x"] * particles["id"]).astype("float32"))
    np.testing.assert_array_equal(device.copy_to_host()["id"], particles["id"] + 1)


@pytest.mark.parametrize("name", ["int32", "float32", "float64"])
def test_type_argument_selects_its_overload(real, numba_cuda, name):
    from numba import types

    x = np.linspace(-3, 3, 50)
    given = cupy.asarray(x)
    for spelling in (np.dtype(name).type, np.dtype(name), getattr(types, name)):
        for _ in range(2):
            out = cupy.zeros_like(given)
            real.rounded[1, 64](spelling, given, out)
            np.testing.assert_array_equal(out.get(), x.astype(name).astype("float64"))


def test_arrays_of_strings_are_compared_and_written(real, numba_cuda):
    texts = np.array(["one", "three", "twelve chars", ""], "U12")
    codes = np.zeros(8, "S12")
    device, wide = numba_cuda.to_device(texts), numba_cuda.to_device(codes)
    for _ in range(2):
        equal = numba_cuda.to_device(np.zeros(4, "?"))
        device.copy_to_device(texts)
        real.strings[1, 32](device, wide[::2], equal)
        np.testing.assert_array_equal(equal.copy_to_host(), texts == "three")
        np.testing.assert_array_equal(device.copy_to_host(), np.full(4, "XYZ", "U12"))
    np.testing.assert_array_equal(wide.copy_to_host(), np.array([b"ABC", b""] * 4, "S12"))


def test_strings_in_records_are_written(real, source, numba_cuda):
    device = numba_cuda.to_device(np.zeros(3, source.named))
    real.strings_in_records[1, 32](device)
    expected = np.array([(i, "XYZ", b"ABC") for i in range(3)], source.named)
    np.testing.assert_array_equal(device.copy_to_host(), expected)


def test_record_on_gpu_is_read(real, source, numba_cuda):
    record = np.zeros(1, source.particle)
    record["x"], record["id"] = 2.5, 40
    out = cupy.zeros(1, "float32")
    real.one_record[1, 1](numba_cuda.to_device(record)[0:1].reshape(()), out)
    assert out.get()[0] == 42.5


def test_datetimes_arrive_with_their_values(real, numba_cuda):
    days = np.array(["2026-01-01", "2026-06-30", "2027-02-03"], "datetime64[ns]")
    out = numba_cuda.device_array(3, "datetime64[ns]")
    day, step = np.datetime64("2000-02-29", "ns"), np.timedelta64(36, "h").astype("timedelta64[ns]")
    real.dates[1, 32](day, step, numba_cuda.to_device(days), out)
    np.testing.assert_array_equal(out.copy_to_host(), [day, *(days[1:] + step)])


def test_random_numbers_equal_those_of_numbas_jit(real, source, numba_cuda):
    from numba.cuda.random import create_xoroshiro128p_states

    ours, theirs = cupy.zeros(256, "float32"), cupy.zeros(256, "float32")
    real.random_numbers[2, 128](create_xoroshiro128p_states(256, seed=7), ours)
    source.random_numbers[2, 128](create_xoroshiro128p_states(256, seed=7), theirs)
    np.testing.assert_array_equal(ours.get(), theirs.get())
    assert 0.4 < ours.get().mean() < 0.6


@BOTH
def test_warps_shuffle_and_vote(real):
    x = np.arange(32, dtype="int32")
    out = cupy.zeros(32, "int32")
    real.warps[1, 32](cupy.asarray(x), out)
    np.testing.assert_array_equal(out.get(), np.append(x[1:], 31) * 100 + 21)


@pytest.mark.parametrize("name", ["local_array", "special_functions", "limited"])
def test_bits_equal_those_of_numbas_jit(features, real, source, name):
    import gpufeatures.limited

    ours, theirs = cupy.asarray(X), cupy.asarray(X)
    arguments = () if name == "special_functions" else (cupy.asarray(X),)
    getattr(gpufeatures.limited if name == "limited" else real, name)[2, 100](*arguments, ours)
    getattr(source, name)[2, 100](*arguments, theirs)
    np.testing.assert_array_equal(ours.get(), theirs.get())


def test_array_is_reshaped_in_every_way(real):
    out = cupy.zeros(2, "float32")
    real.reshaped[1, 1](cupy.arange(6, dtype="float32"), out)
    assert out.get().tolist() == [5.0, 2.0]
    x, out = cupy.arange(12, dtype="float32"), cupy.zeros(4, "float32")
    real.reshaped_in_every_way[1, 1](x, 2, out)
    assert out.get().tolist() == [11.0, 6.0, 10.0, 12.0]
    assert x.get().tolist() == [0, 1, 2, -1, *range(4, 12)]


def test_members_of_enumeration_are_stored(real):
    x = cupy.zeros(2, "int32")
    real.colours[1, 1](x)
    assert x.get().tolist() == [7, 9]


def test_half_precision_functions_accept_expressions(real):
    x = np.linspace(0, 8, 100, dtype="float16")
    out = cupy.zeros(100, "float16")
    real.half_norms[1, 128](cupy.asarray(x), out)
    exact = x.astype("float64")
    np.testing.assert_allclose(out.get(), exact + 2 * exact * exact, rtol=3e-3)


def records_on_the_gpu(dtype, shape):
    """Return records in memory of CuPy, which has no structured dtypes; a function that describes views; the result."""
    count = int(np.prod(shape))
    values = np.zeros(count, dtype)
    values["x"], values["id"] = np.arange(count) + 0.5, np.arange(count)
    device = cupy.asarray(values.view("<u1"))
    values = values.reshape(shape)

    def described(like):
        offset = like.__array_interface__["data"][0] - values.__array_interface__["data"][0]
        own = {"data": (device.data.ptr + offset, False), "shape": like.shape, "strides": like.strides}
        own |= {"typestr": dtype.str, "descr": dtype.descr, "version": 3, "stream": None}
        return SimpleNamespace(__cuda_array_interface__=own)

    return values, described, lambda: device.get().view(dtype).reshape(shape)


PARTICLE = np.dtype([("x", "f4"), ("id", "i8")], align=True)


@BOTH
def test_records_of_two_dimensions_and_any_strides(real):
    values, described, _ = records_on_the_gpu(PARTICLE, (6, 10))
    into, described_into, result = records_on_the_gpu(PARTICLE, (4, 3))
    part = values[1::2, 1:9:2]
    real.records_turned[(1, 1), (4, 4)](described(part), described_into(into))
    np.testing.assert_array_equal(result()["id"], part["id"].T)
    np.testing.assert_array_equal(result()["x"], part["x"][::-1].T)
    values, described, _ = records_on_the_gpu(PARTICLE, (12,))
    out = cupy.zeros(3, "float32")
    real.records_from_the_end[1, 32](described(values[::3]), out)
    np.testing.assert_array_equal(out.get(), values[::3]["x"][:0:-1])


@BOTH
def test_helper_that_raises_ends_its_thread(real):
    x = np.linspace(-3, 3, 100, dtype="float32")
    out = cupy.asarray(x)
    real.ended_by_a_helper[1, 128](out)
    np.testing.assert_array_equal(out.get(), np.where(x > 0, 2 * x, x))


def test_print_writes_to_standard_output(real, run_clean):
    script = """
import ctypes, json, os, tempfile
from gpu import buffers
buffers.primary_context()
import gpufeatures.real as k
x = buffers.Buffer("i", [42])
with tempfile.TemporaryFile() as file:
    saved = os.dup(1); os.dup2(file.fileno(), 1)
    k.says[1, 1](x)
    buffers.cuda.cuCtxSynchronize()
    os.dup2(saved, 1)
    file.seek(0)
    print(json.dumps(file.read().decode()))
"""
    assert run_clean(script, "gpufeatures").split() == ["the", "answer", "is", "42"]


@BOTH
def test_device_functions_may_recurse(real):
    x = cupy.arange(12, dtype="int64")
    real.recursive[1, 32](x)
    assert x.get().tolist() == [math.factorial(n) for n in range(12)]


@BOTH
def test_bfloat16_arrays_are_read_and_written(real):
    torch = pytest.importorskip("torch")
    x = torch.linspace(-2, 2, 100, device="cuda", dtype=torch.bfloat16)
    out = torch.zeros_like(x)
    real.brain_floats[1, 128](x, out)
    assert torch.equal(out, x + x)


@BOTH
def test_debug_build_raises_exceptions_of_its_kernels(checked):
    x = cupy.ones(64, "float32")
    checked.raises[2, 32](x)
    x[40] = 5
    place = r"in raises \(checked/_source.py:\d+\), raises of checked.kernels, thread \[8, 0, 0\] of block \[1, 0, 0\]"
    with pytest.raises(ValueError, match=place + ": too big"):
        checked.raises[2, 32](x)
    with pytest.raises(ZeroDivisionError):
        checked.raises[1, 1](cupy.zeros(1, "float32"))
    with pytest.raises(aotcuda.DeviceError, match=r"checked._source.OddError in odd \(checked/_source.py:\d+\)"):
        checked.odd[1, 1](cupy.ones(1, "int32"))
    x = cupy.zeros(32, "float32")
    checked.fine[1, 32](x)
    assert x.get().sum() == 32
