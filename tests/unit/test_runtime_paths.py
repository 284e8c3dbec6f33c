"""Compare the fast path with the general path: both launch the same, and refuse the same at any launch."""

from __future__ import annotations

import sys
import tracemalloc

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, LaunchError
from aotcuda.runtime import driver
from support import libraries
from support.libraries import Array, Raises, State
from support.manifests import kernel
from support.stand_in import DeviceArray

pytestmark = pytest.mark.usefixtures("path")

SAXPY = "void(float32, float32[::1], float32[::1])"
F4 = np.zeros(4, "<f4")


def array(library, state):
    return libraries.make(Array(library, state))


def test_third_launch_takes_fast_path_with_equal_bytes(cuda, general):
    k = cuda.package(kernel("k", SAXPY)).k
    x, y = cuda.array(F4), cuda.array(F4)
    for _ in range(4):
        k[2, 64](1.5, x, y)
    first, *others = cuda.launches()
    assert others == [first, first, first]
    assert len(general) == 2


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
    "larger than memory": (LINE, lambda cuda, _: (cuda.array(F4, shape=(2**62,)),)),
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
    for grid in (1, 2):
        with pytest.raises(ArgumentError) as later:
            k[grid, 1](*map(made, args))
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
def test_arrays_of_any_shape_take_fast_path(cuda, current, general, library, like):
    axes = [*[":"] * (like.ndim - 1), "::1" if like.flags.c_contiguous else ":"][: like.ndim]
    k = cuda.package(kernel("k", f"void(float32[{','.join(axes)}])")).k
    array = cuda.array(like)
    for _ in range(3):
        k[1, 1](libraries.of(library, array))
    expected = np.array([0, 0, like.size, 4, array.address, *like.shape, *like.strides], "<i8").tobytes().hex()
    assert [launch["parameters"] for launch in cuda.launches()] == [expected] * 3
    assert len(general) == 2
    assert (libraries.EXCHANGED[0] > 0) == (library == "exchange")


def test_value_outside_nearest_overload_takes_next_one(cuda):
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


class TestSeveralGpus:
    """Each launch finds the current context."""

    def test_stream_of_another_gpu_is_refused_with_both_named(self, cuda):
        cuda.set(devices="9.0,9.0", streams="119=1,120=0")
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        array, there = cuda.array(F4, device=0), cuda.array(F4, device=1)
        driver.get().make_current(0)
        for _ in range(3):
            with pytest.raises(LaunchError, match=r"launched on GPU 0 .* stream 0x77 belongs to a context on GPU 1"):
                k[1, 1, 119](array)
            k[1, 1](array)
            k[1, 1, 120](array)
        driver.get().make_current(1)
        for _ in range(3):
            k[1, 1, 119](there)
        assert [(call["device"], call["stream"]) for call in cuda.launches()] == [(0, 0), (0, 120)] * 3 + [(1, 119)] * 3

    def test_handle_that_became_another_gpus_stream_is_refused(self, cuda):
        cuda.set(devices="9.0,9.0", streams="119=0")
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        array = cuda.array(F4, device=0)
        driver.get().make_current(0)
        run = k[1, 1, 119]
        for _ in range(3):
            run(array)
        cuda.set(streams="119=1")
        for launch in (run, k[1, 1, 119], k[2, 1, 119]):
            with pytest.raises(LaunchError, match=r"launched on GPU 0 .* stream 0x77 belongs to a context on GPU 1"):
                launch(array)
        assert len(cuda.launches()) == 3

    @pytest.mark.parametrize("stream", [0, 1, 2])
    def test_default_streams_belong_to_current_context(self, cuda, stream):
        cuda.set(devices="9.0,9.0")
        run = cuda.package(kernel("k", "void(int32)")).k[1, 1, stream]
        for device in (0, 1, 0, 1):
            driver.get().make_current(device)
            run(1)
        assert [call["device"] for call in cuda.launches()] == [0, 1, 0, 1]

    @pytest.mark.parametrize("library", ["interface", "cupy", "torch", "exchange"])
    def test_arrays_are_launched_on_their_own_gpu_alone(self, cuda, general, current, library):
        cuda.set(devices="9.0,8.0")
        k = cuda.package(kernel("k", "void(float32[::1], float32[::1])")).k
        made = [cuda.array(F4, device=device) for device in (0, 1)]
        if library != "interface":
            made = [libraries.of(library, each, gpu=device) for device, each in enumerate(made)]
        devices = [1, 0, 1, 1, 0, 1, 0]
        for device in devices:
            driver.get().make_current(device)
            k[1, 1](made[device], made[device])
        assert [launch["device"] for launch in cuda.launches()] == devices
        assert len(general) == 3  # two on the first GPU, then one on the other
        for wrong in (made, made[::-1]):
            with pytest.raises(ArgumentError, match=r"launched on GPU 0 .* is on GPU 1"):
                k[1, 1](*wrong)
        assert len(cuda.launches()) == len(devices)


def test_launches_leak_no_memory(cuda, monkeypatch):
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


@pytest.mark.parametrize("depth", [1, 40])
def test_array_may_launch_kernels_while_it_is_read(cuda, depth):
    """Each nested launch needs its own parameter block. Beyond some depth the fast path declines."""
    k = cuda.package(kernel("k", "void(int32, float32[::1])")).k
    plain, remaining = cuda.array(F4), []

    class Launching:
        @property
        def __cuda_array_interface__(self):
            if remaining:
                run(remaining.pop(), self)
            return plain.__cuda_array_interface__

    run = k[1, 1]
    for number in range(3):
        run(number, Launching())
    remaining += range(1, depth + 1)
    run(-1, Launching())
    values = [int.from_bytes(bytes.fromhex(call["parameters"])[:4], "little") for call in cuda.launches()]
    assert sorted(values[3:]) == [*range(1, depth + 1), 2**32 - 1]


@pytest.mark.parametrize("library", ["torch", "exchange"])
@pytest.mark.parametrize("shape", [(4,), (1,), (2, 2)])
def test_lazy_conjugates_are_refused_after_plain_tensors(cuda, current, library, shape):
    axes = ",".join([*[":"] * (len(shape) - 1), "::1"])
    k = cuda.package(kernel("k", f"void(complex64[{axes}])")).k
    for _ in range(3):
        k[1, 1](array(library, State("<c8", shape)))
    with pytest.raises(ArgumentError, match="call resolve_conj"):
        k[1, 1](array(library, State("<c8", shape, changes=(("is_conj", True),))))
    assert len(cuda.launches()) == 3


@pytest.mark.parametrize("library", ["cupy", "torch", "numba", "interface", "dlpack"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_interrupts_and_memory_errors_pass_through_launch(cuda, current, library, error):
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    name = {"torch": "data_ptr", "cupy": "ptr", "dlpack": "device", "interface": "interface"}.get(library, "shape")
    for launched in (0, 3):
        for _ in range(launched):
            k[1, 1](array(library, State()))
        with pytest.raises(error):
            k[1, 1](array(library, State(changes=((name, Raises(error)),))))


def elements():
    """Return a kernel that takes only the address of an array."""
    record = kernel("k", "void(int64)")
    record["overloads"][0]["parameters"][0] |= {"type": "*fp32", "kind": "elements", "dtype": "<f4"}
    return record


NO_MEMORY = [
    *((library, State(address=0)) for library in libraries.LIBRARIES),
    ("cupy", State("<f4", (2, 3), (40, 8), address=0)),
    ("exchange", State("<f4", (), address=0)),
    *((library, State(address=12, changes=(("storage_offset", 3),))) for library in ("torch", "exchange")),
]


@pytest.mark.usefixtures("current")
@pytest.mark.parametrize(("library", "state"), NO_MEMORY, ids=lambda each: each if isinstance(each, str) else "")
def test_arrays_with_elements_and_no_memory_are_refused(cuda, library, state):
    axes = ",".join(":" for _ in state.shape)
    k = cuda.package(kernel("k", f"void(float32[{axes}])") if axes else elements()).k
    for _ in range(3):
        k[1, 1](array(library, state._replace(address=0x1000)))
    for _ in range(2):
        with pytest.raises(ArgumentError, match=r"has shape .* and no memory: its address is 0; pass an array"):
            k[1, 1](array(library, state))
    if axes:
        k[1, 1](array(library, State("<f4", (0, *state.shape[1:]), address=0)))
    assert len(cuda.launches()) == 3 + bool(axes)
