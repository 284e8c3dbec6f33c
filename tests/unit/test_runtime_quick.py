"""The fast paths: what they take, what they decline, and that neither shows but by the clock."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import types
import weakref
from functools import partial

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, CudaError, LaunchError
from aotcuda.runtime import driver, specialize
from aotcuda.runtime.arguments import overloads
from aotcuda.runtime.general_path import GeneralPath
from support import libraries
from support.manifests import kernel

pytestmark = pytest.mark.usefixtures("path")

SAXPY = "void(float32, float32[::1], float32[::1])"
F4 = np.zeros(4, "<f4")
ALL_TYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]


@pytest.fixture(name="libraries")
def _libraries(monkeypatch):
    """Return the packages `cupy` and `torch`; tests set their current streams in `libraries.CURRENT`."""
    monkeypatch.setattr(libraries, "CURRENT", {"cupy": 0, "torch": 0})
    monkeypatch.setattr(libraries, "EXCHANGED", [0])
    with contextlib.contextmanager(libraries.installed)():
        yield libraries


def test_the_second_launch_is_quick_and_sends_what_the_first_one_sent(cuda, general):
    k = cuda.package(kernel("k", SAXPY)).k
    x, y = cuda.array(F4), cuda.array(F4)
    for _ in range(3):
        k[2, 64](1.5, x, y)
    first, *others = cuda.launches()
    assert others == [first, first]
    assert len(general) == 1


def test_a_launcher_that_was_kept_is_quick_too(cuda, general):
    run = cuda.package(kernel("k", "void(int32)")).k[1, 1]
    for value in range(5):
        run(value)
    assert [launch["parameters"] for launch in cuda.launches()] == [f"{value:02x}000000" for value in range(5)]
    assert len(general) == 1


@pytest.mark.parametrize("value", [2**31, "text", 1.0, None, [1]])
def test_what_does_not_fit_is_refused_after_a_quick_launch_as_before(cuda, value):
    k = cuda.package(kernel("k", "void(int32, float32[::1])")).k
    array = cuda.array(F4)
    with pytest.raises(ArgumentError) as first:
        k[1, 1](value, array)
    for _ in range(3):
        k[1, 1](7, array)
    with pytest.raises(ArgumentError) as later:
        k[1, 1](value, array)
    assert str(later.value) == str(first.value)
    assert len(cuda.launches()) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros(4, "<f8"),
        np.zeros(4, "<i4"),
        np.zeros((2, 2), "<f4"),
        np.zeros(8, "<f4")[::2],
        np.zeros(4, ">f4"),
    ],
    ids=lambda array: f"{array.dtype.str}-{array.shape}-{array.strides}",
)
@pytest.mark.parametrize("library", ["cupy", "interface"])
def test_dtype_dimensions_and_layout_are_checked_at_every_launch(cuda, libraries, library, wrong):
    made = partial(libraries.of, "cupy") if library == "cupy" else lambda array: array
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for _ in range(3):
        k[1, 1](made(cuda.array(F4)))
    with pytest.raises(ArgumentError):
        k[1, 1](made(cuda.array(wrong)))
    assert len(cuda.launches()) == 3


@pytest.mark.parametrize("args", [(), (1, 2, 3)])
def test_the_number_of_arguments_is_checked_at_every_launch(cuda, args):
    k = cuda.package(kernel("k", "void(int32, int32)")).k
    for _ in range(3):
        k[1, 1](1, 2)
    with pytest.raises(ArgumentError, match="takes 2 arguments"):
        k[1, 1](*args)


def test_keywords_are_no_arguments(cuda):
    k = cuda.package(kernel("k", "void(int32)")).k
    for _ in range(2):
        with pytest.raises(TypeError):
            k[1, 1](a=1)
        k[1, 1](1)


def test_a_read_only_array_is_refused_after_writable_ones(cuda):
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    array, locked = cuda.array(F4), cuda.array(F4)
    locked.interface["data"] = (locked.address, True)
    k[1, 1](array)
    k[1, 1](array)
    with pytest.raises(ArgumentError, match="read-only"):
        k[1, 1](locked)


@pytest.mark.parametrize("library", ["cupy", "interface"])
def test_overloads_are_told_apart_however_they_follow_each_other(cuda, libraries, general, library):
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


def test_a_contiguous_overload_is_preferred_at_every_launch(cuda):
    module = cuda.package(kernel("k", "void(float32[::1])", "void(float32[:])"))
    line, strided = cuda.array(F4), cuda.array(np.zeros(8, "<f4")[::2])
    for array in (strided, line, strided, line):
        module.k[1, 1](array)
    assert [launch["kernel"] for launch in cuda.launches()] == ["k_1", "k_0", "k_1", "k_0"]


class TestCupy:
    """CuPy's arrays, read without their interface."""

    @pytest.mark.parametrize("like", [F4, np.zeros((), "<f4"), np.zeros((3, 4), "<f4"), np.zeros((2, 3, 4), "<f4")])
    def test_contiguous_arrays(self, cuda, libraries, general, like):
        axes = ",".join([*[":"] * (like.ndim - 1), "::1"][: like.ndim])
        k = cuda.package(kernel("k", f"void(float32[{axes}])")).k
        array = cuda.array(like)
        for _ in range(2):
            k[1, 1](libraries.of("cupy", array))
        expected = np.array([0, 0, like.size, 4, array.address, *like.shape, *like.strides], "<i8").tobytes().hex()
        assert [launch["parameters"] for launch in cuda.launches()] == [expected, expected]
        assert len(general) == 1

    def test_strided_arrays(self, cuda, libraries, general):
        k = cuda.package(kernel("k", "void(float32[:,:])")).k
        array = cuda.array(np.zeros((4, 6), "<f4")[::2, ::3])
        for _ in range(2):
            k[1, 1](libraries.of("cupy", array))
        assert cuda.launches()[0] == cuda.launches()[1]
        assert np.frombuffer(cuda.parameters(), "<i8")[5:].tolist() == [2, 2, 48, 12]
        assert len(general) == 1

    @pytest.mark.parametrize(("launched_on", "current"), [(0, 0), (0, 1), (1, 0), (77, 77), (2, 2)])
    def test_nothing_is_ordered_where_the_launch_is_on_cupys_current_stream(
        self, cuda, libraries, general, launched_on, current
    ):
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        libraries.CURRENT["cupy"] = current
        for _ in range(3):
            k[1, 1, launched_on](libraries.of("cupy", cuda.array(F4)))
        assert cuda.calls("cuEventRecord") == []
        assert len(general) == 1

    def test_a_given_stream_and_cupys_current_one_wait_for_each_other_whenever_they_differ(self, cuda, libraries):
        k = cuda.package(kernel("k", "void(float32[::1], float32[::1])")).k
        x, y = libraries.of("cupy", cuda.array(F4)), libraries.of("cupy", cuda.array(F4))
        for current in (0, 77, 0, 78):
            libraries.CURRENT["cupy"] = current
            k[1, 1, 0](x, y)
        assert [call["stream"] for call in cuda.calls("cuEventRecord")] == [77, 0, 78, 0]
        assert [call["stream"] for call in cuda.calls("cuStreamWaitEvent")] == [0, 77, 0, 78]
        assert len(cuda.launches()) == 4

    def test_cupy_may_be_told_to_leave_streams_to_its_user(self, cuda, libraries, monkeypatch):
        monkeypatch.setattr(sys.modules["cupy"]._util, "CUDA_ARRAY_INTERFACE_EXPORT_VERSION", 2)
        libraries.CURRENT["cupy"] = 77
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        for _ in range(3):
            k[1, 1, 0](libraries.of("cupy", cuda.array(F4)))
            k[1, 1](libraries.of("cupy", cuda.array(F4)))
        assert cuda.calls("cuEventRecord") == []
        assert [launch["stream"] for launch in cuda.launches()] == [0, 77] * 3


class TestStreamObjects:
    """Streams of libraries in a configuration."""

    def test_they_are_quick_too(self, cuda, general):
        k = cuda.package(kernel("k", "void(int32)")).k
        for value in range(3):
            k[1, 1, types.SimpleNamespace(ptr=77)](value)
        assert [launch["stream"] for launch in cuda.launches()] == [77, 77, 77]
        assert len(general) == 1

    def test_a_launcher_keeps_its_stream_alive_and_the_kernel_does_not(self, cuda):
        class Stream:
            ptr = 77

        k = cuda.package(kernel("k", "void(int32)")).k
        stream = Stream()
        alive = weakref.ref(stream)
        run = k[1, 1, stream]
        del stream
        run(1)
        assert alive() is not None
        assert run.grid == (1, 1, 1)
        assert "stream 0x4d" in repr(run)
        del run
        assert alive() is None


class TestErrors:
    """Driver errors of a launch on the fast path."""

    def test_it_is_raised_as_on_any_other(self, cuda):
        k = cuda.package(kernel("k", "void(int32)")).k
        k[4, 32](1)
        k[4, 32](2)
        cuda.set(fail="cuLaunchKernel=701")
        with pytest.raises(CudaError, match=r"k could not be launched on GPU 0 .* with grid \(4, 1, 1\)") as caught:
            k[4, 32](3)
        assert caught.value.name == "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"

    def test_a_failed_launch_is_not_tried_again(self, cuda):
        k = cuda.package(kernel("k", "void(int32)")).k
        cuda.set(fail="cuLaunchKernel=2@3")
        k[1, 1](1)
        k[1, 1](2)
        with pytest.raises(CudaError, match="OUT_OF_MEMORY"):
            k[1, 1](3)
        k[1, 1](4)
        assert [launch["parameters"][:2] for launch in cuda.launches()] == ["01", "02", "04"]

    def test_what_the_kernel_needs_too_much_of_is_told_where_no_other_path_has_launched_it(self, cuda, general):
        k = cuda.package(kernel("k", "void(int32)", "void(int64)")).k
        for _ in range(3):
            k[1, 1](1)
        cuda.set(kernel="local=600000", fail="cuLaunchKernel=1")
        before = len(general)
        with pytest.raises(LaunchError, match="k cannot be launched: it needs 600000 bytes of local memory"):
            k[1, 1](1 << 40)
        assert len(general) == before
        cuda.set(fail="")
        k[1, 1](1 << 40)
        assert [launch["parameters"][:2] for launch in cuda.launches()] == ["01", "01", "01", "00"]

    def test_a_thread_without_a_context_gets_one_and_its_launch(self, cuda):
        run = cuda.package(kernel("k", "void(int32)")).k[1, 1]
        run(1)
        run(2)
        thread = threading.Thread(target=run, args=(3,))
        thread.start()
        thread.join()
        assert [launch["parameters"][:2] for launch in cuda.launches()] == ["01", "02", "03"]

    def test_what_an_argument_raises_when_it_is_read_is_the_cause_of_an_argument_error(self, cuda):
        class Broken:
            fine = None

            @property
            def __cuda_array_interface__(self):
                if self.fine is None:
                    message = "out of order"
                    raise OSError(message)
                return self.fine.interface

        k = cuda.package(kernel("k", "void(float32[::1])")).k
        argument = Broken()
        argument.fine = cuda.array(F4)
        k[1, 1](argument)
        k[1, 1](argument)
        argument.fine = None
        with pytest.raises(ArgumentError, match="k: argument 1, a, cannot be read: OSError: out of order") as caught:
            k[1, 1](argument)
        assert isinstance(caught.value.__cause__, OSError)


def test_unloading_ends_what_was_quick_and_the_next_launch_loads_again(cuda):
    module = cuda.package(kernel("k", "void(int32)"))
    run = module.k[1, 1]
    run(1)
    run(2)
    module.__aotcuda__.unload()
    run(3)
    run(4)
    assert [launch["parameters"][:2] for launch in cuda.launches()] == ["01", "02", "03", "04"]
    assert len(cuda.calls("cuLibraryLoadData")) == 2


def test_a_launcher_that_outlives_many_unloads_does_not_gather_what_was_learnt_of_them(cuda, path):
    module = cuda.package(kernel("k", "void(int32)"))
    run, most = module.k[1, 1], {"extension": 4 * 256, "general": 0}[path]
    gc.collect()
    before = marks()
    for number in range(most + 50):
        run(number)
        run(number)
        module.__aotcuda__.unload()
    assert [launch["parameters"] for launch in cuda.launches()][-1] == number.to_bytes(4, "little").hex()
    gc.collect()
    assert marks() - before < most + 10


def marks() -> int:
    """Return how many images there is something left of."""
    return sum(type(each) is driver.Mark for each in gc.get_objects())


def test_types_that_were_learnt_before_an_unload_take_no_room(cuda, general):
    """The extension keeps as many as 32 at a time; those of images that are gone come back one by one."""
    module = cuda.package(kernel("k", "void(float32[::1])"))
    run = module.k[1, 1]
    plain = cuda.array(F4)
    before = [type("Before", (type(plain),), {})(plain.address, F4) for _ in range(32)]
    after = [type("After", (type(plain),), {})(plain.address, F4) for _ in range(32)]
    for array in before:
        run(array)
    module.__aotcuda__.unload()
    for array in [before[0], *after[:31], *before, *after]:
        run(array)
    assert len({launch["parameters"] for launch in cuda.launches()}) == 1
    general.clear()
    for array in [before[0], *after[:31]]:
        run(array)
    assert general == []


def test_what_was_learnt_of_types_goes_when_they_are_many(cuda, monkeypatch):
    monkeypatch.setattr(overloads, "_MOST_KEPT", 16)
    monkeypatch.setattr(specialize, "_MOST_TAUGHT", 16)
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


def test_cooperative_kernels_are_launched_as_such_every_time(cuda):
    k = cuda.package(kernel("k", "void(int32)", cooperative=True)).k
    for value in range(3):
        k[1, 1](value)
    assert [launch["cooperative"] for launch in cuda.launches()] == [True] * 3


def test_what_one_launcher_learnt_the_others_know(cuda, general):
    k = cuda.package(kernel("k", SAXPY)).k
    x, y = cuda.array(F4), cuda.array(F4)
    for grid in (1, 2, 3, (4, 5), 1):
        k[grid, 64](1.5, x, y)
    assert [launch["grid"][0] for launch in cuda.launches()] == [1, 2, 3, 4, 1]
    assert len(general) == 1


@pytest.mark.parametrize(
    "configuration", [((1, 65536), 32), (1, 1025), (1, (1, 1, 65)), (1, (32, 33)), (1, 32, 0, 300_000), (2**31, 1)]
)
def test_a_configuration_is_checked_after_another_one_was_quick(cuda, configuration):
    k = cuda.package(kernel("k", "void(int32)")).k
    k[1, 32](1)
    k[1, 32](2)
    with pytest.raises(LaunchError):
        k[configuration](3)
    assert len(cuda.launches()) == 2


def test_more_shared_memory_is_asked_for_after_launches_without(cuda, general):
    k = cuda.package(kernel("k", "void(int32)")).k
    for shared in (0, 0, 100_000, 100_000, 0, 200_000):
        k[1, 32, 0, shared](1)
    assert [launch["shared"] for launch in cuda.launches()] == [0, 0, 100_000, 100_000, 0, 200_000]
    assert len(cuda.calls("cuKernelSetAttribute")) == 1
    assert len(general) <= 2


def test_forall_is_quick_and_covers_other_numbers_of_elements(cuda, general):
    k = cuda.package(kernel("k", "void(int32)")).k
    for n in (1000, 1000, 5000, 1000, 0):
        k.forall(n)(1)
    assert [launch["grid"][0] for launch in cuda.launches()] == [2, 2, 7, 2]
    assert len(general) == 1
    assert len(cuda.calls("cuOccupancyMaxPotentialBlockSize")) == 1


class TestSeveralGpus:
    """Where every launch has to ask which context is current."""

    def test_each_launch_goes_to_the_current_gpu(self, cuda):
        cuda.set(devices="9.0,8.0")
        k = cuda.package(kernel("k", "void(int32)")).k
        for device in (0, 1, 0, 0, 1, 1):
            driver.get().make_current(device)
            k[1, 1](device)
        assert [launch["device"] for launch in cuda.launches()] == [0, 1, 0, 0, 1, 1]

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

    def test_a_handle_that_became_another_gpus_stream_is_refused_though_it_was_learnt(self, cuda, general):
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
    def test_default_streams_are_of_whatever_context_is_current(self, cuda, general, stream):
        cuda.set(devices="9.0,9.0")
        k = cuda.package(kernel("k", "void(int32)")).k
        run = k[1, 1, stream]
        for device in (0, 1, 0, 1):
            driver.get().make_current(device)
            run(1)
        assert [call["device"] for call in cuda.launches()] == [0, 1, 0, 1]
        assert len(general) == 2

    def test_the_extension_is_quick_on_streams_of_the_current_gpu(self, cuda, general):
        cuda.set(devices="9.0,9.0", streams="119=1")
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        driver.get().make_current(1)
        launch = k[1, 1, 119]
        for _ in range(4):
            launch(cuda.array(F4, device=1))
        assert len(general) == 1

    def test_an_array_on_another_gpu_is_refused_after_others_were_taken(self, cuda):
        cuda.set(devices="9.0,9.0")
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        driver.get().make_current(0)
        here, there = cuda.array(F4, device=0), cuda.array(F4, device=1)
        for _ in range(3):
            k[1, 1](here)
        with pytest.raises(ArgumentError, match=r"launched on GPU 0 .* lies on GPU 1"):
            k[1, 1](there)
        driver.get().make_current(1)
        k[1, 1](there)
        assert [launch["device"] for launch in cuda.launches()] == [0, 0, 0, 1]

    @pytest.mark.parametrize("library", ["interface", "cupy", "torch", "exchange"])
    def test_launches_are_quick_on_each(self, cuda, general, libraries, library):
        cuda.set(devices="9.0,9.0")
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        for device in (1, 0, 1, 1, 0):
            driver.get().make_current(device)
            k[1, 1](self.array(cuda, library, device))
        assert [launch["device"] for launch in cuda.launches()] == [1, 0, 1, 1, 0]
        assert len(general) == 2

    @pytest.mark.parametrize("library", ["interface", "cupy", "torch", "exchange"])
    def test_where_an_array_lies_is_asked_at_every_launch(self, cuda, libraries, library):
        cuda.set(devices="9.0,9.0")
        k = cuda.package(kernel("k", "void(float32[::1], float32[::1])")).k
        driver.get().make_current(1)
        here, there = self.array(cuda, library, 1), self.array(cuda, library, 0)
        for _ in range(3):
            k[1, 1](here, here)
        for wrong in ((there, here), (here, there)):
            with pytest.raises(ArgumentError, match=r"launched on GPU 1 .* lies on GPU 0"):
                k[1, 1](*wrong)
        assert len(cuda.launches()) == 3

    def test_an_array_of_no_elements_lies_nowhere(self, cuda, general):
        cuda.set(devices="9.0,9.0")
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        empty = cuda.array(np.zeros(0, "<f4"), data=(0, False))
        for _ in range(3):
            k[1, 1](empty)
        assert len(cuda.launches()) == 3
        assert len(general) == 1

    def test_a_thread_with_no_context_gets_one(self, cuda):
        cuda.set(devices="9.0,9.0")
        k = cuda.package(kernel("k", "void(int32)")).k
        for _ in range(3):
            k[1, 1](1)
        thread = threading.Thread(target=lambda: k[1, 1](2))
        thread.start()
        thread.join()
        assert [launch["device"] for launch in cuda.launches()] == [0] * 4

    @staticmethod
    def array(cuda, library, device):
        found = cuda.array(F4, device=device)
        return found if library == "interface" else libraries.of(library, found, gpu=device)


@pytest.mark.parametrize(
    "configuration",
    [(2**32 + 1, 1), ((1, 2**32 + 1), 1), (2**64 + 1, 1), (1, 2**32 + 32), (1, 1, 0, 2**32)],
    ids=str,
)
def test_numbers_that_would_wrap_are_refused_after_others_were_taken(cuda, configuration):
    k = cuda.package(kernel("k", "void(int32)")).k
    for _ in range(3):
        k[1, 1](7)
    with pytest.raises(LaunchError):
        k[configuration](7)
    assert len(cuda.launches()) == 3


@pytest.mark.parametrize("stream", [-1, 2**64, 2**64 + 5])
def test_a_handle_beyond_an_address_is_no_stream(cuda, stream):
    k = cuda.package(kernel("k", "void(int32)")).k
    with pytest.raises(ArgumentError, match="is no handle of a stream"):
        k[1, 1, stream](7)


def test_a_launch_beside_an_unload_leaves_no_launcher_with_the_old_images(cuda, general, monkeypatch):
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


def test_threads_launch_at_once(cuda):
    k = cuda.package(kernel("k", "void(int32)", "void(float64)")).k
    errors = []
    barrier = threading.Barrier(4)

    def work(number):
        try:
            driver.get().make_current(0)
            barrier.wait()
            for round_ in range(50):
                k[1, number + 1](number if round_ % 2 else float(number))
        except Exception as error:  # noqa: BLE001 (reported below)
            errors.append(error)

    driver.get()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    seen = [(launch["kernel"], launch["block"][0], bytes.fromhex(launch["parameters"])) for launch in cuda.launches()]
    for number in range(4):
        assert seen.count(("k_0", number + 1, np.int32(number).tobytes())) == 25
        assert seen.count(("k_1", number + 1, np.float64(number).tobytes())) == 25


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


class TestTorchExchange:
    """PyTorch's tensors through DLPack's exchange in C, which the extension reads."""

    @pytest.fixture(autouse=True)
    def _torch(self, libraries):
        pass

    @staticmethod
    def tensor(array, **odd):
        return libraries.of("exchange", array, **odd)

    @pytest.mark.parametrize("like", [F4, np.zeros((3, 4), "<f4"), np.zeros((0, 4), "<f4"), np.zeros((), "<f4")])
    def test_contiguous_tensors(self, cuda, path, general, like):
        axes = ",".join([*[":"] * (like.ndim - 1), "::1"][: like.ndim])
        k = cuda.package(kernel("k", f"void(float32[{axes}])")).k
        tensor = self.tensor(cuda.array(like))
        for _ in range(3):
            k[1, 1](tensor)
        assert len({launch["parameters"] for launch in cuda.launches()}) == 1
        assert len(general) == 1
        assert (libraries.EXCHANGED[0] > 0) == (path == "extension")

    def test_strided_tensors(self, cuda, general):
        k = cuda.package(kernel("k", "void(float32[:,:])")).k
        tensor = self.tensor(cuda.array(np.zeros((4, 6), "<f4").T))
        for _ in range(3):
            k[1, 1](tensor)
        assert {tuple(np.frombuffer(bytes.fromhex(call["parameters"]), "<i8")[5:]) for call in cuda.launches()} == {
            (6, 4, 4, 24)
        }
        assert len(general) == 1

    def test_what_is_not_contiguous_is_refused_where_it_must_be(self, cuda):
        k = cuda.package(kernel("k", "void(float32[:,::1])")).k
        for _ in range(2):
            k[1, 1](self.tensor(cuda.array(np.zeros((4, 6), "<f4"))))
        with pytest.raises(ArgumentError, match="not contiguous in C"):
            k[1, 1](self.tensor(cuda.array(np.zeros((4, 6), "<f4").T)))

    @pytest.mark.parametrize(("axes", "shape"), [("::1", (4,)), (":,::1", (2, 2)), ("", ())])
    def test_other_numbers_of_dimensions_are_refused(self, cuda, axes, shape):
        k = cuda.package(kernel("k", f"void(float32[{axes}])")).k
        for _ in range(2):
            k[1, 1](self.tensor(cuda.array(np.zeros(shape, "<f4"))))
        for other in {(), (4,), (2, 2), (1, 2, 2)} - {shape}:
            with pytest.raises(ArgumentError):
                k[1, 1](self.tensor(cuda.array(np.zeros(other, "<f4"))))
        assert len(cuda.launches()) == 2

    def test_host_tensors_are_refused(self, cuda):
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        for _ in range(2):
            k[1, 1](self.tensor(cuda.array(F4)))
        with pytest.raises(ArgumentError):
            k[1, 1](self.tensor(cuda.array(F4), is_cuda=False))
        assert len(cuda.launches()) == 2

    def test_a_given_stream_waits_for_torchs_current_one_whenever_it_is_another_one(self, cuda):
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        tensor = self.tensor(cuda.array(F4))
        for stream in (0, 0, 77, 0):
            libraries.CURRENT["torch"] = stream
            k[1, 1, 0](tensor)
        assert [call["stream"] for call in cuda.calls("cuEventRecord")] == [77]
        assert len(cuda.launches()) == 4


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
def test_an_argument_that_launches_without_end_is_one_recursion_error(cuda, count):
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


def test_an_argument_that_launches_is_launched_after_what_it_launched(cuda, general):
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
