"""Numba's own arrays, which are read by their attributes."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest

from aotcuda import ArgumentError
from aotcuda.runtime.launch.arguments import arrays
from support.manifests import kernel

pytest.importorskip("numba", reason="there is no Numba for this Python")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from numba.cuda.cudadrv import devicearray

F4 = np.dtype("float32")


class Context:
    """A stand-in for the context that Numba's memory refers to."""


class Stream:
    """A stream of Numba's, as its arrays keep it."""

    def __init__(self, handle):
        self.handle = handle

    def __int__(self):
        return self.handle


@pytest.fixture
def make(cuda, path):
    """Make arrays of Numba's class in the stand-in's memory."""
    context, driver = Context(), sys.modules[f"{devicearray.__name__.rpartition('.')[0]}.driver"]
    owners = []

    def make(shape=(8,), strides=None, dtype=F4, device=0, stream=0):
        strides = np.empty(shape, dtype).strides if strides is None else strides
        pointer = driver.binding.CUdeviceptr(cuda.allocate(4096, device))
        owners.append(driver.AutoFreePointer(context, pointer, 4096))
        extents = tuple([extent or 1 for extent in shape])  # for one without elements Numba would ask the driver
        array = devicearray.DeviceNDArray(extents, strides, dtype, stream=stream, gpu_data=owners[-1].own())
        array.shape = shape
        return array

    make.owners = owners
    return make


@pytest.mark.parametrize(("shape", "dtype"), [((), "int64"), ((5,), "float32"), ((3, 4), "complex64")])
def test_array_is_read_like_its_interface(make, shape, dtype):
    array = make(shape, dtype=np.dtype(dtype))
    found, expected = arrays.reader(array)(array, [], 0), arrays._read_interface(array, [], 0)
    assert found[:3] == expected[:3]
    assert found[3] is None


def test_broadcast_dimensions_are_not_contiguous(cuda, make):
    k = cuda.package(kernel("k", "void(float32[::1])", "void(float32[:,::1])")).k
    for _ in range(2):
        k[1, 1](make((8,)))
        for shape, strides in (((8,), (0,)), ((3, 8), (0, 4))):
            with pytest.raises(ArgumentError, match=r"contiguous|float32\[:,:\]"):
                k[1, 1](make(shape, strides))


@pytest.mark.parametrize(("bound", "launched", "waits"), [(0, 0, 0), (0, 7, 0), (7, 7, 0), (7, 0, 2), (9, 7, 2)])
def test_launch_and_arrays_stream_wait_for_each_other(cuda, make, bound, launched, waits):
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for count in (1, 2, 3):
        k[1, 1, launched](make(stream=Stream(bound) if bound else 0))
        assert len(cuda.calls("cuStreamWaitEvent")) == waits * count


def test_freed_memory_is_error(cuda, make):
    made = [make(), make(), make()]
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for array in made[:2]:
        k[1, 1](array)
    make.owners.clear()
    with pytest.raises(ArgumentError, match="cannot be read: ReferenceError: weakly-referenced object no longer"):
        k[1, 1](made[2])
    assert len(cuda.launches()) == 2
