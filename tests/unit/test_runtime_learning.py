"""Test what launches refuse, before and after the fast path has learnt from accepted arguments."""

from __future__ import annotations

import types
from contextlib import suppress

import numpy as np
import pytest

from aotcuda.errors import ArgumentError
from aotcuda.runtime.general_path import GeneralPath
from support import libraries
from support.libraries import Array, Raises, State
from support.manifests import kernel

F4, F2 = State("<f4"), State("<f2")
DIRECT = ["cupy", "torch", "exchange", "numba", "interface"]


def array(library, *states):
    return libraries.make(Array(library, states))


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("library", ["cupy", "torch", "exchange"])
def test_a_refused_dtype_is_refused_by_every_launcher_and_every_time(cuda, current, library):
    k = cuda.package(kernel("k", "void(float32, float32[::1])")).k
    current.update(cupy=77, torch=77)
    for grid in (1, 2):
        k[grid, 32](2.0, array(library, F4))
    current.update(cupy=0, torch=0)
    for grid in (3, 3, 3, 4):
        with pytest.raises(ArgumentError, match=r"is float16\[::1\] where float32\[::1\] is packaged"):
            k[grid, 32](2.0, array(library, F2))
    assert [launch["grid"][0] for launch in cuda.launches()] == [1, 2]


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("library", DIRECT)
@pytest.mark.parametrize("other", [F2, State("<f4", (2, 2))])
def test_an_array_that_changes_while_it_is_read_teaches_nothing_wrong(cuda, current, library, other):
    for reading in range(1, 6):
        k = cuda.package(kernel("k", "void(float32[::1])"), name=f"mypkg.reading{reading}").k
        for _ in range(3):
            with suppress(ArgumentError):
                k[1, 1](array(library, *[F4] * reading, *[other] * 20))
        before = len(cuda.launches())
        for _ in range(3):
            with pytest.raises(ArgumentError):
                k[1, 1](array(library, other))
        assert len(cuda.launches()) == before
        k[1, 1](array(library, F4))
        assert np.frombuffer(cuda.parameters(), "<i8").tolist() == [0, 0, 4, 4, 0x1000, 4, 4]


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("library", DIRECT)
def test_an_array_that_no_memory_can_hold_is_refused_after_others_were_launched(cuda, current, library):
    k = cuda.package(kernel("k", "void(float32[:,::1])", "void(float32[:,:])")).k
    for _ in range(3):
        k[1, 1](array(library, State("<f4", (2, 2))))
    for shape in ((2**32, 2**32), (2**61, 2), (0, 2**62)):
        for strides in (None, (0, 0)):
            with pytest.raises(ArgumentError, match=r"argument 1, a, has shape .*, which no memory can hold"):
                k[1, 1](array(library, State("<f4", shape, strides)))
    assert len(cuda.launches()) == 3


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("library", ["torch", "exchange"])
@pytest.mark.parametrize("shape", [(4,), (1,), (2, 2)])
def test_lazy_conjugates_are_refused_after_others_were_launched(cuda, current, library, shape):
    axes = ",".join([*[":"] * (len(shape) - 1), "::1"])
    k = cuda.package(kernel("k", f"void(complex64[{axes}])")).k
    for _ in range(3):
        k[1, 1](array(library, State("<c8", shape)))
    with pytest.raises(ArgumentError, match="call resolve_conj"):
        k[1, 1](array(library, State("<c8", shape, odd=(("is_conj", True),))))
    assert len(cuda.launches()) == 3


@pytest.mark.parametrize("function", ["cuCtxGetCurrent", "cuCtxGetDevice"])
def test_a_failed_question_after_a_launch_raises_nothing(cuda, path, monkeypatch, function):
    """Where it was launched is asked afterwards, to learn for the next one; the driver answers nothing by then."""
    cuda.set(devices="9.0,9.0")
    k = cuda.package(kernel("k", "void(int32)")).k
    submit = GeneralPath.submit

    def refuse_afterwards(self, *args):
        cuda.set(fail="")
        submit(self, *args)
        cuda.set(fail=f"{function}=999")

    monkeypatch.setattr(GeneralPath, "submit", refuse_afterwards)
    run = k[1, 1]
    for value in range(3):
        run(value)
        cuda.set(fail="")
    assert [int.from_bytes(bytes.fromhex(call["parameters"]), "little") for call in cuda.launches()] == [0, 1, 2]


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("library", ["cupy", "torch", "numba", "interface", "dlpack"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError, RecursionError])
def test_interrupts_and_exits_pass_through_a_launch(cuda, current, library, error):
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    name = {"torch": "data_ptr", "cupy": "ptr", "dlpack": "device", "interface": "interface"}.get(library, "shape")
    for turn in range(3):
        states = [F4] * turn + [State("<f4", odd=((name, Raises(error)),))] * 9
        with pytest.raises(error):
            for _ in range(9):
                k[1, 1](made := array(library, *states))
                states = [states[-1]]
                del made


class ndarray(np.ndarray):  # noqa: N801 (CuPy's name)
    """An array like CuPy's in that its class has attributes in C: those of NumPy's."""

    _c_contiguous = property(lambda self: self.flags.c_contiguous)
    _f_contiguous = property(lambda self: self.flags.f_contiguous)
    data = property(lambda self: types.SimpleNamespace(ptr=self.ctypes.data, device_id=0))


ndarray.__module__ = "cupy"


class Lying(ndarray):
    def __getattribute__(self, name):
        return np.dtype("<f8") if name == "dtype" else super().__getattribute__(name)


@pytest.mark.usefixtures("path", "current")
def test_attributes_of_a_class_in_c_are_read_of_each_array(cuda, general):
    k = cuda.package(kernel("k", "void(float32[::1])", "void(int32[::1])")).k
    made = [np.zeros(4, "<f4").view(ndarray), np.zeros(4, "<f4").view(ndarray), np.zeros(5, "<i4").view(ndarray)]
    for array in made * 3:
        k[1, 1](array)
    assert len(general) == 2
    words = [np.frombuffer(bytes.fromhex(launch["parameters"]), "<i8") for launch in cuda.launches()]
    assert [(word[4], word[5]) for word in words] == [(array.ctypes.data, array.size) for array in made * 3]
    for wrong in (np.zeros(4, "<f8"), np.zeros((2, 2), "<f4"), np.zeros(8, "<f4")[::2], np.array(1, "<i4")):
        with pytest.raises(ArgumentError):
            k[1, 1](wrong.view(ndarray))
    for _ in range(2):
        with pytest.raises(ArgumentError):
            k[1, 1](np.zeros(4, "<f4").view(Lying))
    assert len(cuda.launches()) == 9


def elements():
    """Return a kernel that takes of an array its address alone."""
    record = kernel("k", "void(int64)")
    record["overloads"][0]["parameters"][0] |= {"type": "*fp32", "kind": "elements", "dtype": "<f4"}
    return record


NO_MEMORY = [State("<f4", address=0), State("<f4", (2, 3), (40, 8), address=0), State("<f4", (), address=0)]


@pytest.mark.usefixtures("path", "current")
@pytest.mark.parametrize("library", [*libraries.LIBRARIES])
@pytest.mark.parametrize("state", NO_MEMORY, ids=lambda state: f"{state.shape} {state.strides}")
def test_arrays_with_elements_and_no_memory_are_refused(cuda, library, state):
    axes = ",".join(":" for _ in state.shape)
    k = cuda.package(kernel("k", f"void(float32[{axes}])") if axes else elements()).k
    for taken in [state._replace(address=0x1000)] * 3:
        k[1, 1](array(library, taken))
    for wrong in [state, state, state._replace(address=0)]:
        with pytest.raises(ArgumentError, match=r"has shape .* and no memory: its address is 0; pass an array"):
            k[1, 1](array(library, wrong))
    assert len(cuda.launches()) == 3
    if state.shape:
        k[1, 1](array(library, State("<f4", (0, *state.shape[1:]), address=0)))
        assert len(cuda.launches()) == 4


@pytest.mark.usefixtures("path", "current")
@pytest.mark.parametrize("library", ["torch", "exchange"])
def test_tensors_that_begin_within_no_memory_are_refused(cuda, library):
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for _ in range(3):
        k[1, 1](array(library, F4))
    with pytest.raises(ArgumentError, match=r"has shape \(4,\) and no memory: its address is 0"):
        k[1, 1](array(library, State("<f4", address=12, odd=(("storage_offset", 3),))))
    k[1, 1](array(library, State("<f4", address=12, odd=(("storage_offset", 2),))))
    assert len(cuda.launches()) == 4
