"""Test launches for XLA's programs: Python prepares them, and the tests call the handlers like XLA."""

from __future__ import annotations

import ctypes
import struct
import time

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, DependencyError, LaunchError
from aotcuda.runtime.launch import fast as extension
from aotcuda.runtime.launch import xla_call
from support import manifests, threads

STREAM = 0x5000
AXPY = [
    "void(float32, float32[::1], float32[::1], float32[::1])",
    "void(float64, float64[::1], float64[::1], float64[::1])",
]
BUFFER, SCALAR, S64, EXECUTE = 1, 3, 5, 3


INT, INT64, SIZE, POINTER, TEXT = ctypes.c_int, ctypes.c_int64, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p


def plain(**members):
    """Return a class of structures."""
    return type("Structure", (ctypes.Structure,), {"_fields_": [*members.items()]})


def structure(**members):
    """Return a class of XLA's structures, which begin with their size and a list of extensions."""
    return plain(struct_size=SIZE, extension=POINTER, **members)


# The structures of XLA's c_api.h; tests/unit/test_jax_abi.py compares the extension's own with that header.
Version = structure(major=INT, minor=INT)
ErrorArgs = structure(message=TEXT, code=INT)
StreamArgs = structure(context=POINTER, stream=POINTER)
ERROR = ctypes.CFUNCTYPE(POINTER, ctypes.POINTER(ErrorArgs))
GET_STREAM = ctypes.CFUNCTYPE(POINTER, ctypes.POINTER(StreamArgs))
BETWEEN = ("error_get_message", "error_destroy", "handler_register")
Api = structure(
    version=Version, internal=POINTER, error_create=ERROR, **dict.fromkeys(BETWEEN, POINTER), stream_get=GET_STREAM
)
Buffer = structure(dtype=INT, data=POINTER, rank=INT64, dims=POINTER)
List = structure(size=INT64, types=ctypes.POINTER(INT), values=ctypes.POINTER(POINTER))
Span = plain(text=TEXT, length=SIZE)
Scalar = plain(dtype=INT, value=POINTER)
NAMES = ctypes.POINTER(ctypes.POINTER(Span))
Attributes = structure(size=INT64, types=ctypes.POINTER(INT), names=NAMES, values=ctypes.POINTER(POINTER))
Frame = structure(api=ctypes.POINTER(Api), context=POINTER, stage=INT, args=List, results=List, attributes=Attributes)


class Xla:
    """Call a handler as XLA does.

    Attributes:
        messages: The messages of the errors so far.
    """

    def __init__(self, module, *, which=0):
        capsule = module.xla_handlers()[which]
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        self._handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(Frame))(get(capsule, None))
        self.messages: list[str] = []
        self._api = Api(
            version=Version(major=0, minor=3), error_create=ERROR(self._error), stream_get=GET_STREAM(_stream)
        )

    def _error(self, args):
        self.messages.append(args.contents.message.decode())
        return len(self.messages)

    def call(self, args=(), results=(), **attributes):
        """Call the handler with addresses and 64-bit attributes; return True if there was no error."""
        references: list[object] = []
        frame = Frame(
            ctypes.sizeof(Frame),
            None,
            ctypes.pointer(self._api),
            None,
            EXECUTE,
            _buffers(args, references),
            _buffers(results, references),
            _attributes(attributes, references),
        )
        return self._handler(ctypes.byref(frame)) is None


def _stream(args):
    args.contents.stream = STREAM


def _buffers(addresses, references):
    buffers = [Buffer(data=address) for address in addresses]
    references.append(buffers)
    types = (ctypes.c_int * len(buffers))(*[BUFFER] * len(buffers))
    values = (ctypes.c_void_p * len(buffers))(*[ctypes.addressof(buffer) for buffer in buffers])
    return List(0, None, len(buffers), types, values)


def _attributes(numbers, references):
    cells = [ctypes.c_int64(number) for number in numbers.values()]
    scalars = [Scalar(S64, ctypes.addressof(cell)) for cell in cells]
    spans = [Span(name.encode(), len(name)) for name in numbers]
    references += [cells, scalars, spans]
    count = len(cells)
    return Attributes(
        0,
        None,
        count,
        (ctypes.c_int * count)(*[SCALAR] * count),
        (ctypes.POINTER(Span) * count)(*[ctypes.pointer(span) for span in spans]),
        (ctypes.c_void_p * count)(*[ctypes.addressof(scalar) for scalar in scalars]),
    )


@pytest.fixture
def module(extension_module, monkeypatch):
    """Return the extension."""
    monkeypatch.setattr(extension, "_module", [extension_module])
    return extension_module


@pytest.fixture
def axpy(cuda, module):
    return cuda.package(manifests.kernel("axpy", *AXPY, names="axyz")).axpy


def prepare(kernel, args, places, configuration=(3, 64, 0), n=None, *, counts=(2, 1), pinned=False):
    name = kernel.__name__
    return xla_call.prepare(kernel.images, name, str(kernel), args, places, counts, configuration, n, pinned=pinned)


def axpy_args(count=10, typestr="<f4"):
    args = [2.5, *(xla_call.Shaped(number, (count,), typestr) for number in (1, 2, 3))]
    places = [None, *(xla_call.Place(index, is_result=False) for index in (0, 1)), xla_call.Place(0, is_result=True)]
    return args, places


def test_prepared_launch_sends_what_launch_sends(cuda, module, axpy):
    arrays = [cuda.array(np.zeros(10, "<f4")) for _ in range(3)]
    axpy[3, 64](2.5, *arrays)
    expected, launch = cuda.parameters(), cuda.launches()[-1]
    number, identity = prepare(axpy, *axpy_args())
    x, y, out = (array.address for array in arrays)
    assert Xla(module).call((x, y), (out,), launch=number, identity=identity)
    got = cuda.launches()[-1]
    assert cuda.parameters() == expected
    assert {**got, "stream": None} == {**launch, "stream": None}
    assert got["stream"] == STREAM
    assert len(cuda.launches()) == 2


def test_argument_may_be_result_as_well(cuda, module):
    kernel = cuda.package(manifests.kernel("scale", "void(float32[::1], float32)")).scale
    args = [xla_call.Shaped(0, (4,), "<f4"), 3.0]
    number, identity = prepare(kernel, args, [xla_call.Place(0, is_result=False), None], counts=(1, 1))
    array = cuda.array(4)
    assert Xla(module).call((array.address,), (array.address,), launch=number, identity=identity)
    kernel[3, 64](array, 3.0)
    first, second = (bytes.fromhex(launch["parameters"]) for launch in cuda.launches())
    assert first == second


def test_dtypes_select_overload_and_thread_count_selects_grid(cuda, module, axpy):
    number, identity = prepare(axpy, *axpy_args(typestr="<f8"), configuration=(None, np.int64(64), 0), n=np.int32(130))
    assert Xla(module).call((0x1000, 0x2000), (0x3000,), launch=number, identity=identity)
    assert cuda.launches()[-1]["grid"] == [3, 1, 1]
    assert struct.pack("<d", 2.5) in cuda.parameters()


def test_impossible_launches_are_refused_while_tracing(cuda, module, axpy):
    for n, block, shared, problem in (
        (None, 4096, 0, "4096"),
        (None, 64, -1, "dynamic shared memory is -1 where a number of bytes belongs"),
        (10, 0, 0, "block is 0 where forall takes an int of at least 1"),
        (10, (8, 8), 0, r"block is \(8, 8\) where forall takes an int of at least 1"),
        (-1, 8, 0, "the number of elements cannot be negative"),
        (0, 8, 0, "forall is 0, and XLA's programs launch at least one thread"),
        (1.5, 8, 0, "the number of elements must be an int"),
    ):
        with pytest.raises(LaunchError, match=problem):
            prepare(axpy, *axpy_args(), configuration=(1, block, shared), n=n)
    kernel = cuda.package(manifests.kernel("f", "void(float32[::1])", cooperative=True), name="mypkg.cooperative").f
    with pytest.raises(LaunchError, match="it is a cooperative one"):
        prepare(kernel, [xla_call.Shaped(0, (4,), "<f4")], [xla_call.Place(0, is_result=True)])


def test_launch_of_another_process_is_refused(module, axpy):
    number, identity = prepare(axpy, *axpy_args())
    xla = Xla(module)
    for numbers in (
        {"launch": number, "identity": identity ^ 1},
        {"launch": 1 << 40, "identity": identity},
        {"launch": xla_call.NOWHERE, "identity": 0},
        {"launch": number},
    ):
        assert not xla.call((0x1000, 0x2000), (0x3000,), **numbers)
        assert "was not prepared in this process" in xla.messages[-1]


def test_other_buffers_than_were_traced_are_refused(cuda, module, axpy):
    number, identity = prepare(axpy, *axpy_args())
    xla = Xla(module)
    assert not xla.call((0x1000,), (0x3000,), launch=number, identity=identity)
    assert xla.messages[-1].endswith("XLA passes 1 arguments and 1 results, and 2 and 1 were traced")
    assert cuda.launches() == []


def test_unloaded_images_are_not_launched(cuda, module, axpy):
    number, identity = prepare(axpy, *axpy_args())
    import mypkg.kernels

    mypkg.kernels.__aotcuda__.unload()
    xla = Xla(module)
    assert not xla.call((0x1000, 0x2000), (0x3000,), launch=number, identity=identity)
    assert "trace it again" in xla.messages[-1]
    assert cuda.launches() == []
    again = prepare(axpy, *axpy_args())
    assert again[0] != number
    assert xla.call((0x1000, 0x2000), (0x3000,), launch=again[0], identity=again[1])


def test_pinned_launches_keep_their_images(cuda, module, axpy):
    number, identity = prepare(axpy, *axpy_args(), pinned=True)
    import mypkg.kernels

    mypkg.kernels.__aotcuda__.unload()
    assert cuda.calls("cuLibraryUnload") == []
    assert Xla(module, which=1).call((0x1000, 0x2000), (0x3000,), launch=number, identity=identity)
    assert [call["call"] for call in cuda.calls("crash", "cuLaunchKernel")] == ["cuLaunchKernel"]


def test_unloading_waits_for_launch_of_xlas(cuda, module, axpy, monkeypatch):
    number, identity = prepare(axpy, *axpy_args())
    xla, succeeded = Xla(module), []

    def launch():
        axpy.images.enter(axpy.images.ready(), ())  # as XLA's threads have a context
        cuda.hold(True)
        succeeded.append(xla.call((0x1000, 0x2000), (0x3000,), launch=number, identity=identity))

    def wait(_seconds):
        unloaded.append(len(cuda.calls("cuLibraryUnload")))
        cuda.hold(False)

    import mypkg.kernels

    unloaded = []
    monkeypatch.setattr(time, "sleep", wait)
    with threads.started(launch):
        cuda.await_launch()
        mypkg.kernels.__aotcuda__.unload()
    assert (set(unloaded), succeeded, len(cuda.calls("cuLibraryUnload"))) == ({0}, [True], 1)


def test_thread_without_context_takes_streams_context(cuda, module, axpy):
    number, identity = prepare(axpy, *axpy_args())
    cuda.set(streams=f"{STREAM}=0")
    xla, succeeded = Xla(module), []
    call = lambda: succeeded.append(xla.call((0x1000, 0x2000), (0x3000,), launch=number, identity=identity))  # noqa: E731
    assert threads.at_once([call]) == []
    assert (succeeded, xla.messages, len(cuda.launches())) == ([True], [], 1)
    assert len(cuda.calls("cuCtxPushCurrent")) >= 1


def test_error_of_driver_is_returned(cuda, module, axpy):
    number, identity = prepare(axpy, *axpy_args())
    cuda.set(fail="cuLaunchKernel=719")
    xla = Xla(module)
    assert not xla.call((0x1000, 0x2000), (0x3000,), launch=number, identity=identity)
    assert xla.messages == ["mypkg.kernels.axpy could not be launched: the CUDA driver reports error 719"]


def test_without_gpu_arguments_are_checked(cuda, module, axpy, monkeypatch):
    cuda.set(devices="")
    import mypkg.kernels

    mypkg.kernels.__aotcuda__.unload()
    from aotcuda.runtime import driver

    monkeypatch.setattr(driver, "_driver", None)
    assert prepare(axpy, *axpy_args()) == (xla_call.NOWHERE, 0)
    with pytest.raises(ArgumentError, match="argument 2, x, is int8"):
        prepare(axpy, *axpy_args(typestr="|i1"))


def test_without_extension_error_says_so(cuda, monkeypatch):
    monkeypatch.setattr(extension, "_module", [None])
    monkeypatch.setattr(extension, "_reason", ["AOTCUDA_EXTENSION is 0"])
    kernel = cuda.package(manifests.kernel("axpy", *AXPY, names="axyz")).axpy
    with pytest.raises(DependencyError, match="there is none: AOTCUDA_EXTENSION is 0"):
        prepare(kernel, *axpy_args())
