"""Test that packaged kernels give NumPy's numbers, for every kind of argument."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from support import front_ends

pytestmark = [pytest.mark.gpu, pytest.mark.front_end(*front_ends.ALL)]
cupy = pytest.importorskip("cupy")

rng = np.random.default_rng(20)


def test_every_scalar_type_arrives_with_its_value(features):
    values = [True, -7, 250, -3000, 65000, -(2**31), 2**32 - 1, -(2**62), 2**53 + 2, 1.5, 0.1, 0.1]
    out = cupy.zeros(12, "float64")
    features.every_scalar[1, 1](*values, out)
    expected = [float(value) for value in values]
    expected[10] = float(np.float32(0.1))
    assert out.get().tolist() == expected


@pytest.mark.parametrize("dtype", ["int32", "int64", "float16", "float32", "float64", "complex64", "complex128"])
def test_overload_follows_dtype_of_array(features, dtype):
    x = (rng.integers(-99, 99, 300) + (1j if dtype.startswith("c") else 0)).astype(dtype)
    out = cupy.zeros(300, dtype)
    (features.square16 if dtype == "float16" else features.square).forall(300)(cupy.asarray(x), out)
    np.testing.assert_array_equal(out.get(), x * x)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8"])
def test_overload_differs_for_each_type_of_one_byte(features, dtype):
    x = rng.integers(0, 2, 50).astype(dtype)
    out = cupy.full(50, 7).astype(dtype)
    features.negate[1, 64](cupy.asarray(x), out)
    np.testing.assert_array_equal(out.get(), np.logical_not(x).astype(dtype))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_scalars_arrive_with_their_value(features, dtype):
    x = (rng.integers(-9, 9, 40) + 1j * rng.integers(-9, 9, 40)).astype(dtype)
    out = cupy.asarray(x)
    features.rotate[1, 64](2 - 3j, out)
    np.testing.assert_array_equal(out.get(), x * np.dtype(dtype).type(2 - 3j))


def test_nested_tuples_arrive_with_their_values(features):
    x = rng.integers(-99, 99, 70).astype("float64")
    out = cupy.zeros(70)
    features.nested[3, 32]((0.5, (9, -4), cupy.asarray(x)), out)
    np.testing.assert_array_equal(out.get(), 0.5 * x + 13)


def test_arrays_of_any_strides_are_read_and_written(features):
    x = rng.normal(size=(24, 40)).astype("float32")
    source = cupy.asarray(x)[::-2, ::3]
    out = cupy.zeros((14, 12), "float32").T
    features.copy_any[(1, 1), (16, 16)](source, out)
    np.testing.assert_array_equal(out.get(), x[::-2, ::3].repeat(1, 0)[:12, :14])


def test_fortran_order_is_written(features):
    x = rng.normal(size=(8, 12)).astype("float32")
    out = cupy.zeros((12, 8), "float32", order="F")
    features.transpose[(1, 1), (16, 16)](cupy.asarray(x), out)
    np.testing.assert_array_equal(out.get(), x.T)


def test_tiled_matrix_product_is_right(features):
    a, b = rng.normal(size=(50, 70)).astype("float32"), rng.normal(size=(70, 30)).astype("float32")
    c = cupy.zeros((50, 30), "float32")
    features.matmul[(4, 2), (16, 16)](cupy.asarray(a), cupy.asarray(b), c)
    np.testing.assert_allclose(c.get(), a.astype("float64") @ b, rtol=1e-4, atol=1e-4)


def test_shared_arrays_of_two_kernels_are_apart(features):
    x = np.arange(64, dtype="float32")
    reversed_, shifted = cupy.asarray(x), cupy.asarray(x)
    features.reverse[1, 64](reversed_)
    features.shift[1, 64](shifted)
    np.testing.assert_array_equal(reversed_.get(), x[::-1])
    np.testing.assert_array_equal(shifted.get(), np.roll(x, -1))


@pytest.mark.parametrize("items", [100, 50_000])
def test_dynamic_shared_memory_may_exceed_48_kib(features, items):
    x = np.arange(items, dtype="float32")
    out = cupy.asarray(x)
    features.reverse_dynamic[1, 256, 0, 4 * items](out)
    np.testing.assert_array_equal(out.get(), x[::-1])


def test_two_closures_of_one_name_and_every_kind_of_helper(features):
    x = cupy.arange(32, dtype="float32")
    features.twice[1, 32](x)
    features.thrice[1, 32](x)
    np.testing.assert_array_equal(x.get(), np.arange(32) * 6)
    for dtype in ("float32", "float64"):
        x, out = np.linspace(0, 3, 200, dtype=dtype), cupy.zeros(200, dtype)
        features.helped[2, 128](cupy.asarray(x), out)
        np.testing.assert_allclose(out.get(), 2 * x + (x * x + 1) + (np.sqrt(x) + 3 - 1) + 2 * x, rtol=1e-6)


def test_global_arrays_are_constants(features):
    out = cupy.zeros(5, "float32")
    features.constants[1, 32](out)
    assert out.get().tolist() == [1.5, 2.5, -3.0, 4.0, 5.25]


def test_cooperative_kernel_synchronizes_its_whole_grid(features):
    n = 132 * 256
    x, out = cupy.arange(n, dtype="int32"), cupy.zeros(n, "int32")
    features.grid_barrier[132, 256](x, out)
    np.testing.assert_array_equal(out.get(), np.arange(n)[::-1] + 1)


def test_address_is_accepted_for_pointer(features):
    x = cupy.arange(10, dtype="float32")
    features.through_pointer[1, 32](x.data.ptr, 10)
    np.testing.assert_array_equal(x.get(), np.arange(10) * 3)


def test_arrays_without_dimensions_or_elements_are_accepted(features):
    x = cupy.array(41.0)
    features.zero_dimensional[1, 1](x)
    assert x.get() == 42
    features.square[1, 32](cupy.zeros(0, "float32"), cupy.zeros(0, "float32"))


def test_driver_reports_registers_and_memory_of_manifest(features):
    cuda = ctypes.CDLL("libcuda.so.1")
    features.__aotcuda__.preload()
    for record in features.__aotcuda__.manifest["kernels"]:
        kernel = getattr(features, record["name"])
        packed = kernel.images.current.table(record["name"]).overloads
        for overload, plan in zip(record["overloads"], packed, strict=True):
            stated = overload["resources"]["sm_90"]
            found = {}
            for name, attribute in (("local", 3), ("registers", 4)):  # CU_FUNC_ATTRIBUTE_*
                value = ctypes.c_int()
                assert not cuda.cuKernelGetAttribute(ctypes.byref(value), attribute, plan.kernels[0].kernel, 0)
                found[name] = value.value
            assert found == {name: stated[name] for name in found}, overload["symbol"]


@pytest.mark.front_end(front_ends.MLIR)
def test_quickstart_by_numba_cuda_mlir(quickstart) -> None:
    for dtype in ("float32", "float64"):
        x, y = np.arange(1000, dtype=dtype), np.linspace(-1, 1, 1000, dtype=dtype)
        out = cupy.zeros(1000, dtype)
        quickstart.axpy.forall(1000)(2.0, cupy.asarray(x), cupy.asarray(y), out)
        np.testing.assert_allclose(out.get(), 2 * x + y, rtol=1e-6)
