"""Arrays in the host's memory: an error, unless AOTCUDA_HOST_ARRAYS asks for copies."""

from __future__ import annotations

import ctypes
import warnings

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, ConfigError, CudaError, HostArrayWarning
from support.manifests import kernel

pytest_plugins = ["support.quick", "support.stand_in"]
pytestmark = pytest.mark.usefixtures("path")


@pytest.fixture
def k(cuda, monkeypatch):
    """A kernel of one scalar and two arrays, the second of any layout; copies are asked for."""
    monkeypatch.setenv("AOTCUDA_HOST_ARRAYS", "copy")
    return cuda.package(kernel("k", "void(int32, float32[::1], float32[:,:])")).k


@pytest.fixture
def adds_one(cuda, monkeypatch):
    """Launches that add one to every float of the array whose words begin at this byte of the parameters."""
    from aotcuda.runtime import launch

    original = launch.Launcher.submit

    def submit(self, program, selection):
        original(self, program, selection)
        block = cuda.parameters()
        for offset in (8, 64):
            items, _, address = np.frombuffer(block[offset + 16 : offset + 40], "<i8").tolist()
            floats = (ctypes.c_float * items).from_address(address)
            for index in range(items):
                floats[index] += 1

    monkeypatch.setattr(launch.Launcher, "submit", submit)


def launch_with(k, *arrays):
    with pytest.warns(HostArrayWarning, match=r"k got an array in the host's memory \(arguments 2, 3\)"):
        k[1, 32](7, *arrays)


def test_without_the_variable_they_are_an_error(cuda):
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    with pytest.raises(ArgumentError, match="set AOTCUDA_HOST_ARRAYS=copy"):
        k[1, 1](np.zeros(4, "f4"))
    assert cuda.calls("cuMemAlloc") == []


@pytest.mark.usefixtures("adds_one")
@pytest.mark.parametrize(
    "sheet",
    [
        np.arange(6, dtype="f4").reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype="f4").reshape(2, 3)),
        np.arange(24, dtype="f4").reshape(4, 6)[::2, ::2],
    ],
    ids=["C", "F", "strided"],
)
def test_they_are_copied_there_and_back(cuda, k, sheet):
    line = np.arange(5, dtype="f4")
    before = line.copy(), sheet.copy()
    launch_with(k, line, sheet)
    np.testing.assert_array_equal(line, before[0] + 1)
    np.testing.assert_array_equal(sheet, before[1] + 1)
    assert len(cuda.calls("cuMemAlloc")) == len(cuda.calls("cuMemFree")) == 2


@pytest.mark.usefixtures("adds_one")
def test_an_array_given_twice_is_one_on_the_gpu(cuda, k, monkeypatch):
    k = cuda.package(kernel("twice", "void(int32, float32[:,:], float32[:,:])"), name="mypkg.more").twice
    sheet = np.zeros((2, 2), "f4")
    with pytest.warns(HostArrayWarning):
        k[1, 1](7, sheet, sheet)
    assert len(cuda.calls("cuMemAlloc")) == 1


def test_the_host_waits_for_the_kernel_before_it_copies_back(cuda, k):
    launch_with(k, np.zeros(4, "f4"), np.zeros((2, 2), "f4"))
    names = ("cuMemAlloc", "cuLaunchKernel", "cuStreamSynchronize", "cuMemFree")
    assert [call["call"] for call in cuda.calls(*names)] == [
        "cuMemAlloc", "cuMemAlloc", "cuLaunchKernel", "cuStreamSynchronize", "cuMemFree", "cuMemFree",
    ]  # fmt: skip


def test_the_warning_points_at_the_callers_line(k):
    with pytest.warns(HostArrayWarning) as caught:
        k[1, 1](7, np.zeros(4, "f4"), np.zeros((2, 2), "f4"))
    assert caught[0].filename == __file__


def test_a_read_only_array_needs_a_parameter_that_is_read_only(cuda, k):
    line = np.zeros(4, "f4")
    line.flags.writeable = False
    with pytest.raises(ArgumentError, match="is read-only"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        k[1, 1](7, line, np.zeros((2, 2), "f4"))
    assert len(cuda.calls("cuMemAlloc")) == len(cuda.calls("cuMemFree")) == 2


def test_what_does_not_fit_is_refused_as_on_the_gpu(cuda, k):
    with pytest.raises(ArgumentError, match=r"is float64\[::1\] where float32\[::1\] is packaged"):
        k[1, 1](7, np.zeros(4, "f8"), np.zeros((2, 2), "f4"))
    assert cuda.launches() == []


def test_without_memory_for_a_copy_nothing_is_launched(cuda, k):
    cuda.set(fail="cuMemAlloc_v2=2@2")
    with pytest.raises(CudaError, match=r"could not be copied for mypkg\.kernels\.k: CUDA_ERROR_OUT_OF_MEMORY"):
        k[1, 1](7, np.zeros(4, "f4"), np.zeros((2, 2), "f4"))
    assert cuda.launches() == []
    assert len(cuda.calls("cuMemFree")) == 1


def test_an_unknown_value_is_refused(cuda, monkeypatch):
    monkeypatch.setenv("AOTCUDA_HOST_ARRAYS", "yes")
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    with pytest.raises(ConfigError, match="AOTCUDA_HOST_ARRAYS is 'yes'; write 'error' or 'copy'"):
        k[1, 1](np.zeros(4, "f4"))
