"""Test the stream of a launch and its order: the cells of the table in docs/runtime.md, "Streams"."""

from __future__ import annotations

import itertools
import sys
import types
from unittest.mock import Mock

import pytest

from aotcuda.errors import AotcudaError, ArgumentError, CudaError, LaunchError
from aotcuda.runtime import driver, streams
from aotcuda.runtime.launch import execute, fast
from aotcuda.runtime.launch.execute import Launcher
from support import libraries, threads
from support.libraries import Array, State
from support.manifests import kernel

CUPY, TORCH, OWN = 77, 88, 99
"""The current streams of CuPy and PyTorch, and the one that Numba's arrays are bound to and interfaces name."""

LEADS = {"cupy": CUPY, "torch": TORCH, "exchange": TORCH}
"""The libraries on whose current stream a launch is."""

# By library: the stream of an array's data, and True if that stream also has to wait for the launch.
ON = {
    "cupy": (CUPY, True),
    "torch": (TORCH, False),
    "exchange": (TORCH, False),
    "numba": (OWN, True),
    "interface": (OWN, True),
    "instance": (OWN, True),
    "free numba": (None, False),
    "free interface": (None, False),
    "dlpack": (None, False),  # the library gets the launch's stream
}

pytestmark = pytest.mark.usefixtures("path")


@pytest.fixture
def current(current):
    """Give CuPy and PyTorch different current streams."""
    current.update(cupy=CUPY, torch=TORCH)
    return current


def array(library):
    """Return an array of a library; "free" arrays are bound to no stream."""
    stream = OWN if library in ("numba", "interface", "instance") else None
    return libraries.make(Array(library.removeprefix("free "), State(stream=stream)))


def ordered(cuda):
    """Return pairs of a stream that waits and the stream that it waits for, and the launches, in their order."""
    found, recorded = [], {}
    for call in cuda.calls("cuEventRecord", "cuStreamWaitEvent", "cuLaunchKernel"):
        if call["call"] == "cuEventRecord":
            recorded[call["event"]] = call["stream"]
        elif call["call"] == "cuStreamWaitEvent":
            found.append((call["stream"], recorded[call["event"]]))
        else:
            found.append(("launch", call["stream"]))
    return found


def expected(stream, arrays):
    """Return the result of `ordered` for one launch by the table."""
    others = {}
    for library in arrays:
        ready, mutual = ON[library]
        if ready is not None and not streams.is_same(ready, stream):
            others[ready] = others.get(ready, False) or mutual
    before = [(stream, ready) for ready in others]
    return [*before, ("launch", stream), *[(ready, stream) for ready, mutual in others.items() if mutual]]


@pytest.mark.parametrize("first", ON)
@pytest.mark.parametrize("second", ["", "cupy", "exchange", "numba", "free interface"])
def test_streams_are_ordered_as_table_in_docs(cuda, current, first, second):
    arrays = (first, second) if second else (first,)
    parameters = ", ".join(["float32[::1]"] * len(arrays))
    k = cuda.package(kernel("k", f"void({parameters})")).k
    leader = next((LEADS[library] for library in arrays if library in LEADS), 0)
    launchers = [
        (k[1, 1], leader),
        (k[1, 1, None, 0], leader),
        (k[1, 1, 0], 0),
        (k[1, 1, 55], 55),
        (k[1, 1, CUPY], CUPY),
        (k[1, 1, types.SimpleNamespace(ptr=66)], 66),
        (k.forall(100), leader),
        (k.forall(100, stream=0), 0),
        (k.forall(100, stream=55), 55),
    ]
    for run, stream in launchers:
        before = len(ordered(cuda))
        for _ in range(3):
            run(*map(array, arrays))
        assert ordered(cuda)[before:] == expected(stream, arrays) * 3


@pytest.mark.parametrize("library", ["torch", "exchange"])
def test_each_gpu_has_its_own_current_stream(cuda, current, library):
    """PyTorch returns the current stream of a given GPU."""
    cuda.set(devices="9.0,9.0", streams="90=0,91=1,92=0,93=1")
    current.update({"torch 0": 90, "torch 1": 91})
    k = cuda.package(kernel("k", "void(float32[::1])")).k

    def launch(gpu, *stream):
        tensor = libraries.of(library, cuda.array(8, device=gpu), gpu=gpu)
        k[1, 1, *stream](tensor)
        k.forall(8, 32, *stream)(tensor)

    assert threads.at_once([lambda: launch(1)]) == []  # in a thread without a current context
    assert ordered(cuda) == [("launch", 91)] * 2
    for gpu in (0, 1, 0, 1, 0, 1):
        driver.get().make_current(gpu)
        before = len(ordered(cuda))
        launch(gpu)
        launch(gpu, 92 + gpu)
        on, other = 90 + gpu, 92 + gpu
        assert ordered(cuda)[before:] == [("launch", on)] * 2 + [(other, on), ("launch", other)] * 2


@pytest.mark.parametrize("tensors", [0, 1])
@pytest.mark.parametrize("interfaces", [0, 1])
def test_both_handles_of_legacy_stream_are_one_stream(cuda, current, tensors, interfaces):
    current.update(torch=tensors)
    k = cuda.package(kernel("k", "void(float32[::1], float32[::1])")).k
    other = libraries.make(Array("instance", State(stream=interfaces)))
    for _ in range(3):
        k[1, 1, 55](array("exchange"), other)
    found = [tuple(streams.LEGACY if part == 0 else part for part in pair) for pair in ordered(cuda)]
    assert found == [(55, streams.LEGACY), ("launch", 55), (streams.LEGACY, 55)] * 3


def test_launch_goes_to_stream_that_is_current_at_that_time(cuda, current):
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    run = k[1, 1]
    handles = [0, 1, 2, 77, 78, 0, *range(100, 180)]  # more than a configuration caches
    for handle in handles:
        current.update(cupy=handle)
        run(array("cupy"))
    assert [launch["stream"] for launch in cuda.launches()] == handles
    assert cuda.calls("cuEventRecord") == []


@pytest.mark.parametrize("library", ["cupy", "exchange"])
def test_array_in_tuple_chooses_stream(cuda, current, library):
    k = cuda.package(kernel("k", "void(int32, (int32, float32[::1]))")).k
    for _ in range(3):
        k[1, 1](1, (2, array(library)))
    assert ordered(cuda) == [("launch", LEADS[library])] * 3


class Handle:
    """A stream object with the protocol for handles."""

    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


Core = type("Stream", (Handle,), {"__module__": "cuda.core"})


def test_each_stream_object_has_its_own_handle(cuda):
    k = cuda.package(kernel("k", "void(int32)")).k
    cupy = type("Stream", (types.SimpleNamespace,), {"__module__": "cupy.cuda.stream"})
    torch = type("Stream", (types.SimpleNamespace,), {"__module__": "torch"})
    makers = [Handle, Core, lambda ptr: cupy(ptr=ptr), lambda handle: torch(cuda_stream=handle)]
    for make in makers:
        for handle in (11, 12, 11):
            k[1, 1, make(handle)](7)
            k[1, 1, make(handle), 5](7)
    assert [launch["stream"] for launch in cuda.launches()] == [11, 11, 12, 12, 11, 11] * len(makers)


def test_closed_stream_of_cuda_core_is_refused(cuda):
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


@pytest.mark.parametrize("devices", ["9.0", "9.0,9.0"])
@pytest.mark.parametrize(
    ("dead", "data", "error", "message"),
    [
        (
            55,
            "free interface",
            LaunchError,
            r"mypkg\.kernels\.k cannot be launched: stream 0x37 does not exist any more",
        ),
        (OWN, "interface", ArgumentError, r"an argument's data is on stream 0x63: stream 0x63 does not exist any more"),
    ],
    ids=["given", "of the data"],
)
def test_destroyed_stream_is_named(cuda, current, devices, dead, data, error, message):
    cuda.set(devices=devices, streams=f"55=0,{OWN}=0")
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    made = array(data)
    for _ in range(2):
        k[1, 1, 55](made)
    cuda.set(dead=str(dead))
    for _ in range(2):
        with pytest.raises(error, match=message):
            k[1, 1, 55](made)
    assert len(cuda.launches()) == 2


class TestCaptures:
    """Launches on streams that are being captured into a graph."""

    @pytest.mark.parametrize("first", ["cupy", "torch", "exchange"])
    def test_capture_holds_launch_alone(self, cuda, current, first):
        cuda.set(capturing=str(LEADS[first]))
        k = cuda.package(kernel("k", "void(float32[::1], float32[::1])")).k
        for _ in range(3):
            k[1, 1](array(first), array("free interface"))
        assert ordered(cuda) == [("launch", LEADS[first])] * 3
        assert cuda.calls("cuStreamSynchronize") == []

    @pytest.mark.parametrize("arrays", [("numba", "exchange"), ("exchange", "numba"), ("numba", "exchange", "cupy")])
    def test_data_outside_graph_is_refused_in_any_order_of_arrays(self, cuda, current, arrays):
        """If the launch's stream joins a capture for one array, it cannot wait for another array."""
        parameters = ", ".join(["float32[::1]"] * len(arrays))
        run = cuda.package(kernel("k", f"void({parameters})")).k[1, 1, 55]
        for _ in range(2):
            run(*map(array, arrays))
        before = ordered(cuda)
        cuda.set(capturing=str(TORCH))
        for _ in range(2):
            with pytest.raises(ArgumentError, match=r"which is not part of the graph that stream 0x58"):
                run(*map(array, arrays))
        assert ordered(cuda) == before

    def test_refused_launch_orders_no_streams(self, cuda, current):
        cuda.set(capturing=str(TORCH))
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        for _ in range(2):
            before = len(ordered(cuda))
            for run in (k[1, 32, 55, 10**6], k.configure(1, 32, stream=55, priority=7), k.forall(8, 32, 55, 10**6)):
                with pytest.raises(LaunchError, match="cannot be launched"):
                    run(array("exchange"))
            assert len(ordered(cuda)) == before
            k[1, 32, 55](array("exchange"))

    def test_data_on_default_stream_is_refused_during_capture(self, cuda, current):
        """While another stream is captured, the driver refuses to query the default stream."""
        cuda.set(fail="cuStreamIsCapturing=906")
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        on_default = libraries.make(Array("interface", State(stream=1)))
        for _ in range(2):
            with pytest.raises(ArgumentError, match="is on stream 0x1, which is not part of the graph"):
                k[1, 1, 77](on_default)
        assert ordered(cuda) == []
        assert cuda.calls("cuEventRecord") == []

    @pytest.mark.parametrize("launched", [0, 3], ids=["first", "later"])
    @pytest.mark.parametrize("given", [0, 1])
    @pytest.mark.parametrize("library", ["cupy", "torch", "exchange", "numba", "interface"])
    def test_default_stream_joins_no_capture(self, cuda, current, library, given, launched):
        """The default stream cannot be captured: the driver's refusal would end the capture."""
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        runs = [k[1, 1, given], k[1, 1, given, 16], k.forall(8, stream=given)]
        runs += [] if library in LEADS else [k[1, 1], k.forall(8)]
        for run in runs * launched:
            run(array(library))
        before = len(ordered(cuda))
        cuda.set(capturing=str(ON[library][0]))
        for run in runs * 2:
            with pytest.raises(ArgumentError, match=r"captured into a graph, and the launch is on the default stream"):
                run(array(library))
        assert len(ordered(cuda)) == before

    @pytest.mark.parametrize("library", ["cupy", "torch", "exchange", "numba", "interface"])
    def test_stream_that_joins_capture_returns_to_it(self, cuda, current, library):
        """A stream that joins a capture has to return to the captured stream before the capture ends."""
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


STATES = {
    "plain": {},
    "data in a graph": {"capturing": f"{CUPY},{TORCH}"},
    "all in a graph": {"capturing": f"{CUPY},{TORCH},{OWN},55"},
    "launch in a graph": {"capturing": "55"},
    "any other stream in a graph": {"fail": "cuStreamIsCapturing=906"},
    "destroyed data": {"dead": OWN},
    "destroyed": {"dead": f"{CUPY},{TORCH},55"},
    "no launch": {"fail": "cuLaunchKernel=719"},
}
PAIRS = [
    *[(library, library) for library in ON],
    ("cupy", "torch"),
    ("exchange", "cupy"),
    ("numba", "cupy"),
    ("interface", "torch"),
    ("dlpack", "numba"),
    ("free interface", "exchange"),
]


@pytest.mark.parametrize("state", STATES)
def test_plans_order_streams_as_launches_with_all_checks_do(cuda, current, monkeypatch, state):
    """Both call the driver alike, and raise equal errors; plans in C, too."""
    signature = "void(float32[::1], float32[::1])"
    package = cuda.package(kernel("planned", signature), kernel("checked", signature))
    modules = {"planned": [*fast._module], "checked": [None]}
    submit, submitted = Launcher.submit, []
    monkeypatch.setattr(Launcher, "submit", lambda self, *args: (submitted.append(self.name), submit(self, *args)))

    def outcome(name, stream, pair):
        monkeypatch.setattr(execute, "PACK_AT", 1 if name == "planned" else 1 << 30)
        monkeypatch.setattr(fast, "_module", modules[name])
        problem = None
        try:
            getattr(package, name)[1, 1, stream](*map(array, pair))
        except AotcudaError as error:
            problem = type(error), str(error).replace("checked", "planned")
        found = ordered(cuda)
        cuda._calls.clear()
        return found, problem

    for pair in PAIRS * 3:  # types that are arrays by an attribute change the keys
        outcome("planned", None, pair)
    submitted.clear()
    for pair, stream in itertools.product(PAIRS, (None, 0, 1, 2, 55, CUPY, OWN)):
        found = {}
        for name in ("planned", "checked"):
            cuda.set(**STATES[state])
            found[name] = outcome(name, stream, pair)
            cuda.set(capturing="", dead="", fail="")
            streams.is_captured(driver.get(), 0)  # streams that joined the capture leave it
        assert found["planned"] == found["checked"], (pair, stream)
    assert "planned" not in submitted


def test_array_without_readable_stream_is_argument_error(cuda, current, monkeypatch):
    monkeypatch.setattr(
        sys.modules["cupy"].cuda, "get_current_stream", Mock(side_effect=RuntimeError("no stream today"))
    )
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for _ in range(2):
        with pytest.raises(AotcudaError, match="no stream today"):
            k[1, 1](array("cupy"))


@pytest.mark.parametrize("function", ["cuEventRecord", "cuStreamWaitEvent"])
def test_error_of_ordering_names_streams(cuda, current, function):
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for _ in range(2):
        k[1, 1, 55](array("exchange"))
    cuda.set(fail=f"{function}=2")
    for stream in (56, 55):
        with pytest.raises(CudaError, match=r"could not be made to wait for stream 0x58"):
            k[1, 1, stream](array("exchange"))
    assert [launch["stream"] for launch in cuda.launches()] == [55, 55]


@pytest.mark.parametrize("before", [0, 1], ids=["first", "later"])
@pytest.mark.parametrize(("function", "code"), [("cuStreamWaitEvent", 400), ("cuEventRecord", 201)])
def test_error_after_launch_says_that_it_was_launched(cuda, current, before, function, code):
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for _ in range(before):
        k[1, 1, 55](array("cupy"))
    cuda.set(fail=";".join(f"{function}={code}@{2 * before + nth}" for nth in (2, 3)[: before + 1]))
    with pytest.raises(
        CudaError, match=r"stream 0x4d could not be .* stream 0x37: mypkg\.kernels\.k was launched, and an"
    ):
        k[1, 1, 55](array("cupy"))
    assert len(cuda.launches()) == before + 1
