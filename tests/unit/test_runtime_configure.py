"""`kernel.configure(...)`: launch attributes, their values for the driver, limits of GPUs, and objects as launchers."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import weakref
from typing import ClassVar

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, LaunchError
from support.grids import PAIR
from support.manifests import kernel

pytestmark = pytest.mark.usefixtures("path")


class Stream:
    """A stream like CuPy's that cannot be hashed: hashing a stream may take longer than a launch."""

    __module__ = "cupy.cuda.stream"
    __hash__ = None

    def __init__(self, ptr):
        self.ptr = ptr


@pytest.fixture
def k(cuda):
    return cuda.package(kernel("k", "void(int32)")).k


@pytest.fixture
def by_grid(cuda):
    return cuda.package(PAIR, name="mypkg.grid", by_grid=True, frontend="triton").k


ATTRIBUTES = [
    ({}, {}),
    ({"cluster": 2}, {"4": [2, 1, 1]}),
    ({"cluster": (2, 2)}, {"4": [2, 2, 1]}),
    ({"cooperative": True}, {"2": [1, 0, 0]}),
    ({"dependent": True}, {"6": [1, 0, 0]}),
    ({"priority": -5}, {"8": [-5, 0, 0]}),
    ({"priority": 0}, {"8": [0, 0, 0]}),
    ({"carveout": 0}, {"14": [0, 0, 0]}),
    ({"carveout": 100}, {"14": [100, 0, 0]}),
    (
        {"cluster": (1, 2, 4), "cooperative": True, "dependent": True, "priority": -1, "carveout": 50},
        {"2": [1, 0, 0], "4": [1, 2, 4], "6": [1, 0, 0], "8": [-1, 0, 0], "14": [50, 0, 0]},
    ),
]


def test_the_driver_gets_each_attribute_at_every_launch(cuda, k):
    launchers = [k.configure((4, 4, 4), 32, stream=77, shared=100, **options) for options, _ in ATTRIBUTES]
    for value in range(3):
        for run in launchers:
            run(value)
    launches = cuda.launches()
    assert [launch["attributes"] for launch in launches] == [expected for _, expected in ATTRIBUTES] * 3
    assert [launch["parameters"][:2] for launch in launches] == [f"0{value}" for value in range(3) for _ in ATTRIBUTES]
    assert {(tuple(call["grid"]), call["block"][0], call["stream"], call["shared"]) for call in launches} == {
        ((4, 4, 4), 32, 77, 100)
    }


def test_configure_accepts_every_kind_of_stream(cuda, k):
    for stream, expected in ((None, 0), (0, 0), (55, 55), (Stream(66), 66)):
        run = k.configure(1, 1, stream=stream, priority=-1)
        for _ in range(3):
            run(7)
        assert [launch["stream"] for launch in cuda.launches()[-3:]] == [expected] * 3


def test_values_that_equal_an_earlier_configuration_are_checked(cuda, k):
    """The cache finds launchers by equality, and 1.0 is equal to 1."""
    run = k[1, 32, 7, 16]
    for wrong in ((1.0, 32, 7, 16), (1, 32.0, 7, 16), (1, 32, 7, 16.0), ((1.0,), 32, 7, 16), (1, 32, "7", 16)):
        with pytest.raises((LaunchError, ArgumentError)):
            k[wrong]
    for same in ((1, 32, 7, 16), (np.int64(1), (32,), 7, np.uint8(16)), ([1], 32, 7, 16)):
        again = k[same]
        assert (again.grid, again.block, again.stream, again.shared) == (run.grid, run.block, run.stream, run.shared)
    assert k[True, 32].grid == (1, 1, 1)


def test_a_handle_of_a_stream_is_read_at_each_launch(cuda, k):
    stream = Stream(66)
    for handle in (66, 67, 66):
        stream.ptr = handle
        k[1, 1, stream](7)
        k[1, 1, stream, 0](7)
    for wrong in ("x", -1, 2**64):
        stream.ptr = wrong
        with pytest.raises(ArgumentError):
            k[1, 1, stream]
    assert [launch["stream"] for launch in cuda.launches()] == [66, 66, 67, 67, 66, 66]


LAUNCHERS = {
    "brackets": lambda k, _, stream: k[1, 32, stream],
    "configure": lambda k, _, stream: k.configure(1, 32, stream=stream, priority=0),
    "forall": lambda k, _, stream: k.forall(8, stream=stream),
    "forall of nothing": lambda k, _, stream: k.forall(0, stream=stream),
    "grid": lambda _, by_grid, stream: by_grid.configure(2, stream=stream),
    "no programs": lambda _, by_grid, stream: by_grid.configure((2, 0), stream=stream),
}
"""All launchers that have a stream."""


@pytest.mark.parametrize("make", LAUNCHERS.values(), ids=LAUNCHERS)
def test_launchers_keep_their_stream_alive(k, by_grid, make):
    stream = Stream(66)
    alive = weakref.ref(stream)
    run = make(k, by_grid, stream)
    del stream
    gc.collect()
    assert alive() is not None
    del run
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("make", LAUNCHERS.values(), ids=LAUNCHERS)
def test_wrong_streams_are_refused_at_once(k, by_grid, make):
    for stream in (0, 55, 2**64 - 1, Stream(66)):
        make(k, by_grid, stream)
    for stream in ("main", 1.0, -1, 2**64, Stream(-1), Stream(2**64), Stream("x")):
        with pytest.raises(ArgumentError, match=r"is no stream|is no handle of a stream|its handle cannot be read"):
            make(k, by_grid, stream)


def test_clusters_beyond_eight_are_allowed_where_the_gpu_has_them(cuda, k):
    for _ in range(2):
        k.configure(16, 32, cluster=16)(7)
    assert {(call["attribute"], call["value"]) for call in cuda.calls("cuKernelSetAttribute")} == {(14, 1)}
    assert len(cuda.launches()) == 2


BEYOND_THE_GPU = [
    ({"cluster": 3}, "grid (4, 4, 4) has 4 blocks in x, which clusters of (3, 1, 1) do not divide"),
    ({"cluster": (4, 4, 2)}, "clusters of 32 blocks, where at most 16 of this block and shared memory fit on GPU 0"),
    ({"priority": 1}, "priority is 1, where -5 (first) to 0 (last) are possible on GPU 0"),
    ({"priority": -6}, "priority is -6, where -5 (first) to 0 (last) are possible on GPU 0"),
]


@pytest.mark.parametrize("launched", [0, 3], ids=["first", "later"])
@pytest.mark.parametrize(("options", "text"), BEYOND_THE_GPU)
def test_attributes_beyond_the_gpu_are_refused_before_the_driver_call(cuda, k, options, text, launched):
    possible = {name: -1 if name == "priority" else 2 for name in options}
    for value in range(launched):
        k.configure((4, 4, 4), 32, **possible)(value)
    for _ in range(2):
        with pytest.raises(LaunchError, match=rf"^mypkg\.kernels\.k cannot be launched: {re.escape(text)}"):
            k.configure((4, 4, 4), 32, **options)(7)
    assert len(cuda.launches()) == launched


def test_a_cooperative_grid_that_does_not_fit_is_refused(cuda, k):
    with pytest.raises(
        LaunchError, match=r"must fit on the GPU at once: 10000 blocks, where 8448 of them fit on GPU 0"
    ):
        k.configure(10_000, 32, cooperative=True)(7)
    k.configure(8448, 32, cooperative=True)(7)
    assert len(cuda.launches()) == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cluster": 2}, r"clusters need compute capability 9\.0 or later, and it is launched on GPU 0"),
        ({"dependent": True}, r"dependent launches need compute capability 9\.0 or later, and it is launched on GPU 0"),
        ({"carveout": 50}, r"a carveout for one launch needs a driver for CUDA 12\.5 or newer"),
    ],
)
def test_older_gpus_and_drivers_lack_attributes(cuda, options, text):
    cuda.set(devices="8.0", version=12040)
    k = cuda.package(kernel("k", "void(int32)"), targets=("sm_80",), toolchain={"cuda": "12.0"}).k
    with pytest.raises(LaunchError, match=text):
        k.configure(4, 32, **options)(7)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cluster": 0}, "cluster is 0, and each of its dimensions must be at least 1"),
        ({"cluster": "two"}, "cluster is 'two' where an int or a tuple of one to three belongs"),
        ({"cooperative": 1}, "cooperative is 1 where True or False belongs"),
        ({"dependent": "yes"}, "dependent is 'yes' where True or False belongs"),
        ({"priority": 1.5}, "priority is 1.5 where an int or None belongs"),
        ({"carveout": 101}, "carveout is 101, and it is a share in percent: 0 to 100"),
        ({"carveout": True}, "carveout is True where an int or None belongs"),
        ({"shared": -1}, "dynamic shared memory is -1 where a number of bytes belongs"),
        ({"clustr": 2}, "configure() has no option 'clustr'; did you mean cluster?"),
        ({"windows": 2}, "configure() has no option 'windows'; there are stream, shared, cluster, cooperative"),
    ],
)
def test_impossible_attributes_are_refused_at_once(k, options, text):
    refused = pytest.raises(LaunchError, match=rf"^mypkg\.kernels\.k cannot be launched: {re.escape(text)}")
    with refused:
        k.configure(1, 32, **options)


def test_a_failed_launch_names_the_attributes(cuda, k):
    cuda.set(fail="cuLaunchKernel=1")
    with pytest.raises(Exception, match=r"stream 0x0, clusters of \(2, 1, 1\) blocks, priority -1, and 0 bytes"):
        k.configure(4, 32, cluster=2, priority=-1)(7)


class Unprintable:
    """Raises when it is printed, as an array does whose GPU has failed."""

    def __repr__(self):
        raise ZeroDivisionError


class OnAGpu:
    """An array on a GPU: printing it would copy it to the host."""

    __cuda_array_interface__: ClassVar = {"shape": (3,), "typestr": "<f4", "data": (4096, False), "version": 3}

    def __repr__(self):
        return "copied"


@pytest.mark.parametrize(
    "value",
    [np.zeros((100, 100)), Unprintable(), OnAGpu(), "x" * 1000, [0.5] * 1000, -(10**5000), [[OnAGpu()] * 9] * 99],
    ids=lambda value: type(value).__name__,
)
def test_errors_show_any_value_in_one_short_line(k, by_grid, value):
    for make in (
        lambda: k[value],
        lambda: k[value, 1],
        lambda: k[1, 1, 0, 0, *[value] * 99],
        lambda: k.configure(1, 1, priority=value)(1),
        lambda: k.forall(value)(1),
        lambda: by_grid[value](1),
    ):
        with pytest.raises((LaunchError, ArgumentError)) as caught:
            make()
        assert "copied" not in str(caught.value)
        assert len(str(caught.value)) < 400
        assert len(str(caught.value).splitlines()) == 1


def test_a_copy_of_a_launcher_is_the_launcher_and_has_no_pickle(k, by_grid):
    shown = ["kernel[grid, block]"] * 2 + ["kernel.forall(n)"] * 2 + ["kernel[grid]"] * 2
    for make, written in zip(LAUNCHERS.values(), shown, strict=True):
        for stream in (None, 77, Stream(77)):
            run = make(k, by_grid, stream)
            assert copy.copy(run) is run
            assert copy.deepcopy({"run": [run]}) == {"run": [run]}
            with pytest.raises(TypeError, match=rf"belongs to its process; .* write {re.escape(written)} where"):
                pickle.dumps(run)


def test_a_kernel_cannot_be_iterated(k, by_grid):
    """Python would index it with 0, 1, 2, ... without an end."""
    for indexed in (k, by_grid):
        with pytest.raises(TypeError, match="not iterable"):
            iter(indexed)
        with pytest.raises(TypeError, match=r"not iterable|not a container"):
            _ = 5 in indexed
