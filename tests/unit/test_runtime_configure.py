"""`kernel.configure(...)`: launch attributes, what the driver is told of them, and what GPUs cannot take."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import re
import types
import weakref
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, NamedTuple

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, LaunchError
from support.grids import PAIR
from support.manifests import kernel

pytestmark = pytest.mark.usefixtures("path")


@pytest.fixture
def k(cuda):
    return cuda.package(kernel("k", "void(int32)")).k


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


@pytest.mark.parametrize(("given", "wanted"), ATTRIBUTES)
def test_the_driver_is_told_each_attribute_at_every_launch(cuda, k, given, wanted):
    run = k.configure((4, 4, 4), 32, stream=77, shared=100, **given)
    for value in range(3):
        run(value)
    launches = cuda.launches()
    assert [launch["attributes"] for launch in launches] == [wanted] * 3
    assert [launch["parameters"] for launch in launches] == ["00000000", "01000000", "02000000"]
    assert {(tuple(call["grid"]), call["block"][0], call["stream"], call["shared"]) for call in launches} == {
        ((4, 4, 4), 32, 77, 100)
    }


def test_configurations_of_one_kernel_do_not_change_each_other(cuda, k):
    made = [k[4, 32], k.configure(4, 32, cluster=2), k.configure(4, 32, cluster=4), k.configure(4, 32, priority=-1)]
    for value in range(3):
        for run in made:
            run(value)
    wanted = [{}, {"4": [2, 1, 1]}, {"4": [4, 1, 1]}, {"8": [-1, 0, 0]}]
    assert [launch["attributes"] for launch in cuda.launches()] == wanted * 3


class Held:
    """A stream of CuPy's, as far as it is asked."""

    __module__ = "cupy.cuda.stream"

    def __init__(self, ptr):
        self.ptr = ptr

    __hash__ = None  # asking for it may take longer than a launch


class Alike:
    """Equal to everything that has its hash."""

    def __init__(self, number):
        self.number = number

    def __hash__(self):
        return hash(self.number)

    def __eq__(self, other):
        return True

    def __repr__(self):
        return f"Alike({self.number})"


class AlikeInteger(Alike):
    def __index__(self):
        return 5


class Unhashable:
    def __hash__(self):
        raise ZeroDivisionError

    __eq__ = __hash__


def written_like(number):
    """Return what is equal to a number, or has its hash, or means it."""
    plain = [number, float(number), complex(number), bool(number), Fraction(number), Decimal(number), str(number), None]
    arrays = [np.int64(number), np.float32(number), np.array(number), np.array(float(number)), np.array([number])]
    every = [*plain, *arrays, Alike(number), AlikeInteger(number), Unhashable(), [number], [float(number)]]
    return [*every, *[(one,) for one in every], ((number,),), ((float(number),),), ()]


def configurations_like(grid, block, stream, shared):
    """Configurations of which one part or two are not what programs write."""
    for other in written_like(grid):
        yield from ((other, block), (other, block, stream), (other, block, stream, shared), (other, block, None))
        yield (other, float(block))
    for other in written_like(block):
        yield from ((grid, other), (grid, other, stream, shared))
    for other in written_like(stream):
        yield from ((grid, block, other), (grid, block, other, shared))
    for other in written_like(shared):
        yield from ((grid, block, stream, other), (grid, block, None, other))
    deep = (1,)
    for _ in range(100_000):
        deep = (deep,)
    yield from ((deep, block), deep)


def meaning(kernel_, configuration):
    """Return what a configuration means, or what is said of it."""
    try:
        run = kernel_[configuration]
    except (ArgumentError, LaunchError, RecursionError) as error:  # the latter of a tuple that cannot be shown
        return type(error)
    return run.grid, run.block, run.stream, run.shared


def test_earlier_configurations_do_not_change_a_configuration(cuda, k):
    """A launcher that is kept is found by what is written alike, and not by what is merely equal to that."""
    unmet = itertools.count()
    for parts in ((1, 1, 1, 1), (2, 32, 0, 0)):
        grid, block, _, shared = parts
        plain = [parts, (grid, block), parts[:3], (grid, block, None), (grid, block, None, shared)]
        plain += [((grid,), block), (grid, (block,)), ((grid,), block, *parts[2:])]
        first = cuda.package(kernel("k", "void(int32)"), name=f"unmet{next(unmet)}.kernels").k
        alone = []
        for configuration in configurations_like(*parts):
            first._cache().retire()
            alone.append(meaning(first, configuration))
        for _ in range(2):
            for configuration, expected in zip(configurations_like(*parts), alone, strict=True):
                for one in plain:
                    assert meaning(k, one) == meaning(first, one)
                assert [meaning(k, configuration), meaning(k, configuration)] == [expected] * 2, configuration


def test_a_stream_object_tells_its_handle_each_time(cuda, k):
    stream = Held(66)
    for handle in (66, 66, 67, 66, 68, 68):
        stream.ptr = handle
        k[1, 1, stream](7)
        k[1, 1, stream, 0](7)
    assert [launch["stream"] for launch in cuda.launches()] == [at for at in (66, 66, 67, 66, 68, 68) for _ in range(2)]


class OfTorch:
    """A stream of PyTorch's, likewise."""

    __module__ = "torch.cuda.streams"
    __hash__ = None

    def __init__(self, handle):
        self.cuda_stream = handle


@pytest.mark.parametrize("make", [Held, OfTorch])
def test_a_changed_handle_of_a_stream_is_checked_as_at_first(cuda, k, make):
    """Each is refused, or launched on, as by a kernel that meets it first."""
    stream = make(66)
    name = next(iter(vars(stream)))
    first = cuda.package(kernel("k", "void(int32)"), name="unmet.kernels").k
    for handle in (True, np.int64(66), 66.0, "66", None, -1, 2**64, 66):
        k[1, 1, stream](7)
        setattr(stream, name, handle)
        said = []
        for kernel_ in (k, first):
            try:
                kernel_[1, 1, stream](7)
            except (ArgumentError, LaunchError) as error:
                said.append(str(error).partition(": ")[2])
            else:
                said.append(cuda.launches()[-1]["stream"])
        assert said[0] == said[1], handle
        setattr(stream, name, 66)
    delattr(stream, name)
    with pytest.raises(ArgumentError, match="is no stream"):
        k[1, 1, stream]


def test_launchers_hold_their_own_streams(k):
    """Their memory is used again."""
    streams = [Held(66), Held(67)]
    alive = [weakref.ref(stream) for stream in streams]
    for _ in range(3):
        made = [k[at + 1, 1, stream] for at, stream in enumerate(streams)]
        k[1, 1, streams[0]](7)
        assert [(run.grid[0], run.stream) for run in made] == [(1, 66), (2, 67)]
        kept = made.pop(0)
        del made
        k[2, 1, streams[1]](7)
        assert (kept.grid[0], kept.stream) == (1, 66)
    del streams
    assert [ref() is not None for ref in alive] == [True, False]
    del kept
    gc.collect()
    assert alive[0]() is None


@pytest.mark.parametrize("stream", [None, 0, 55, "object"])
def test_configure_takes_every_kind_of_stream(cuda, k, stream):
    run = k.configure(1, 1, stream=types.SimpleNamespace(ptr=66) if stream == "object" else stream, priority=-1)
    for _ in range(3):
        run(7)
    assert [launch["stream"] for launch in cuda.launches()] == [{None: 0, "object": 66}.get(stream, stream)] * 3


def test_clusters_beyond_eight_are_allowed_where_the_gpu_has_them(cuda, k):
    for _ in range(2):
        k.configure(16, 32, cluster=16)(7)
    assert {(call["attribute"], call["value"]) for call in cuda.calls("cuKernelSetAttribute")} == {(14, 1)}
    assert len(cuda.launches()) == 2


IMPOSSIBLE = [
    ({"cluster": 3}, "grid (4, 4, 4) has 4 blocks in x, which clusters of (3, 1, 1) do not divide"),
    ({"cluster": (4, 4, 2)}, "clusters of 32 blocks, where at most 16 of this block and shared memory fit on GPU 0"),
    ({"priority": 1}, "priority is 1, where -5 (first) to 0 (last) are possible on GPU 0"),
    ({"priority": -6}, "priority is -6, where -5 (first) to 0 (last) are possible on GPU 0"),
]


@pytest.mark.parametrize("learnt", [0, 3], ids=["first", "learnt"])
@pytest.mark.parametrize(("given", "text"), IMPOSSIBLE)
def test_attributes_beyond_the_gpu_are_refused_before_the_driver_call(cuda, k, given, text, learnt):
    possible = {name: -1 if name == "priority" else 2 for name in given}
    for value in range(learnt):
        k[(4, 4, 4), 32](value)
        k.configure((4, 4, 4), 32, **possible)(value)
    for _ in range(2):
        with pytest.raises(LaunchError, match=rf"^mypkg\.kernels\.k cannot be launched: {re.escape(text)}"):
            k.configure((4, 4, 4), 32, **given)(7)
    assert len(cuda.launches()) == 2 * learnt


def test_a_cooperative_grid_that_does_not_fit_is_refused(cuda, k):
    with pytest.raises(
        LaunchError, match=r"must fit on the GPU at once: 10000 blocks, where 8448 of them fit on GPU 0"
    ):
        k.configure(10_000, 32, cooperative=True)(7)
    k.configure(8448, 32, cooperative=True)(7)
    assert len(cuda.launches()) == 1


@pytest.mark.parametrize(
    ("given", "what"), [({"cluster": 2}, "clusters need"), ({"dependent": True}, "dependent launches need")]
)
def test_older_gpus_have_no_clusters_and_no_dependent_launches(cuda, given, what):
    cuda.set(devices="8.0")
    k = cuda.package(kernel("k", "void(int32)"), arch=["sm_80"]).k
    with pytest.raises(LaunchError, match=rf"{what} compute capability 9\.0 or later, and it is launched on GPU 0"):
        k.configure(4, 32, **given)(7)


def test_older_drivers_take_no_carveout_for_one_launch(cuda):
    cuda.set(version=12040)
    k = cuda.package(kernel("k", "void(int32)"), toolchain={"cuda": "12.0"}).k
    with pytest.raises(LaunchError, match=r"a carveout for one launch needs a driver for CUDA 12\.5 or newer"):
        k.configure(4, 32, carveout=50)(7)


@pytest.mark.parametrize(
    ("given", "text"),
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
def test_impossible_attributes_are_refused_at_once(k, given, text):
    with pytest.raises(LaunchError, match=rf"^mypkg\.kernels\.k cannot be launched: {re.escape(text)}"):
        k.configure(1, 32, **given)


GIVEN = {
    "brackets": lambda k, _, stream: k[1, 32, stream],
    "configure": lambda k, _, stream: k.configure(1, 32, stream=stream),
    "forall": lambda k, _, stream: k.forall(8, stream=stream),
    "forall of nothing": lambda k, _, stream: k.forall(0, stream=stream),
    "grid": lambda _, by_grid, stream: by_grid.configure(2, stream=stream),
    "no programs": lambda _, by_grid, stream: by_grid.configure((2, 0), stream=stream),
}
"""Every way to give a stream."""


def test_wrong_streams_are_refused_at_once(cuda, k):
    by_grid = cuda.package(PAIR, name="mypkg.grid", by_grid=True, frontend="triton").k
    for give in GIVEN.values():
        for stream in (0, 55, 2**64 - 1, Held(66)):
            give(k, by_grid, stream)
        for stream in ("main", 1.0, -1, 2**64, Held(-1), Held(2**64), Held("x")):
            with pytest.raises(ArgumentError, match=r"is no stream|is no handle of a stream|its handle cannot be read"):
                give(k, by_grid, stream)


def test_a_failed_launch_names_the_attributes(cuda, k):
    cuda.set(fail="cuLaunchKernel=1")
    with pytest.raises(Exception, match=r"stream 0x0, clusters of \(2, 1, 1\) blocks, priority -1, and 0 bytes"):
        k.configure(4, 32, cluster=2, priority=-1)(7)


class Unshown:
    """Raises when it is asked for its text, as an array does whose GPU has failed."""

    def __repr__(self):
        raise ZeroDivisionError


class OnAGpu:
    """An array that is not to be asked for its text, which would be copied from the GPU for it."""

    __cuda_array_interface__: ClassVar = {"shape": (3,), "typestr": "<f4", "data": (4096, False), "version": 3}

    def __repr__(self):
        return "copied"


class Pair(NamedTuple):
    """A tuple of a class of its own."""

    first: object
    second: object


LONG = {
    "array": np.zeros((100, 100)),
    "raises": Unshown(),
    "array on a GPU": OnAGpu(),
    "text": "x" * 1000,
    "list": [0.5] * 1000,
    "dictionary": {1: np.eye(9)},
    "number": -(10**5000),
    "tuple": (0.5,) * 99,
    "nested": [[OnAGpu()] * 9] * 99,
    "named tuple": Pair(OnAGpu(), 1),
}
OPTIONS = ("stream", "shared", "cluster", "cooperative", "dependent", "priority", "carveout", "unheard_of")
WAYS = [
    lambda k, x: k[x],
    lambda k, x: k[x, 1],
    lambda k, x: k[(1, x), 1],
    lambda k, x: k[1, x],
    lambda k, x: k[1, 1, x],
    lambda k, x: k[1, 1, 0, x],
    lambda k, x: k[1, 1, 0, 0, x],
    lambda k, x: k[1, 1, 0, 0, *[x] * 999],
    lambda k, x: k.forall(x),
    lambda k, x: k.forall(8, x),
    lambda k, x: k.forall(8, 32, x),
    lambda k, x: k.forall(8, 32, 0, x),
    lambda k, x: k.configure(x, 1),
    *(lambda k, x, name=name: k.configure(1, 1, **{name: x}) for name in OPTIONS),
    lambda k, x: k.get_regs_per_thread(x),
]
WAYS_BY_GRID = [
    lambda k, x: k[x],
    lambda k, x: k[x, 1],
    lambda k, x: k.configure(x),
    *(lambda k, x, name=name: k.configure(1, **{name: x}) for name in ("stream", "shared")),
]


@pytest.mark.parametrize("x", LONG.values(), ids=LONG)
def test_errors_show_any_value_in_one_short_line(cuda, k, x):
    by_grid = cuda.package(PAIR, name="mypkg.grid", by_grid=True, frontend="triton").k
    launches = [
        *((way, k, [1]) for way in WAYS),
        *((way, by_grid, [cuda.array(8), 2.5, 7, 128]) for way in WAYS_BY_GRID),
    ]
    for number, (way, kernel_, args) in enumerate(launches):
        with pytest.raises((LaunchError, ArgumentError)) as caught:  # at the latest where it is launched
            way(kernel_, x)(*args)
        assert "copied" not in str(caught.value), number
        assert len(str(caught.value)) < 400, number
        assert len(str(caught.value).splitlines()) == 1, number


def of_a_grid(meta):
    return (meta["n"],)


@pytest.fixture
def launchers(cuda):
    """Each kind of launcher, and how it is written."""
    k = cuda.package(kernel("k", "void(int32)")).k
    grid = cuda.package(PAIR, by_grid=True, frontend="triton", name="mypkg.grid").k
    brackets, grids, forall = "kernel[grid, block]", "kernel[grid]", "kernel.forall(n)"
    return [
        (k[1, 32], brackets),
        (k[1, 32, Held(77)], brackets),
        (k.configure(1, 32, priority=0), brackets),
        (k.configure(1, 32, priority=0, stream=Held(77)), brackets),
        (k.forall(5), forall),
        (k.forall(0, stream=Held(77)), forall),
        (grid[4], grids),
        (grid[(0,)], grids),
        (grid[of_a_grid], grids),
        (grid[lambda meta: 4], grids),
        (grid.configure(4, stream=77), grids),
        (grid.configure(4, stream=Held(77)), grids),
        (grid.configure(of_a_grid, stream=Held(77)), grids),
    ]


def test_a_copy_of_a_launcher_is_the_launcher(launchers):
    """So that what keeps one can be copied: it is a value of its process."""
    for run, _ in launchers:
        assert copy.copy(run) is run
        assert copy.deepcopy({"run": [run]}) == {"run": [run]}


def test_launchers_cannot_be_pickled(launchers):
    for run, written in launchers:
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises(TypeError, match=rf"belongs to its process; .* write {re.escape(written)} where"):
                pickle.dumps(run, protocol)


def test_a_missing_attribute_of_a_launcher_raises_attribute_error(launchers):
    for run, _ in launchers:
        with pytest.raises(AttributeError, match="object has no attribute 'nosuch'"):
            _ = run.nosuch
        if hasattr(type(run), "__slots__"):  # those in Python
            for name in ("nosuch", *type(run).__slots__):
                with pytest.raises(AttributeError):
                    getattr(type(run).__new__(type(run)), name)


def test_a_launcher_with_a_grid_function_has_no_grid(cuda):
    k = cuda.package(PAIR, by_grid=True, frontend="triton").k
    for run in (k[0], k[of_a_grid]):
        for name in ("grid", "block", "stream", "shared"):
            assert not hasattr(run, name)


def test_a_kernel_is_no_container(cuda, k):
    grid = cuda.package(PAIR, by_grid=True, frontend="triton", name="mypkg.grid").k
    for each in (k, grid):
        for use in (iter, list, lambda each: 5 in each, dict.fromkeys):
            with pytest.raises(TypeError, match=r"not iterable|not a container"):
                use(each)


ATTRIBUTES = [
    {},
    {"cluster": 2},
    {"cluster": 4},
    {"cooperative": True},
    {"dependent": True},
    {"priority": 0},
    {"priority": -1},
    {"carveout": 0},
    {"carveout": 1},
    {"cluster": 2, "cooperative": True, "dependent": True, "priority": -1, "carveout": 50},
]
