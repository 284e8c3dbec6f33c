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

pytestmark = pytest.mark.usefixtures("quick")

LINE = np.zeros(4, "<f4")


@pytest.fixture
def line(cuda):
    """Return a kernel that takes one array of one dimension."""
    return cuda.package(kernel("line", "void(float32[::1])")).line


def sent(cuda):
    """Address, shape and strides of the one array of the last launch."""
    numbers = np.frombuffer(cuda.parameters(), "<i8")
    ndim = (numbers.size - 5) // 2
    return int(numbers[4]), tuple(numbers[5 : 5 + ndim].tolist()), tuple(numbers[5 + ndim :].tolist())


class TestInterface:
    """`__cuda_array_interface__`."""

    def test_version_two_needs_no_strides_or_stream(self, cuda, line):
        array = cuda.array(LINE)
        array.interface = {
            "version": 2,
            "data": (array.address, False),
            "shape": (4,),
            "typestr": "<f4",
        }
        line[1, 1](array)
        assert sent(cuda) == (array.address, (4,), (4,))

    def test_an_instance_may_have_the_interface(self, cuda, line):
        interface = cuda.array(LINE).interface
        line[1, 1](types.SimpleNamespace(__cuda_array_interface__=interface))
        assert sent(cuda)[0] == interface["data"][0]
        with pytest.raises(ArgumentError, match=r"is types\.SimpleNamespace where"):
            line[1, 1](types.SimpleNamespace())

    def test_an_array_without_an_interface_is_in_the_hosts_memory(self, line):
        class OnHost:
            @property
            def __cuda_array_interface__(self):
                raise AttributeError

        with pytest.raises(ArgumentError, match="is an array in the host's memory"):
            line[1, 1](OnHost())

    @pytest.mark.parametrize("typestr", ["|b1", "<b1", "=b1"])
    def test_the_byte_order_of_single_bytes_does_not_matter(self, cuda, typestr):
        module = cuda.package(kernel("k", "void(bool[::1])"))
        module.k[1, 1](cuda.array(np.zeros(3, "?"), typestr=typestr))
        assert sent(cuda)[1] == (3,)


class TestStreams:
    """Data that is still being written on another stream than the launch's."""

    @pytest.mark.parametrize(("ready", "stream"), [(None, 0), (None, 77), (1, 0), (1, 1), (0, 1), (77, 77), (2, 2)])
    def test_nothing_is_ordered_on_one_stream(self, cuda, line, ready, stream):
        line[1, 1, stream](cuda.array(LINE, stream=ready))
        assert cuda.calls("cuEventCreate", "cuEventRecord", "cuStreamWaitEvent") == []
        assert cuda.launches()[0]["stream"] == stream

    def test_each_stream_is_waited_for_once(self, cuda):
        module = cuda.package(kernel("k", "void(float32[::1], float32[::1], float32[::1])"))
        module.k[1, 1](cuda.array(LINE, stream=7), cuda.array(LINE, stream=7), cuda.array(LINE, stream=9))
        assert sorted(call["stream"] for call in cuda.calls("cuEventRecord")) == [0, 0, 7, 9]
        assert sorted(call["stream"] for call in cuda.calls("cuStreamWaitEvent")) == [0, 0, 7, 9]

    @pytest.mark.parametrize(
        ("stream", "handle"),
        [
            (None, 0),
            (0, 0),
            (2**40, 2**40),
            (types.SimpleNamespace(__cuda_stream__=lambda: (0, 11)), 11),
            (types.SimpleNamespace(__cuda_stream__=(0, 12)), 12),
            (types.SimpleNamespace(ptr=13), 13),
            (types.SimpleNamespace(cuda_stream=14), 14),
            (types.SimpleNamespace(handle=ctypes.c_void_p(15)), 15),
            (types.SimpleNamespace(handle=ctypes.c_void_p(None)), 0),
        ],
    )
    def test_streams_of_every_library(self, cuda, line, stream, handle):
        line[1, 1, stream](cuda.array(LINE))
        assert cuda.launches()[0]["stream"] == handle


def tensor(array, typestr="<f4", **odd):
    """Return a stand-in for a tensor of PyTorch; `odd` as in `libraries.State`."""
    interface = array.interface
    state = State(typestr, interface["shape"], interface["strides"], array.address, odd=(*odd.items(),))
    return libraries.make(Array("torch", (state,)))


class TestTorch:
    """PyTorch tensors, which are read without `__cuda_array_interface__`."""

    def test_strides_are_turned_into_bytes(self, cuda):
        array = cuda.array(np.zeros((4, 6), "<f4").T)
        cuda.package(kernel("k", "void(float32[:,:])")).k[1, 1](tensor(array))
        assert sent(cuda) == (array.address, (6, 4), (4, 24))

    def test_a_tensor_on_the_host_is_refused(self, cuda, line):
        with pytest.raises(ArgumentError, match=r"is an array in the host's memory \(torch\.Tensor\)"):
            line[1, 1](tensor(cuda.array(LINE), is_cuda=False))

    @pytest.mark.parametrize(("typestr", "name"), [("bfloat16", "bfloat16"), ("<i8", "int64")])
    def test_another_element_type_is_named(self, cuda, line, typestr, name):
        with pytest.raises(ArgumentError, match=rf"is {name}\[::1\] where float32\[::1\] is packaged"):
            line[1, 1](tensor(cuda.array(LINE), typestr))


def dlpack(array, library="dlpack", typestr="<f4", **odd):
    """Return an array that offers DLPack alone; `odd` as in `libraries.State`."""
    interface = array.interface
    readonly = odd.pop("readonly", False)
    state = State(typestr, interface["shape"], interface["strides"], array.address, readonly, odd=(*odd.items(),))
    return libraries.make(Array(library, (state,)))


GENERAL = pytest.mark.general("capsules")


class TestDlpack:
    """Arrays that offer nothing but DLPack."""

    @GENERAL
    @pytest.mark.parametrize("library", ["dlpack", "versioned", "old"])
    @pytest.mark.parametrize("missing", [False, True])
    def test_the_capsule_is_read_and_given_back_after_the_launch(self, cuda, line, library, missing):
        plain = cuda.array(LINE)
        array = dlpack(plain, library, **{"no strides": missing})
        line[1, 1](array)
        assert sent(cuda) == (plain.address, (4,), (4,))
        (capsule,) = array.capsules
        assert sys.getrefcount(capsule) == 3  # this name, the list, the call

    @GENERAL
    @pytest.mark.parametrize(("stream", "asked"), [(0, 1), (77, 77)])
    def test_the_owner_gets_the_stream(self, cuda, line, stream, asked):
        array = dlpack(cuda.array(LINE))
        line[1, 1, stream](array)
        assert array.asked == [(asked, (1, 0))]

    @GENERAL
    def test_strides_are_turned_into_bytes(self, cuda):
        array = dlpack(cuda.array(np.zeros((4, 6), "<f4").T))
        cuda.package(kernel("k", "void(float32[:,:])")).k[1, 1](array)
        assert sent(cuda)[1:] == ((6, 4), (4, 24))

    def test_a_read_only_array_is_refused(self, cuda, line):
        with pytest.raises(ArgumentError, match="is read-only"):
            line[1, 1](dlpack(cuda.array(LINE), "versioned", readonly=True))
        assert cuda.launches() == []

    @pytest.mark.parametrize(
        ("code", "bits", "name"), [(0, 32, "int32"), (1, 8, "uint8"), (4, 16, "bfloat16"), (12, 8, "float8_e5m2")]
    )
    def test_another_element_type_is_named(self, cuda, line, code, bits, name):
        array = dlpack(cuda.array(LINE), code=code, bits=bits)
        with pytest.raises(ArgumentError, match=rf"is {name}\[::1\] where float32\[::1\] is packaged"):
            line[1, 1](array)

    @pytest.mark.parametrize("device", [(1, 0), (3, 0), (10, 0)])
    def test_an_array_in_the_hosts_memory_is_refused(self, cuda, line, device):
        with pytest.raises(ArgumentError, match="is an array in the host's memory"):
            line[1, 1](dlpack(cuda.array(LINE), device=device))

    @GENERAL
    def test_managed_memory_is_taken(self, cuda, line):
        line[1, 1](dlpack(cuda.array(LINE), device=(13, 0)))
        assert len(cuda.launches()) == 1
