"""The bytes of a launch's parameter block, against NumPy."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, ManifestError
from support.manifests import kernel

pytestmark = pytest.mark.usefixtures("both_paths")

INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
ELEMENTS = [np.bool_, *INTEGERS, np.float16, np.float32, np.float64, np.complex64, np.complex128]


def packed(cuda, signature, *args, **options):
    """Return the block that a launch of a kernel with this signature sends."""
    module = cuda.package(kernel("k", signature, **options))
    module.k[1, 32](*args)
    return cuda.parameters()


def words(array, like):
    """Return the words of a numba-cuda array, as NumPy computes them."""
    return np.array([0, 0, like.size, like.itemsize, array.address, *like.shape, *like.strides], "<i8").tobytes()


@pytest.mark.parametrize(
    ("type_", "value", "dtype"),
    [
        ("bool", True, "?"),
        ("bool", 1, "?"),
        ("int8", -128, "<i1"),
        ("uint8", 255, "<u1"),
        ("int16", -5, "<i2"),
        ("uint16", 65535, "<u2"),
        ("int32", -(2**31), "<i4"),
        ("uint32", 2**32 - 1, "<u4"),
        ("int64", -(2**63), "<i8"),
        ("uint64", 2**64 - 1, "<u8"),
        pytest.param("float16", 1.5, "<f2", marks=pytest.mark.general("float16")),
        ("float32", 0.1, "<f4"),
        ("float32", 7, "<f4"),
        ("float32", float("inf"), "<f4"),
        ("float64", 0.1, "<f8"),
        ("complex64", 1.5 - 2j, "<c8"),
        ("complex128", 0.1 + 0.2j, "<c16"),
        ("complex128", 3, "<c16"),
        ("int32", True, "<i4"),
        ("float32", np.float64(0.1), "<f4"),
        ("float32", np.float32(0.1), "<f4"),
        ("float64", np.float16(0.5), "<f8"),
        ("int32", np.int64(-3), "<i4"),
        ("int8", np.bool_(True), "<i1"),
        ("bool", np.bool_(False), "?"),
        pytest.param("complex64", np.complex64(1 + 2j), "<c8", marks=pytest.mark.general("NumPy's complex64")),
        ("complex64", np.float32(2), "<c8"),
    ],
)
def test_scalar_gets_parameters_type(cuda, type_, value, dtype):
    assert packed(cuda, f"void({type_})", value) == np.array(value, dtype).tobytes()


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("int8", 128),
        ("uint8", -1),
        ("int32", 2**31),
        ("uint64", 2**64),
        ("float16", 65536.0),
        ("float32", 1e39),
        ("float64", 10**400),
        ("complex64", 1e39j),
        ("bool", 2),
        ("uint32", np.int64(-1)),
    ],
)
def test_scalar_out_of_range_is_refused(cuda, type_, value):
    with pytest.raises(ArgumentError, match=f"argument 1, a, is .* out of range for {type_}"):
        packed(cuda, f"void({type_})", value)
    assert cuda.launches() == []


@pytest.mark.parametrize(
    ("like", "layout"),
    [
        (np.zeros((), "<f4"), ""),
        (np.zeros(5, "<f4"), "::1"),
        (np.zeros((2, 3, 4), "<f4"), ":,:,::1"),
        (np.zeros((2, 3, 4), "<f4", order="F"), "::1,:,:"),
        (np.zeros(10, "<f4")[::2], ":"),
        (np.zeros(10, "<f4")[::-1], ":"),
        (np.zeros((4, 6), "<f4")[1:3, ::3], ":,:"),
        (np.broadcast_to(np.zeros(3, "<f4"), (2, 3)), ":,:"),
        (np.zeros((4, 6), "<f4"), ":,:"),
    ],
    ids=lambda value: str(getattr(value, "strides", value)),
)
def test_array_sends_shape_and_strides(cuda, like, layout):
    array = cuda.array(like)
    assert packed(cuda, f"void(float32[{layout}])", array) == words(array, like)


@pytest.mark.parametrize("layout", ["::1,:", ":,::1", ":,:"])
def test_array_of_no_elements_needs_no_memory(cuda, layout):
    array = cuda.array(np.zeros((0, 4), "<f4"), data=(0, False), strides=(0, 0))
    numbers = np.frombuffer(packed(cuda, f"void(float32[{layout}])", array), "<i8")
    assert numbers[:7].tolist() == [0, 0, 0, 4, 0, 0, 4]


@pytest.mark.parametrize("dtype", [np.dtype(numpy_type).name for numpy_type in ELEMENTS])
def test_arrays_of_every_element_type(cuda, dtype):
    like = np.zeros(6, dtype)
    array = cuda.array(like)
    assert packed(cuda, f"void({dtype}[::1])", array) == words(array, like)


def test_scalars_are_aligned_as_manifest_says(cuda):
    block = packed(
        cuda,
        "void(bool, float64, int8, int16, int32[::1], uint8)",
        True,
        2.5,
        -1,
        300,
        (x := cuda.array(np.zeros(3, "<i4"))),
        7,
    )
    layout = np.dtype(
        {
            "names": ["a", "b", "c", "d", "e", "f"],
            "formats": ["?", "<f8", "<i1", "<i2", ("<i8", 7), "<u1"],
            "offsets": [0, 8, 16, 18, 24, 80],
        }
    )
    assert len(block) == 81
    fields = np.frombuffer(block, layout)[0]
    assert fields.tolist()[:4] == (True, 2.5, -1, 300)
    assert fields["e"].tobytes() == words(x, np.zeros(3, "<i4"))
    assert fields["f"] == 7
    gaps = set(range(81)) - {0, *range(8, 17), 18, 19, *range(24, 81)}
    assert {block[at] for at in gaps} == {0}


@pytest.mark.general("tuples")
def test_nested_tuples_are_packed(cuda):
    array = cuda.array(np.zeros(4, "<f4"))
    block = packed(cuda, "void((int32, (float64, float32[::1])), int8)", (7, (0.5, array)), 3)
    assert np.frombuffer(block[:4], "<i4")[0] == 7
    assert np.frombuffer(block[8:16], "<f8")[0] == 0.5
    assert block[16:72] == words(array, np.zeros(4, "<f4"))
    assert block[72] == 3


@pytest.mark.general("ctypes.c_void_p")
def test_pointer_takes_address(cuda):
    import ctypes

    module = cuda.package(kernel("k", "void(float32*)"))
    module.k[1, 1](2**63 + 8)
    assert int.from_bytes(cuda.parameters(), "little") == 2**63 + 8
    module.k[1, 1](ctypes.c_void_p(4096))
    assert int.from_bytes(cuda.parameters(), "little") == 4096
    with pytest.raises(ArgumentError, match=r"is float where float32\* is packaged"):
        module.k[1, 1](1.0)


def test_array_words_follow_manifest(cuda):
    record = kernel("k", "void(int32[:,:])")
    layout = ["data", "data", "zero", "shape0", "shape1", "step0", "step1"]
    record["overloads"][0]["parameters"][0]["words"] = layout
    record["overloads"][0]["parameter_bytes"] = 56
    like = np.zeros((4, 6), "<i4")[::2]
    array = cuda.array(like)
    cuda.package(record).k[1, 1](array)
    expected = [array.address, array.address, 0, 2, 6, 12, 1]
    assert np.frombuffer(cuda.parameters(), "<i8").tolist() == expected


@pytest.mark.parametrize("change", [{"offset": -1}, {"format": "s"}, {"kind": "array"}, {"format": None}])
def test_wrong_parameter_in_manifest_is_error(cuda, change):
    record = kernel("k", "void(int32)")
    record["overloads"][0]["parameters"][0].update(change)
    module = cuda.package(record)
    with pytest.raises(ManifestError, match=r"describes k_0 of mypkg\.kernels\.k wrongly"):
        module.k[1, 1](1)


def special(kind, dtype):
    parameter = {"name": "a", "type": kind, "kind": kind, "dtype": dtype, "offset": 0}
    return kernel("k", "void()", parameters=[parameter], parameter_bytes=8)


RECORD = np.dtype([("x", "f4"), ("id", "i8")], align=True)
RECORD_TEXT = "|V16{x:<f4@0,id:<i8@8}"


@pytest.mark.general("records")
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_record_is_address_of_one_element(cuda, shape):
    module = cuda.package(special("record", RECORD_TEXT))
    array = cuda.array(np.zeros(shape, RECORD), descr=RECORD.descr)
    module.k[1, 1](array)
    assert cuda.parameters() == struct.pack("<Q", array.address)
    other = np.dtype([("y", "f4"), ("id", "i8")], align=True)
    for wrong in (np.zeros(2, RECORD), np.zeros((), other)):
        with pytest.raises(ArgumentError, match=r"where record is packaged \(\|V16\{x:<f4@0,id:<i8@8\}\)"):
            module.k[1, 1](cuda.array(wrong, descr=wrong.dtype.descr))


@pytest.mark.general("datetimes")
def test_datetime_is_count_of_its_unit(cuda):
    module = cuda.package(special("datetime", "<M8[ns]"))
    when = np.datetime64("2026-01-01T00:00:01", "ns")
    for value, count in ((when, int(when.view("i8"))), (-5, -5)):
        module.k[1, 1](value)
        assert cuda.parameters() == struct.pack("<q", count)
    for wrong in (np.datetime64("2026-01-01", "D"), np.timedelta64(3, "ns"), 1.5, True):
        with pytest.raises(ArgumentError, match=r"where datetime is packaged \(<M8\[ns\]\)"):
            module.k[1, 1](wrong)
