"""Test the stream of a launch and its order: the cells of the table in docs/runtime.md, "Streams"."""

from __future__ import annotations

import gc
import importlib
import random
import sys
import threading
import types
import weakref
from contextlib import contextmanager
from pathlib import Path

import pytest

from aotcuda.errors import AotcudaError, ArgumentError, CudaError, LaunchError
from aotcuda.runtime import driver, streams
from support import libraries
from support.libraries import Array, State
from support.manifests import kernel

ROOT = Path(__file__).parents[2]
CUPY, TORCH, OWN = 77, 88, 99
"""The current streams of CuPy and PyTorch, and the one that Numba's arrays are bound to and interfaces name."""

LEADS = {"cupy": CUPY, "torch": TORCH, "exchange": TORCH}
"""The libraries on whose current stream a launch is."""

# What an array's data is on, and whether that stream has to wait for the launch, too.
ON = {
    "cupy": (CUPY, True),
    "torch": (TORCH, False),
    "exchange": (TORCH, False),
    "numba": (OWN, True),
    "interface": (OWN, True),
    "instance": (OWN, True),
    "free numba": (None, False),
    "free interface": (None, False),
    "dlpack": (None, False),  # its owner is told the stream
}

pytestmark = pytest.mark.usefixtures("path")


@pytest.fixture
def current():
    """CuPy and PyTorch, as far as the run time asks them."""
    with contextmanager(libraries.installed)():
        libraries.CURRENT.update(cupy=CUPY, torch=TORCH)
        yield libraries.CURRENT
    libraries.CURRENT.update(cupy=0, torch=0)


def array(library: str) -> object:
    """Return an array of a library; "free" ones are on no stream of their own."""
    stream = OWN if library in ("numba", "interface", "instance") else None
    return libraries.make(Array(library.removeprefix("free "), (State(stream=stream),)))


def ordered(cuda):
    """Pairs of a stream that waits and the one that it waits for, in their order, and the launches among them."""
    found, recorded = [], {}
    for call in cuda.calls("cuEventRecord", "cuStreamWaitEvent", "cuLaunchKernel"):
        if call["call"] == "cuEventRecord":
            recorded[call["event"]] = call["stream"]
        elif call["call"] == "cuStreamWaitEvent":
            found.append((call["stream"], recorded[call["event"]]))
        else:
            found.append(("launch", call["stream"]))
    return found


def expected(stream: int, arrays: tuple[str, ...]) -> list[tuple[object, int]]:
    """Return the same as the table has it, for one launch."""
    others: dict[int, bool] = {}
    for library in arrays:
        ready, mutual = ON[library]
        if ready is not None and not streams.same(ready, stream):
            others[ready] = others.get(ready, False) or mutual
    before = [(stream, ready) for ready in others]
    return [*before, ("launch", stream), *[(ready, stream) for ready, mutual in others.items() if mutual]]


@pytest.mark.parametrize("given", [None, "none", 0, 55, "object"])
@pytest.mark.parametrize("first", ON)
@pytest.mark.parametrize("second", ["", "cupy", "exchange", "numba", "free interface"])
def test_each_cell(cuda, current, first, second, given):
    arrays = (first, second) if second else (first,)
    parameters = ", ".join(["float32[::1]"] * len(arrays))
    k = cuda.package(kernel("k", f"void({parameters})")).k
    leader = next((LEADS[library] for library in arrays if library in LEADS), 0)
    where = {None: leader, "none": leader, 0: 0, 55: 55, "object": 66}[given]
    configuration = {None: (1, 1), "none": (1, 1, None, 0), "object": (1, 1, types.SimpleNamespace(ptr=66))}
    for _ in range(3):
        k[configuration.get(given, (1, 1, given))](*map(array, arrays))
    assert ordered(cuda) == expected(where, arrays) * 3


@pytest.mark.parametrize("first", ["cupy", "torch", "exchange", "numba", "free interface"])
def test_forall_is_on_the_same_streams(cuda, current, first):
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for _ in range(3):
        k.forall(100)(array(first))
        k.forall(100, stream=0)(array(first))
        k.forall(100, stream=55)(array(first))
    assert ordered(cuda) == 3 * [cell for where in (LEADS.get(first, 0), 0, 55) for cell in expected(where, (first,))]


@pytest.mark.parametrize(
    "make", [lambda k, stream: k.forall(8, 32, stream), lambda k, stream: k.forall(0, stream=stream)]
)
def test_forall_keeps_the_stream_alive(cuda, make):
    k = cuda.package(kernel("k", "void(int32)")).k
    stream = Core(11)
    alive = weakref.ref(stream)
    run = make(k, stream)
    del stream
    for _ in range(3):
        run(7)
    gc.collect()
    assert alive() is not None
    del run
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("library", ["torch", "exchange"])
def test_of_several_gpus_each_has_a_current_stream_of_its_own(cuda, current, library):
    """PyTorch returns the current stream of a given GPU."""
    cuda.set(devices="9.0,9.0", streams="90=0,91=1,92=0,93=1")
    current.update({"torch 0": 90, "torch 1": 91})
    k = cuda.package(kernel("k", "void(float32[::1])")).k

    def launch(gpu, *stream):
        tensor = libraries.of(library, cuda.array(8, device=gpu), gpu=gpu)
        k[1, 1, *stream](tensor)
        k.forall(8, 32, *stream)(tensor)

    try:
        thread = threading.Thread(target=launch, args=(1,))  # in which no context is current
        thread.start()
        thread.join()
        assert ordered(cuda) == [("launch", 91)] * 2
        for gpu in (0, 1, 0, 1, 0, 1):
            driver.get().make_current(gpu)
            before = len(ordered(cuda))
            launch(gpu)
            launch(gpu, 92 + gpu)
            on, other = 90 + gpu, 92 + gpu
            assert ordered(cuda)[before:] == [("launch", on)] * 2 + [(other, on), ("launch", other)] * 2
    finally:
        del current["torch 0"], current["torch 1"]


@pytest.mark.parametrize("tensors", [0, 1])
@pytest.mark.parametrize("interfaces", [0, 1])
def test_the_legacy_stream_is_one_by_either_handle(cuda, current, tensors, interfaces):
    current.update(torch=tensors)
    k = cuda.package(kernel("k", "void(float32[::1], float32[::1])")).k
    other = libraries.make(Array("instance", (State(stream=interfaces),)))
    for _ in range(3):
        k[1, 1, 55](array("exchange"), other)
    found = [tuple(streams.LEGACY if part == 0 else part for part in pair) for pair in ordered(cuda)]
    assert found == [(55, streams.LEGACY), ("launch", 55), (streams.LEGACY, 55)] * 3


def test_the_stream_that_is_current_at_the_launch_counts(cuda, current):
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    run = k[1, 1]
    for stream in (0, 1, 2, 77, 78, 0):
        current.update(cupy=stream)
        run(array("cupy"))
    assert [launch["stream"] for launch in cuda.launches()] == [0, 1, 2, 77, 78, 0]
    assert cuda.calls("cuEventRecord") == []


def test_more_streams_than_are_kept(cuda, current):
    run = cuda.package(kernel("k", "void(float32[::1])")).k[1, 1]
    for stream in range(100, 400):
        current.update(cupy=stream)
        run(array("cupy"))
    assert [launch["stream"] for launch in cuda.launches()] == [*range(100, 400)]


@pytest.mark.parametrize("library", ["cupy", "exchange"])
def test_an_array_within_a_tuple_leads_as_well(cuda, current, library):
    k = cuda.package(kernel("k", "void(int32, (int32, float32[::1]))")).k
    for _ in range(3):
        k[1, 1](1, (2, array(library)))
    assert ordered(cuda) == [("launch", LEADS[library])] * 3


def test_without_arrays_a_launch_is_on_the_default_stream(cuda, current):
    k = cuda.package(kernel("k", "void(int32)")).k
    for _ in range(3):
        k[1, 1](7)
    assert ordered(cuda) == [("launch", 0)] * 3


def test_shared_memory_with_the_default_stream(cuda, current):
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for _ in range(3):
        k[1, 1, 0, 100](array("free interface"))
        k[1, 1, None, 100](array("exchange"))
    assert [(launch["stream"], launch["shared"]) for launch in cuda.launches()] == [(0, 100), (TORCH, 100)] * 3


class Handle:
    """A stream object whose handle is asked for by a method."""

    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


Core = type("Stream", (Handle,), {"__module__": "cuda.core"})


def test_each_object_of_a_type_has_its_own_handle(cuda):
    k = cuda.package(kernel("k", "void(int32)")).k
    kinds = [Handle, Core, lambda ptr: types.SimpleNamespace(ptr=ptr)]
    cupy = type(
        "Stream", (), {"__module__": "cupy.cuda.stream", "__init__": lambda self, ptr: setattr(self, "ptr", ptr)}
    )
    torch = type("Stream", (), {"__module__": "torch", "__init__": lambda self, to: setattr(self, "cuda_stream", to)})
    wanted = []
    for make in (*kinds, cupy, torch):
        for handle in (11, 12, 11, 13):
            k[1, 1, make(handle)](7)
            k[1, 1, make(handle), 5](7)
            wanted += [handle, handle]
    assert [launch["stream"] for launch in cuda.launches()] == wanted


def test_attributes_of_a_stream_object_may_come_and_go(cuda):
    k = cuda.package(kernel("k", "void(int32)")).k
    for _ in range(2):
        for stream in (types.SimpleNamespace(ptr=11), types.SimpleNamespace(cuda_stream=12)):
            k[1, 1, stream](7)
        with pytest.raises(ArgumentError, match="is no stream"):
            k[1, 1, types.SimpleNamespace()](7)
    assert [launch["stream"] for launch in cuda.launches()] == [11, 12, 11, 12]


def test_a_closed_stream_of_cuda_core_is_not_the_default_stream(cuda):
    k = cuda.package(kernel("k", "void(int32)")).k
    stream = Core(11)
    for _ in range(2):
        k[1, 1, stream](7)
        k[1, 1, 0](7)
        k[1, 1, 0, 0](7)
    stream.handle = 0
    for _ in range(2):
        for more in ((), (0,)):
            with pytest.raises(ArgumentError, match="was closed"):
                k[1, 1, stream, *more](7)
    assert len(cuda.launches()) == 6


def test_a_stream_that_cannot_tell_its_handle_is_an_argument_error(cuda):
    k = cuda.package(kernel("k", "void(int32)")).k
    stream = Handle(11)
    for _ in range(2):
        k[1, 1, stream](7)
    stream.handle = "none"
    for _ in range(2):
        with pytest.raises(
            ArgumentError, match="a Handle was given as the stream, and its handle cannot be read: invalid"
        ):
            k[1, 1, stream](7)


@pytest.mark.parametrize("devices", ["9.0", "9.0,9.0"])
def test_a_dead_stream_is_named(cuda, current, devices):
    cuda.set(devices=devices, streams="55=0")
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    made = array("free interface")
    for _ in range(2):
        k[1, 1, 55](made)
    cuda.set(dead="55")
    for _ in range(2):
        with pytest.raises(
            LaunchError, match=r"mypkg\.kernels\.k cannot be launched: stream 0x37 does not exist any more"
        ):
            k[1, 1, 55](made)
    assert len(cuda.launches()) == 2


def test_a_dead_stream_that_data_is_on_is_named(cuda, current):
    cuda.set(dead=str(OWN))
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for _ in range(2):
        with pytest.raises(
            ArgumentError, match=r"an argument's data is on stream 0x63: stream 0x63 does not exist any more"
        ):
            k[1, 1](array("interface"))
    assert cuda.launches() == []


class TestCaptures:
    """Launches on streams that are being captured into a graph."""

    @pytest.mark.parametrize("first", ["cupy", "torch", "exchange"])
    def test_nothing_but_the_launch_is_captured(self, cuda, current, first):
        cuda.set(capturing=str(LEADS[first]))
        k = cuda.package(kernel("k", "void(float32[::1], float32[::1])")).k
        for _ in range(3):
            k[1, 1](array(first), array("free interface"))
        assert ordered(cuda) == [("launch", LEADS[first])] * 3
        assert cuda.calls("cuStreamSynchronize") == []

    def test_data_that_is_not_part_of_the_graph_is_refused(self, cuda, current):
        cuda.set(capturing=str(TORCH))
        k = cuda.package(kernel("k", "void(float32[::1], float32[::1])")).k
        for _ in range(2):
            with pytest.raises(
                ArgumentError, match=r"data is on stream 0x63, which is not part of the graph that stream 0x58"
            ):
                k[1, 1](array("exchange"), array("numba"))
        assert ordered(cuda) == []

    @pytest.mark.parametrize("arrays", [("numba", "exchange"), ("exchange", "numba"), ("numba", "exchange", "cupy")])
    def test_in_whatever_order_the_arrays_come(self, cuda, current, arrays):
        """A stream that joined a capture for one array would wait for no other; nor would it come back."""
        parameters = ", ".join(["float32[::1]"] * len(arrays))
        k = cuda.package(kernel("k", f"void({parameters})")).k
        for captured in ("", str(TORCH)):
            cuda.set(capturing=captured)
            for _ in range(2):
                before = len(ordered(cuda))
                if not captured:
                    k[1, 1, 55](*map(array, arrays))
                    continue
                with pytest.raises(ArgumentError, match=r"which is not part of the graph that stream 0x58"):
                    k[1, 1, 55](*map(array, arrays))
                assert len(ordered(cuda)) == before

    @pytest.mark.parametrize("by", ["brackets", "configure", "forall"])
    def test_a_launch_that_is_refused_has_no_stream_join(self, cuda, current, by):
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        runs = {
            "brackets": lambda block: k[1, block, 55],
            "configure": lambda block: k.configure(1, block, stream=55, priority=-1 if block == 32 else 7),
            "forall": lambda block: k.forall(8, block, 55),
        }
        for captured in ("", str(TORCH)):
            cuda.set(capturing=captured)
            for _ in range(2):
                before = len(ordered(cuda))
                with pytest.raises(LaunchError, match="cannot be launched"):
                    runs[by](2048)(array("exchange"))
                assert len(ordered(cuda)) == before
                runs[by](32)(array("exchange"))

    def test_the_default_stream_is_in_the_way_of_a_capture_and_not_part_of_it(self, cuda, current):
        """The driver says so of it while a stream is captured that waits for it; to record an event there ends that."""
        cuda.set(fail="cuStreamIsCapturing=906")
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        on_default = libraries.make(Array("interface", (State(stream=1),)))
        for _ in range(2):
            with pytest.raises(ArgumentError, match="is on stream 0x1, which is not part of the graph"):
                k[1, 1, 77](on_default)
        assert ordered(cuda) == []
        assert cuda.calls("cuEventRecord") == []

    @pytest.mark.parametrize("library", ["cupy", "exchange"])
    def test_a_given_stream_that_joins_a_capture_comes_back_to_it(self, cuda, current, library):
        """A stream that forks from a captured stream has to join it again before the capture ends."""
        cuda.set(capturing=str(LEADS[library]))
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        for _ in range(2):
            k[1, 1, 55](array(library))
        where = LEADS[library]
        assert ordered(cuda) == [(55, where), ("launch", 55), (where, 55)] * 2

    @pytest.mark.parametrize("learnt", [0, 3], ids=["general", "learnt"])
    @pytest.mark.parametrize("given", [0, 1])
    @pytest.mark.parametrize("library", ["cupy", "torch", "exchange", "numba", "interface"])
    def test_the_default_stream_does_not_join_one(self, cuda, current, library, given, learnt):
        """It cannot be captured: the driver would refuse, and the capture be lost."""
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        runs = [k[1, 1, given], k[1, 1, given, 16], k.forall(8, stream=given)]
        runs += [] if library in LEADS else [k[1, 1], k.forall(8)]
        for run in runs * learnt:
            run(array(library))
        before = len(ordered(cuda))
        cuda.set(capturing=str(ON[library][0]))
        for run in runs * 2:
            with pytest.raises(ArgumentError, match=r"captured into a graph, and the launch is on the default stream"):
                run(array(library))
        assert len(ordered(cuda)) == before

    @pytest.mark.parametrize("library", ["cupy", "torch", "exchange", "numba", "interface"])
    def test_what_was_learnt_before_a_capture_is_held_to_its_rules(self, cuda, current, library):
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        run, ready = k[1, 1, 55], ON[library][0]
        for _ in range(3):
            run(array(library))
        before = ordered(cuda)
        cuda.set(capturing="55")
        for _ in range(2):
            with pytest.raises(ArgumentError, match="is not part of the graph that stream 0x37 is captured into"):
                run(array(library))
        assert ordered(cuda) == before
        for captured in (str(ready), f"{ready},55"):
            cuda.set(capturing=captured)
            for _ in range(2):
                before = ordered(cuda)
                run(array(library))
                assert ordered(cuda)[len(before) :] == [(55, ready), ("launch", 55), (ready, 55)]


def test_an_array_that_cannot_tell_its_stream_is_an_argument_error(cuda, current, monkeypatch):
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    run = k[1, 1]
    for _ in range(2):
        run(array("cupy"))

    def broken():
        message = "no stream today"
        raise RuntimeError(message)

    monkeypatch.setattr(sys.modules["cupy"].cuda, "get_current_stream", broken)
    k = cuda.package(kernel("k", "void(float32[::1])"), name="mypkg.others").k
    for _ in range(2):
        with pytest.raises(AotcudaError, match="no stream today"):
            k[1, 1](array("cupy"))


@pytest.mark.usefixtures("current")
def test_events_are_kept_where_launches_wait_for_streams(cuda):
    """One event serves all launches after the first one, which makes all checks and destroys its own."""
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for _ in range(10):
        k[1, 1, 55](array("exchange"))
    used = {call["event"] for call in cuda.calls("cuEventRecord")}
    destroyed = used & {call["event"] for call in cuda.calls("cuEventDestroy")}  # what other tests left goes any time
    assert (len(used), len(destroyed)) == (2, 1)
    assert ordered(cuda) == [(55, TORCH), ("launch", 55)] * 10


@pytest.mark.usefixtures("current")
def test_an_event_that_does_not_work_is_not_kept(cuda):
    """It may be of another context."""
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for _ in range(3):
        k[1, 1, 55](array("exchange"))
    kept = cuda.calls("cuEventRecord")[-1]["event"]
    cuda.set(fail="cuStreamWaitEvent=400@4")
    for _ in range(3):
        k[1, 1, 55](array("exchange"))
    assert kept in {call["event"] for call in cuda.calls("cuEventDestroy")}
    assert len(cuda.launches()) == 6


@pytest.mark.usefixtures("current")
def test_threads_that_order_streams_at_once_have_events_of_their_own(cuda, path, monkeypatch):
    if path == "extension":
        pytest.skip("it takes an event and records it without Python code in between")
    run = cuda.package(kernel("k", "void(float32[::1])")).k[1, 1, 55]
    for _ in range(3):
        run(array("exchange"))
    before, order, barrier = len(cuda.calls("cuEventRecord")), streams.Event.order, threading.Barrier(2, timeout=30)

    def order_together(self, *args):
        barrier.wait()
        return order(self, *args)

    def launch():
        driver.get().make_current(0)
        run(array("exchange"))

    monkeypatch.setattr(streams.Event, "order", order_together)
    threads = [threading.Thread(target=launch) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorded = cuda.calls("cuEventRecord")[before:]
    assert len({call["event"] for call in recorded}) == len(recorded) == 2


@pytest.mark.parametrize("function", ["cuEventRecord", "cuStreamWaitEvent"])
def test_a_driver_that_refuses_to_order_streams_is_named(cuda, current, function):
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for _ in range(2):
        k[1, 1, 55](array("exchange"))
    cuda.set(fail=f"{function}=2")
    for stream in (56, 55):
        with pytest.raises(CudaError, match=r"could not be made to wait for stream 0x58"):
            k[1, 1, stream](array("exchange"))
    assert [launch["stream"] for launch in cuda.launches()] == [55, 55]


@pytest.mark.parametrize("before", [0, 1], ids=["general", "learnt"])
@pytest.mark.parametrize(("function", "code"), [("cuStreamWaitEvent", 400), ("cuEventRecord", 201)])
def test_a_launch_that_no_stream_waits_for_is_said_to_have_been_made(cuda, current, before, function, code):
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for _ in range(before):
        k[1, 1, 55](array("cupy"))
    cuda.set(fail=";".join(f"{function}={code}@{2 * before + nth}" for nth in (2, 3)[: before + 1]))
    with pytest.raises(
        CudaError, match=r"stream 0x4d could not be .* stream 0x37: mypkg\.kernels\.k was launched, and an"
    ):
        k[1, 1, 55](array("cupy"))
    assert len(cuda.launches()) == before + 1


@pytest.mark.usefixtures("current")
def test_a_stream_that_could_not_wait_for_a_launch_is_made_to_wait_once_more(cuda):
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    k[1, 1, 55](array("cupy"))
    cuda.set(fail="cuStreamWaitEvent=400@4")
    k[1, 1, 55](array("cupy"))
    assert ordered(cuda)[-3:] == [("launch", 55), (CUPY, 55), (CUPY, 55)]
    assert len(cuda.launches()) == 2


@pytest.mark.parametrize("seed", range(3))
def test_configurations_are_told_apart_however_they_follow_each_other(cuda, seed):
    """Those found last are found by the objects that they are written with."""
    k = cuda.package(kernel("k", "void(int32)")).k
    kind = type("Stream", (), {"__module__": "torch", "__init__": lambda self, to: setattr(self, "cuda_stream", to)})
    grid, other, block, shared, handle = 1000, (1000, 2), 500, 3000, 2**40
    one, two = kind(11), kind(12)
    written = [(grid, block), (grid, block, None), (grid, block, one), (grid, block, two), (grid, block, handle)]
    written += [
        (other, block),
        (other, block, one),
        (grid, (block,)),
        (grid, block, one, shared),
        (grid, block, None, shared),
    ]
    written += [
        (grid, block, handle, shared),
        (grid, block, 0),
        (grid, block, two, 0),
        (grid, block, True),
        (grid, block, 1),
    ]
    expected = []
    choose = random.Random(seed)
    for number in range(200):
        if number % 20 == 0:
            one.cuda_stream += 100  # as of another object that lies where this one did
        key = choose.choice(written[number // 40 :][:6])
        k[key](number)
        x, y = key[0] if isinstance(key[0], tuple) else (key[0], 1)
        stream = (*key, None)[2]
        stream = getattr(stream, "cuda_stream", stream) or 0
        expected.append(([x, y, 1], int(stream), key[3] if len(key) > 3 else 0))
    assert [(call["grid"], call["stream"], call["shared"]) for call in cuda.launches()] == expected


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_the_bench_compares_with_c_that_orders_streams_by_the_same_calls(cuda, current, monkeypatch, tmp_path, library):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    peers = importlib.import_module("peers")
    kernels = cuda.package(kernel("axpy", "void(float32, float32[::1])", names="ax"))
    arrays, other, mutual = [array(library)], LEADS[library], ON[library][1]
    case = peers.Case(kernels, "axpy", 1, tmp_path)
    by_c = dict(peers.c_batches(case, arrays, 55, other, mutual=mutual))
    run = kernels.axpy[peers.GRID, peers.BLOCK, 55]
    for _ in range(3):
        run(2.0, *arrays)
    own = _ordered(cuda, lambda: run(2.0, *arrays))
    assert _ordered(cuda, lambda: by_c[peers.ORDERED](1)) == own
    assert len(own) == (5 if mutual else 3)
    assert len(_ordered(cuda, lambda: next(iter(by_c.values()))(1))) == 1


def _ordered(cuda, launch):
    """Return what the driver is asked for, in order, and of which streams."""
    names = ("cuEventRecord", "cuStreamWaitEvent", "cuLaunchKernel")
    before = len(cuda.calls(*names))
    launch()
    return [
        (call["call"], call["stream"], call.get("grid"), call.get("parameters")) for call in cuda.calls(*names)[before:]
    ]
