"""Arrays of every library, by the interfaces that they offer; none of the libraries is needed."""

from __future__ import annotations

import ctypes
import sys
import types

import numpy as np
import pytest

from aotcuda.errors import ArgumentError
from support import libraries
from support.libraries import Array, State
from support.manifests import kernel

pytestmark = pytest.mark.usefixtures("both_paths")

LINE = np.zeros(4, "<f4")
GENERAL = pytest.mark.general("capsules")


@pytest.fixture
def line(cuda):
    """Return a kernel that takes one array of one dimension."""
    return cuda.package(kernel("line", "void(float32[::1])")).line


def passed(cuda):
    """Return address, shape and strides of the array of the last launch."""
    numbers = np.frombuffer(cuda.parameters(), "<i8")
    ndim = (numbers.size - 5) // 2
    return int(numbers[4]), tuple(numbers[5 : 5 + ndim].tolist()), tuple(numbers[5 + ndim :].tolist())


def array_of(library, array, typestr="<f4", *, readonly=False, **changes):
    """Return an array of a library in the memory of a stand-in's array; `changes` as in `libraries.State`."""
    interface = array.interface
    state = State(
        typestr, interface["shape"], interface["strides"], array.address, readonly, changes=(*changes.items(),)
    )
    return libraries.make(Array(library, state))


def test_interface_version_two_needs_no_strides_or_stream(cuda, line):
    array = cuda.array(LINE)
    array.interface = {"version": 2, "data": (array.address, False), "shape": (4,), "typestr": "<f4"}
    line[1, 1](array)
    assert passed(cuda) == (array.address, (4,), (4,))


def test_an_instance_may_have_the_interface(cuda, line):
    interface = cuda.array(LINE).interface
    line[1, 1](types.SimpleNamespace(__cuda_array_interface__=interface))
    assert passed(cuda)[0] == interface["data"][0]
    with pytest.raises(ArgumentError, match=r"is types\.SimpleNamespace where"):
        line[1, 1](types.SimpleNamespace())


@pytest.mark.parametrize("typestr", ["|b1", "<b1", "=b1"])
def test_the_byte_order_of_single_bytes_does_not_matter(cuda, typestr):
    module = cuda.package(kernel("k", "void(bool[::1])"))
    module.k[1, 1](cuda.array(np.zeros(3, "?"), typestr=typestr))
    assert passed(cuda)[1] == (3,)


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (None, 0),
        (2**40, 2**40),
        (types.SimpleNamespace(__cuda_stream__=lambda: (0, 11)), 11),
        (types.SimpleNamespace(__cuda_stream__=(0, 12)), 12),
        (types.SimpleNamespace(ptr=13), 13),
        (types.SimpleNamespace(cuda_stream=14), 14),
        (types.SimpleNamespace(handle=ctypes.c_void_p(15)), 15),
        (types.SimpleNamespace(handle=ctypes.c_void_p(None)), 0),
    ],
)
def test_streams_of_every_library(cuda, line, stream, handle):
    line[1, 1, stream](cuda.array(LINE))
    assert cuda.launches()[0]["stream"] == handle


LIBRARIES = ["torch", *(pytest.param(name, marks=GENERAL) for name in ("dlpack", "versioned", "old"))]


@pytest.mark.parametrize("library", LIBRARIES)
def test_strides_are_turned_into_bytes(cuda, library):
    array = cuda.array(np.zeros((4, 6), "<f4").T)
    cuda.package(kernel("k", "void(float32[:,:])")).k[1, 1](array_of(library, array))
    assert passed(cuda) == (array.address, (6, 4), (4, 24))


HOST, FLOAT32 = r"is an array in the host's memory", r"\[::1\] where float32\[::1\] is packaged"


@pytest.mark.parametrize(
    ("library", "odd", "problem"),
    [
        ("torch", {"is_cuda": False}, rf"{HOST} \(torch\.Tensor\)"),
        ("torch", {"typestr": "bfloat16"}, f"is bfloat16{FLOAT32}"),
        ("torch", {"typestr": "<i8"}, f"is int64{FLOAT32}"),
        ("dlpack", {"device": (1, 0)}, HOST),
        ("dlpack", {"device": (3, 0)}, HOST),
        ("dlpack", {"device": (10, 0)}, HOST),
        ("dlpack", {"code": 0, "bits": 32}, f"is int32{FLOAT32}"),
        ("dlpack", {"code": 4, "bits": 16}, f"is bfloat16{FLOAT32}"),
        ("dlpack", {"code": 12, "bits": 8}, f"is float8_e5m2{FLOAT32}"),
        ("versioned", {"readonly": True}, "is read-only"),
    ],
)
def test_unsuitable_arrays_are_refused(cuda, line, library, odd, problem):
    with pytest.raises(ArgumentError, match=problem):
        line[1, 1](array_of(library, cuda.array(LINE), **odd))
    assert cuda.launches() == []


@GENERAL
@pytest.mark.parametrize("library", ["dlpack", "versioned", "old"])
@pytest.mark.parametrize(("stream", "requested"), [(0, 1), (77, 77)])
def test_dlpack_capsules_are_released_after_the_launch(cuda, line, library, stream, requested):
    plain = cuda.array(LINE)
    array = array_of(library, plain, device=(13, 0))  # managed memory
    line[1, 1, stream](array)
    assert passed(cuda) == (plain.address, (4,), (4,))
    assert [stream for stream, _ in array.requests] == [requested]
    objects = [object()]
    (capsule,), (other,) = array.capsules, objects
    assert sys.getrefcount(capsule) == sys.getrefcount(other)
