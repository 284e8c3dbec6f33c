"""Arrays in the host's memory: refused, or copied with AOTCUDA_HOST_ARRAYS=copy."""

from __future__ import annotations

import ctypes
import warnings

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, ConfigError, CudaError, HostArrayWarning
from aotcuda.runtime.launch.arguments import host_arrays
from aotcuda.runtime.launch.execute import Launcher
from support.manifests import kernel

pytestmark = pytest.mark.usefixtures("path")


@pytest.fixture
def k(cuda, monkeypatch):
    """Return a kernel of one scalar and two arrays, the second of any layout, with copies turned on."""
    monkeypatch.setenv("AOTCUDA_HOST_ARRAYS", "copy")
    return cuda.package(kernel("k", "void(int32, float32[::1], float32[:,:])")).k


@pytest.fixture
def on_launch(cuda, monkeypatch):
    """Return a function that replaces a kernel: after each launch, a function gets the parameter block."""

    def replace(run):
        original = Launcher.submit

        def submit(self, *args):
            original(self, *args)
            run(cuda.parameters())

        monkeypatch.setattr(Launcher, "submit", submit)

    return replace


@pytest.fixture
def adds_one(on_launch):
    """Replace kernels by a function that adds one to every float of the two arrays."""

    def run(block):
        for offset in (8, 64):
            items, _, address = np.frombuffer(block[offset + 16 : offset + 40], "<i8").tolist()
            floats = (ctypes.c_float * items).from_address(address)
            for index in range(items):
                floats[index] += 1

    on_launch(run)


def launch_with(k, *arrays):
    with pytest.warns(HostArrayWarning, match=r"k got an array in the host's memory \(arguments 2, 3\)"):
        k[1, 32](7, *arrays)


def test_without_the_variable_host_arrays_are_refused(cuda):
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
def test_host_arrays_are_copied_there_and_back(cuda, k, sheet):
    line = np.arange(5, dtype="f4")
    results = line + 1, sheet + 1
    launch_with(k, line, sheet)
    np.testing.assert_array_equal(line, results[0])
    np.testing.assert_array_equal(sheet, results[1])
    assert len(cuda.calls("cuMemAlloc")) == len(cuda.calls("cuMemFree")) == 2


def test_launch_on_another_stream_waits_for_copies(cuda, k):
    """The driver copies pageable memory on the default stream, and may return before the GPU has all of it."""
    with pytest.warns(HostArrayWarning):
        for stream in (77, 77, 0):
            k[1, 1, stream](7, np.zeros(4, "f4"), np.zeros((2, 2), "f4"))
    names = {"cuEventRecord": "record", "cuStreamWaitEvent": "wait", "cuLaunchKernel": "launch"}
    calls = [(names[call["call"]], call["stream"]) for call in cuda.calls(*names)]
    ordered = [("record", 1), ("wait", 77), ("launch", 77), ("record", 77), ("wait", 1)]
    assert calls == [*ordered, *ordered, ("launch", 0)]


def test_masked_arrays_are_refused(cuda, k):
    masked = np.ma.masked_array(np.zeros(4, "f4"), mask=[0, 1, 0, 0])
    for launch in (k[1, 1], k.forall(4), k.forall(0)):
        with pytest.raises(ArgumentError, match="argument 2, b, has a mask, which no kernel sees"):
            launch(7, masked, np.zeros((2, 2), "f4"))
    assert cuda.launches() == []
    assert len(cuda.calls("cuMemFree")) == len(cuda.calls("cuMemAlloc"))


@pytest.mark.usefixtures("adds_one")
def test_an_array_given_twice_is_copied_once(cuda, k, monkeypatch):
    k = cuda.package(kernel("twice", "void(int32, float32[:,:], float32[:,:])"), name="mypkg.more").twice
    sheet = np.zeros((2, 2), "f4")
    with pytest.warns(HostArrayWarning):
        k[1, 1](7, sheet, sheet)
    assert len(cuda.calls("cuMemAlloc")) == 1


def test_a_read_only_array_needs_a_parameter_that_is_read_only(cuda, k):
    line = np.zeros(4, "f4")
    line.flags.writeable = False
    with pytest.raises(ArgumentError, match="is read-only"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        k[1, 1](7, line, np.zeros((2, 2), "f4"))
    assert len(cuda.calls("cuMemAlloc")) == len(cuda.calls("cuMemFree")) == 2


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("function", ["cuMemAlloc_v2", "cuMemcpyHtoD_v2", "cuLaunchKernel", "cuMemcpyDtoH_v2"])
def test_any_failure_frees_the_copies(cuda, k, function, number):
    arrays = np.zeros(4, "f4"), np.zeros((2, 2), "f4")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cuda.set(fail=f"{function}=2@{number}")
        with pytest.raises(CudaError, match="CUDA_ERROR_OUT_OF_MEMORY"):
            for _ in range(2):
                k[1, 1](7, *arrays)
    allocated = len(cuda.calls("cuMemAlloc")) - (function == "cuMemAlloc_v2")  # one of them failed
    assert len(cuda.calls("cuMemFree")) == allocated


def test_warnings_as_errors_lose_no_result(cuda, k, monkeypatch):
    original, back = host_arrays._Copy.copy_back, []
    monkeypatch.setattr(host_arrays._Copy, "copy_back", lambda copy: back.append(original(copy)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(HostArrayWarning):
            k[1, 1](7, np.zeros(4, "f4"), np.zeros((2, 2), "f4"))
    assert len(cuda.launches()) == 1
    assert len(back) == len(cuda.calls("cuMemFree")) == 2


def test_an_unknown_value_is_refused_for_host_arrays(cuda, monkeypatch):
    monkeypatch.setenv("AOTCUDA_HOST_ARRAYS", "yes")
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for launch in [k[1, 1], k.forall(4)] * 3:
        launch(cuda.array(4))
        with pytest.raises(ConfigError, match="AOTCUDA_HOST_ARRAYS is 'yes'; write 'error' or 'copy'"):
            launch(np.zeros(4, "f4"))
    assert len(cuda.launches()) == 6


RECORD = np.dtype([("x", "f4"), ("id", "i8")], align=True)
RECORD_TEXT = "|V16{x:<f4@0,id:<i8@8}"


def of_records(cuda):
    """Return a kernel of a record and an array of such records."""
    record = {"name": "r", "type": "particle", "kind": "record", "dtype": RECORD_TEXT, "offset": 0}
    array = kernel("k", "void(float32[::1])")["overloads"][0]["parameters"][0]
    array |= {"name": "a", "offset": 8, "dtype": RECORD_TEXT}
    return cuda.package(kernel("k", "void()", parameters=[record, array], parameter_bytes=64)).k


RECORDS = {
    "numpy.void": lambda records: records[1],
    "numpy.record": lambda records: records.view(np.recarray)[1],
    "0-dimensional": lambda records: records[1:].reshape(()),
}


@pytest.mark.parametrize("view", RECORDS.values(), ids=RECORDS)
def test_records_are_copied_there_and_back(cuda, monkeypatch, on_launch, view):
    def count(block):
        ctypes.c_int64.from_address(int(np.frombuffer(block[:8], "<u8")[0]) + 8).value += 1

    on_launch(count)
    monkeypatch.setenv("AOTCUDA_HOST_ARRAYS", "copy")
    k = of_records(cuda)
    records = np.zeros(2, RECORD)
    records["x"], records["id"] = (1.5, 2.5), (7, 8)
    for launch in (k[1, 32], k.forall(5)):
        with pytest.warns(HostArrayWarning, match=r"\(argument 1\)"):
            launch(view(records), cuda.array(records, descr=RECORD.descr))
    assert records["id"].tolist() == [7, 10]
    assert records["x"].tolist() == [1.5, 2.5]
    assert len(cuda.calls("cuMemAlloc")) == len(cuda.calls("cuMemFree")) == 2


def test_launches_of_nothing_check_host_arrays(cuda, monkeypatch):
    k = cuda.package(kernel("k", "void(float32[:], float32[:])", apart=[[0, 1]])).k
    right, read_only = np.zeros((2, 32), "f4").T[::2, 0], np.zeros(64, "f4")
    read_only.flags.writeable = False
    with pytest.raises(ArgumentError, match="set AOTCUDA_HOST_ARRAYS=copy"):
        k.forall(0)(right, right[:2])
    monkeypatch.setenv("AOTCUDA_HOST_ARRAYS", "copy")
    k.forall(0)(right, right[:2])  # each is copied to memory of its own
    for wrong, problem in (
        (read_only, "is read-only"),
        (np.zeros(64), "argument 1, a, is float64"),
        (right, "overlap"),
    ):
        with pytest.raises(ArgumentError, match=problem):
            k.forall(0)(wrong, right)
    assert not cuda.launches()
    assert not cuda.calls("cuMemAlloc")


def test_a_record_in_the_hosts_memory_is_named(cuda):
    records = np.zeros(2, RECORD)
    with pytest.raises(
        ArgumentError, match=r"argument 1, r, is a record in the host's memory.*set AOTCUDA_HOST_ARRAYS"
    ):
        of_records(cuda)[1, 1](records[0], cuda.array(records, descr=RECORD.descr))
