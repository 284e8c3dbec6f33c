"""Test kernels in CUDA C++ on a GPU against NumPy, and against CuPy's RawModule of the same file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy")

FOLDER = Path(__file__).parents[1] / "packages" / "cudacpp"
VECTOR = np.dtype([("x", "<f8"), ("y", "<f8"), ("z", "<f8")], align=True)
INNER = np.dtype([("kind", "<i2"), ("tag", "|i1")], align=True)
STEP = np.dtype([("dt", "<f4"), ("first", "|b1"), ("force", VECTOR), ("inner", INNER, (2,))], align=True)


@pytest.fixture(scope="module")
def package(packaged):
    """Return a function from a module's name to the module of `tests/packages/cudacpp`."""
    return lambda name: packaged("cudacpp", f"cudacpp.{name}")


@pytest.fixture(scope="module")
def jit():
    """Return CuPy's own module of the same file."""
    options = ("--std=c++17", "-DFACTOR=3", f"-I{FOLDER / 'csrc' / 'include'}")
    code = (FOLDER / "csrc" / "raw.cu").read_text()
    return cupy.RawModule(code=code, options=options, name_expressions=["ns::scale<float>", "ns::scale<double>"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_template_instances_equal_those_of_cupy(package, jit, dtype):
    name = {"float32": "ns::scale<float>", "float64": "ns::scale<double>"}[dtype]
    x = cupy.random.default_rng(1).standard_normal((50, 20)).astype(dtype)
    ours, theirs = x.copy(), x.copy()
    package("raw").scale[8, 128](2.5, ours, ours.size)
    jit.get_function(name)((8,), (128,), (np.dtype(dtype).type(2.5), theirs, np.int32(theirs.size)))
    cupy.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(ours.get(), x.get() * np.dtype(dtype).type(2.5))


def test_length_parameter_equals_length_of_array(package):
    x, out = cupy.arange(1000, dtype="float64"), cupy.zeros(1100)
    package("raw").copy[8, 128](x, out)
    assert out[:1000].tolist() == x.tolist()
    assert not out[1000:].any()


def test_stride_parameters_equal_strides_of_arrays(package):
    x = cupy.arange(48, dtype="float32").reshape(6, 8)[::2, :4]
    out = cupy.zeros((4, 3), "float32")
    package("raw").transpose[1, (4, 3)](x, out)
    np.testing.assert_array_equal(out.get(), x.get().T)


def test_structs_have_layout_of_numpys_records(package):
    at, flags = np.zeros(4, VECTOR), cupy.zeros(4, "uint8")
    at["x"] = range(4)
    device = cupy.asarray(at.view("<f8"))
    step = np.zeros((), STEP)
    step["dt"], step["first"], step["force"]["x"], step["inner"]["kind"][1] = 0.5, True, 2, 7

    own = {"shape": (4,), "strides": None, "typestr": VECTOR.str, "descr": VECTOR.descr}
    records = SimpleNamespace(__cuda_array_interface__={**device.__cuda_array_interface__, **own})
    package("raw").move[1, 4](records, step[()], 1.5, flags)
    np.testing.assert_array_equal(device.get().reshape(4, 3)[:, 0], np.arange(4) + 0.5 * 2 * 1.5 + 7)
    assert flags.tolist() == [1] * 4


def test_tensor_map_arrives_whole(package):
    driver = pytest.importorskip("cuda.bindings.driver")
    value, out = driver.CUtensorMap(), cupy.zeros(4, "float32")
    value.opaque = [12345, *range(15)]
    package("raw").tensor[1, 1](2, value, out)
    assert out.tolist() == [0, 0, 12345, 0]


def tensor_map(array):
    """Return the map of an array of rows of 64 floats, of which one is copied at a time."""
    driver = pytest.importorskip("cuda.bindings.driver")
    code, found = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        2,
        array.data.ptr,
        [driver.cuuint64_t(extent) for extent in reversed(array.shape)],
        [driver.cuuint64_t(array.strides[0])],
        [driver.cuuint32_t(64), driver.cuuint32_t(1)],
        [driver.cuuint32_t(1)] * 2,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    assert code == driver.CUresult.CUDA_SUCCESS
    return found


def test_gpu_reads_through_tensor_map(package):
    if cupy.cuda.Device().compute_capability < "90":
        pytest.skip("GPUs read tensor maps from compute capability 9.0 on")
    x, out = cupy.arange(256, dtype="float32").reshape(4, 64), cupy.zeros(64, "float32")
    for number in (2, 0, 3):
        package("raw").row[1, 1](number, tensor_map(x), out)
        assert out.tolist() == x[number].tolist()


def test_numba_calls_cpp_and_cpp_calls_numba(package):
    x = cupy.arange(100, dtype="float32")
    package("python").damp[1, 128](2.0, x)
    np.testing.assert_array_equal(x.get(), np.arange(100) * 6)  # FACTOR is 3
    package("back").doubled[1, 128](x, x.size)
    np.testing.assert_allclose(x.get(), np.arange(100) * 36, rtol=1e-6)
