"""The fast paths: what they take, what they decline, and that neither shows but by the clock."""

from __future__ import annotations

import gc
import sys
import weakref
from functools import partial

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, LaunchError
from aotcuda.runtime import driver, specialize
from aotcuda.runtime.arguments import overloads
from aotcuda.runtime.general_path import GeneralPath
from support import libraries
from support.manifests import kernel
from support.stand_in import DeviceArray

pytestmark = pytest.mark.usefixtures("path")

SAXPY = "void(float32, float32[::1], float32[::1])"
F4 = np.zeros(4, "<f4")
ALL_TYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]


def test_the_second_launch_takes_the_fast_path_and_sends_the_same_bytes(cuda, general):
    k = cuda.package(kernel("k", SAXPY)).k
    x, y = cuda.array(F4), cuda.array(F4)
    for _ in range(3):
        k[2, 64](1.5, x, y)
    first, *others = cuda.launches()
    assert others == [first, first]
    assert len(general) == 1


LINE, PAIR = "void(float32[::1])", "void(int32, float32[::1])"
WRONG = {
    "large number": (PAIR, lambda _, array: (2**31, array)),
    "text": (PAIR, lambda _, array: ("text", array)),
    "float": (PAIR, lambda _, array: (1.0, array)),
    "no number": (PAIR, lambda _, array: (None, array)),
    "too few": (PAIR, lambda _, array: (1,)),
    "too many": (PAIR, lambda _, array: (1, array, array)),
    "read-only": (LINE, lambda cuda, array: (cuda.array(F4, data=(array.address, True)),)),
    "float64": (LINE, lambda cuda, _: (cuda.array(np.zeros(4, "<f8")),)),
    "int32": (LINE, lambda cuda, _: (cuda.array(np.zeros(4, "<i4")),)),
    "other dimensions": (LINE, lambda cuda, _: (cuda.array(np.zeros((2, 2), "<f4")),)),
    "no dimensions": (LINE, lambda cuda, _: (cuda.array(np.zeros((), "<f4")),)),
    "strided": (LINE, lambda cuda, _: (cuda.array(np.zeros(8, "<f4")[::2]),)),
    "tensor of the host": (LINE, lambda _, array: (libraries.of("exchange", array, is_cuda=False),)),
}


@pytest.mark.parametrize("library", ["cupy", "interface", "exchange"])
@pytest.mark.parametrize(("signature", "wrong"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_refused_after_right_ones(cuda, current, library, signature, wrong):
    def made(arg):
        plain = library == "interface" or not isinstance(arg, DeviceArray) or arg.interface["data"][1]
        return arg if plain else libraries.of(library, arg)

    array = cuda.array(F4)
    args = wrong(cuda, array)
    k = cuda.package(kernel("k", signature)).k
    with pytest.raises(ArgumentError) as first:
        k[1, 1](*map(made, args))
    for _ in range(3):
        k[1, 1](*[7] * (signature == PAIR), made(array))
    with pytest.raises(ArgumentError) as later:
        k[1, 1](*map(made, args))
    assert str(later.value) == str(first.value)
    assert len(cuda.launches()) == 3


SHAPES = {
    "line": F4,
    "scalar": np.zeros((), "<f4"),
    "rows": np.zeros((3, 4), "<f4"),
    "three dimensions": np.zeros((2, 3, 4), "<f4"),
    "strided": np.zeros((4, 6), "<f4")[::2, ::3],
    "transposed": np.zeros((4, 6), "<f4").T,
}


@pytest.mark.parametrize("like", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("library", ["cupy", "exchange"])
def test_arrays_of_any_shape_take_the_fast_path(cuda, current, path, general, library, like):
    axes = [*[":"] * (like.ndim - 1), "::1" if like.flags.c_contiguous else ":"][: like.ndim]
    k = cuda.package(kernel("k", f"void(float32[{','.join(axes)}])")).k
    array = cuda.array(like)
    for _ in range(2):
        k[1, 1](libraries.of(library, array))
    expected = np.array([0, 0, like.size, 4, array.address, *like.shape, *like.strides], "<i8").tobytes().hex()
    assert [launch["parameters"] for launch in cuda.launches()] == [expected, expected]
    assert len(general) == 1
    assert (libraries.EXCHANGED[0] > 0) == (library == "exchange" and path == "extension")


@pytest.mark.parametrize("library", ["cupy", "interface"])
def test_each_launch_takes_the_overload_of_its_dtype(cuda, current, general, library):
    made = partial(libraries.of, "cupy") if library == "cupy" else lambda array: array
    module = cuda.package(kernel("k", *[f"void({type_}, {type_}[::1])" for type_ in ALL_TYPES]))
    arrays = [made(cuda.array(np.zeros(4, type_))) for type_ in ALL_TYPES]
    order = [0, 9, 3, 3, 9, 0, 5, 1, 2, 4, 6, 7, 8, 8, 0, 9] * 3
    for number in order:
        module.k[1, 1](1, arrays[number])
    assert [int(launch["kernel"].removeprefix("k_")) for launch in cuda.launches()] == order
    assert len(general) == len(set(order))


def test_a_value_that_the_nearest_overload_cannot_hold_goes_to_the_next_one_and_back(cuda):
    module = cuda.package(kernel("k", "void(int32)", "void(float32)"))
    for value in (1, 2**40, 2, 2**40, 3):
        module.k[1, 1](value)
    assert [launch["kernel"] for launch in cuda.launches()] == ["k_0", "k_1", "k_0", "k_1", "k_0"]


def test_cupys_setting_turns_ordering_of_streams_off(cuda, current, monkeypatch):
    monkeypatch.setattr(sys.modules["cupy"]._util, "CUDA_ARRAY_INTERFACE_EXPORT_VERSION", 2)
    current["cupy"] = 77
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for _ in range(3):
        k[1, 1, 0](libraries.of("cupy", cuda.array(F4)))
        k[1, 1](libraries.of("cupy", cuda.array(F4)))
    assert cuda.calls("cuEventRecord") == []
    assert [launch["stream"] for launch in cuda.launches()] == [0, 77] * 3


def test_classes_of_arrays_are_freed_after_many_launches(cuda, monkeypatch):
    monkeypatch.setattr(overloads, "_MOST_KEPT", 16)
    monkeypatch.setattr(specialize, "_MOST_IN_FAST_PATH", 16)
    k, interface = cuda.package(kernel("k", "void(float32[::1])")).k, cuda.array(F4).__cuda_array_interface__
    there = weakref.WeakSet()
    for _ in range(400):
        made = type("Array", (), {"__cuda_array_interface__": interface})
        there.add(made)
        for _ in range(3):
            k[1, 1](made())
            k.forall(5)(made())
        del made
    gc.collect()
    assert len(there) < 300  # the extension has room for 256


class TestSeveralGpus:
    """Where every launch has to ask which context is current."""

    def test_a_stream_of_another_gpu_is_refused_with_both_named(self, cuda):
        cuda.set(devices="9.0,9.0", streams="119=1,120=0")
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        array, there = cuda.array(F4, device=0), cuda.array(F4, device=1)
        driver.get().make_current(0)
        for _ in range(3):
            with pytest.raises(LaunchError, match=r"launched on GPU 0 .* stream 0x77 is of a context on GPU 1"):
                k[1, 1, 119](array)
            k[1, 1](array)  # from which the quick paths learn these arguments
            k[1, 1, 120](array)
        driver.get().make_current(1)
        for _ in range(3):
            k[1, 1, 119](there)
        assert [(call["device"], call["stream"]) for call in cuda.launches()] == [(0, 0), (0, 120)] * 3 + [(1, 119)] * 3

    def test_a_handle_that_became_another_gpus_stream_is_refused(self, cuda, general):
        """A stream was freed, and its handle given to a new one elsewhere; the driver would launch there."""
        cuda.set(devices="9.0,9.0", streams="119=0")
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        array = cuda.array(F4, device=0)
        driver.get().make_current(0)
        run = k[1, 1, 119]
        for _ in range(3):
            run(array)
        assert len(general) == 1
        cuda.set(streams="119=1")
        for launch_again in (run, k[1, 1, 119], k[2, 1, 119]):
            with pytest.raises(LaunchError, match=r"launched on GPU 0 .* stream 0x77 is of a context on GPU 1"):
                launch_again(array)
        driver.get().make_current(1)
        there = cuda.array(F4, device=1)
        for _ in range(3):
            run(there)
        cuda.set(streams="119=0")
        driver.get().make_current(0)
        general.clear()
        run(array)
        assert general == []
        assert [call["device"] for call in cuda.launches()] == [0] * 3 + [1] * 3 + [0]

    @pytest.mark.parametrize("stream", [0, 1, 2])
    def test_default_streams_belong_to_the_current_context(self, cuda, general, stream):
        cuda.set(devices="9.0,9.0")
        k = cuda.package(kernel("k", "void(int32)")).k
        run = k[1, 1, stream]
        for device in (0, 1, 0, 1):
            driver.get().make_current(device)
            run(1)
        assert [call["device"] for call in cuda.launches()] == [0, 1, 0, 1]
        assert len(general) == 2

    @pytest.mark.parametrize("library", ["interface", "cupy", "torch", "exchange"])
    def test_launches_take_the_fast_path_on_each_gpu(self, cuda, general, current, library):
        cuda.set(devices="9.0,8.0")
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        for device in (1, 0, 1, 1, 0):
            driver.get().make_current(device)
            k[1, 1](self.array(cuda, library, device))
        assert [launch["device"] for launch in cuda.launches()] == [1, 0, 1, 1, 0]
        assert len(general) == 2

    @pytest.mark.parametrize("library", ["interface", "cupy", "torch", "exchange"])
    def test_an_array_on_another_gpu_is_refused_after_others_were_launched(self, cuda, current, library):
        cuda.set(devices="9.0,9.0")
        k = cuda.package(kernel("k", "void(float32[::1], float32[::1])")).k
        driver.get().make_current(1)
        here, there = self.array(cuda, library, 1), self.array(cuda, library, 0)
        for _ in range(3):
            k[1, 1](here, here)
        for wrong in ((there, here), (here, there)):
            with pytest.raises(ArgumentError, match=r"launched on GPU 1 .* is on GPU 0"):
                k[1, 1](*wrong)
        assert len(cuda.launches()) == 3

    @staticmethod
    def array(cuda, library, device):
        found = cuda.array(F4, device=device)
        return found if library == "interface" else libraries.of(library, found, gpu=device)


def test_a_launch_beside_an_unload_keeps_no_old_images(cuda, general, monkeypatch):
    module = cuda.package(kernel("k", "void(int32)"))
    run = module.k[1, 1]
    settle = GeneralPath.settle

    def settle_late(self, *args):
        monkeypatch.setattr(GeneralPath, "settle", settle)
        module.__aotcuda__.unload()
        module.k[1, 2](0)  # loads anew
        return settle(self, *args)

    monkeypatch.setattr(GeneralPath, "settle", settle_late)
    for number in range(3):
        run(number)
    assert len(cuda.launches()) == 4


def test_launches_leave_the_memory_as_it_was(cuda, monkeypatch):
    import tracemalloc

    monkeypatch.delenv("FAKE_CUDA_LOG")
    run = cuda.package(kernel("k", SAXPY)).k[1, 1]
    x, y = cuda.array(F4), cuda.array(F4)
    for _ in range(100):
        run(1.0, x, y)
    tracemalloc.start()
    try:
        for _ in range(20):
            run(1.0, x, y)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(2000):
            run(1.0, x, y)
        assert tracemalloc.get_traced_memory()[0] - before < 1000
    finally:
        tracemalloc.stop()


class Launching:
    """An array that may launch when it is asked what it is."""

    def __init__(self, array):
        self.array = array
        self.asked = 0
        self.launch = None

    @property
    def __cuda_array_interface__(self):
        self.asked += 1
        if self.launch is not None:
            self.launch()
        return self.array.__cuda_array_interface__


@pytest.mark.parametrize("count", [1, 31])
def test_an_argument_that_launches_without_end_raises_recursion_error(cuda, count):
    """Not a stack that overflows, nor each level's question asked twice, which has no end."""
    names = [f"a{at}" for at in range(count)]
    k = cuda.package(kernel("k", f"void({', '.join(['float32[::1]'] * count)})", names=names)).k
    array, others = Launching(cuda.array(F4)), [cuda.array(F4) for _ in range(count - 1)]
    run = k[1, 1]
    for _ in range(3):
        run(*others, array)
    array.asked, array.launch = 0, lambda: run(*others, array)
    with pytest.raises(RecursionError):
        run(*others, array)
    assert array.asked < 1000
    array.launch = None
    run(*others, array)
    assert len(cuda.launches()) == 4


def test_an_argument_may_launch_kernels_while_it_is_read(cuda, general):
    """As deep as programs do it, and deeper."""
    k = cuda.package(kernel("k", "void(int32, float32[::1])")).k
    array = Launching(cuda.array(F4))
    run = k[1, 1]
    for number in range(3):
        run(number, array)
    for depth in (1, 5, 40):
        left = iter(range(depth))
        array.launch = lambda left=left: [run(number, array) for number in [next(left, None)] if number is not None]
        before = len(cuda.launches())
        general.clear()
        run(-1, array)
        assert len(cuda.launches()) == before + depth + 1
        assert (depth > 16) == bool(general) or not general
