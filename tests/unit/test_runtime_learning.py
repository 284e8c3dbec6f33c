"""What fast paths learn from: arguments that were accepted, by what they say when it is learnt, and nothing else."""

from __future__ import annotations

import functools
import os
import re
import struct
import subprocess
import sys
import types
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from aotcuda.errors import ArgumentError
from aotcuda.runtime import fast as extension
from aotcuda.runtime.arguments import arrays, parameters
from aotcuda.runtime.fast import cupy_layout, learning, numba_layout, torch_layout
from aotcuda.runtime.general_path import GeneralPath
from support import argument_fuzz, libraries, loaded
from support.argument_fuzz import Made
from support.libraries import Array, Raises, State
from support.manifests import kernel

F4, F2 = State("<f4"), State("<f2")
DIRECT = ["cupy", "torch", "exchange", "numba", "interface"]


@pytest.fixture
def installed():
    """CuPy and PyTorch, as far as the run time asks them."""
    with contextmanager(libraries.installed)():
        yield libraries.CURRENT
    libraries.CURRENT.update(cupy=0, torch=0)


def array(library, *states):
    return libraries.make(Array(library, states))


@pytest.mark.usefixtures("path")
class TestAcceptedArguments:
    """Learning after a launch."""

    @pytest.mark.parametrize("library", ["cupy", "torch", "exchange"])
    def test_what_was_refused_is_refused_by_every_launcher_and_every_time(self, cuda, installed, library):
        """Launches on another stream than the library's made the next launcher learn from whatever it got."""
        k = cuda.package(kernel("k", "void(float32, float32[::1])")).k
        installed.update(cupy=77, torch=77)
        for grid in (1, 2):
            k[grid, 32](2.0, array(library, F4))
        installed.update(cupy=0, torch=0)
        for grid in (3, 3, 3, 4):
            with pytest.raises(ArgumentError, match=r"is float16\[::1\] where float32\[::1\] is packaged"):
                k[grid, 32](2.0, array(library, F2))
        assert [launch["grid"][0] for launch in cuda.launches()] == [1, 2]

    @pytest.mark.parametrize("library", DIRECT)
    @pytest.mark.parametrize("reading", range(1, 6))
    @pytest.mark.parametrize("other", [F2, State("<f4", (2, 2))])
    def test_an_array_that_is_another_one_when_it_is_learnt_teaches_nothing_wrong(
        self, cuda, installed, library, reading, other
    ):
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        for _ in range(3):
            states = [F4] * reading + [other] * 20
            with suppress(ArgumentError):
                k[1, 1](array(library, *states))
        before = len(cuda.launches())
        for _ in range(3):
            with pytest.raises(ArgumentError):
                k[1, 1](array(library, other))
        assert len(cuda.launches()) == before
        k[1, 1](array(library, F4))
        assert np.frombuffer(cuda.parameters(), "<i8").tolist() == [0, 0, 4, 4, 0x1000, 4, 4]


class TestWhatTheExtensionIsTaught:
    """It reads what it is taught from, and holds it against what the overloads take."""

    @pytest.fixture
    def teach(self, extension_module, installed, monkeypatch):
        monkeypatch.setattr(extension, "_found", [extension_module])

        def teach(parameter, arg, code=None):
            plan = extension_module.Plan(64, (parameter,))
            codes = bytes([learning._kind(arg) if code is None else code])
            rest = ([True], -1, 0, 0, 0, 0, (0,) * 6, 0, (1,) * 8, arrays.element)
            return extension_module.Records().learn((arg,), codes, ((plan, 1),), *rest)

        return teach

    LINE = ("a", "Q", 0, "C", 1, 4, 1, bytes([0, 0, 1, 2, 3, 16, 32]), "<f4")

    @pytest.mark.parametrize("library", DIRECT)
    def test_an_array_of_the_overloads_dtype_and_dimensions_is_learnt(self, teach, library):
        assert teach(self.LINE, array(library, F4)) is True

    @pytest.mark.parametrize("library", DIRECT)
    @pytest.mark.parametrize("state", [F2, State("<i4"), State("<f4", (2, 2)), State("<f4", ())], ids=str)
    def test_any_other_is_not(self, teach, library, state):
        assert teach(self.LINE, array(library, state)) is False

    @pytest.mark.parametrize(("form", "learnt"), [("i", False), ("?", False), ("f", True), ("d", True)])
    def test_a_float_is_learnt_for_floats_alone(self, teach, form, learnt):
        assert teach(("s", form, 0, "C", 0, 0, 0, b"", ""), 1.5) is learnt

    @pytest.mark.parametrize("parameter", [LINE, ("p", "Q", 0, "C", 0, 0, 0, b"", "")])
    def test_a_number_is_no_array_and_no_float_an_address(self, teach, parameter):
        assert teach(parameter, 1.5) is False

    def test_an_array_is_no_number(self, teach):
        assert teach(("s", "i", 0, "C", 0, 0, 0, b"", ""), array("interface", F4)) is False

    def test_words_of_dimensions_that_there_are_not_are_no_plan(self, extension_module):
        with pytest.raises(ValueError, match="only the general path"):
            extension_module.Plan(64, (("a", "Q", 0, "C", 1, 4, 1, bytes([17]), "<f4"),))


VALUES = [name for name in argument_fuzz.NUMBERS if not name.startswith("turns")]
PAIRS = [
    ("int32", "float64"),
    ("bool", "float32"),
    ("int8", "complex64"),
    ("float32", "complex128"),
    ("float32*", "float64"),
    ("uint64", "int64"),
]


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("types", PAIRS, ids="-".join)
def test_a_value_takes_the_same_overload_with_the_same_bytes_at_every_launch(cuda, types):
    """What a fast path cannot read it declines for all overloads: going on to the next one took another than before."""
    module = cuda.package(kernel("k", *[f"void({type_})" for type_ in types]))
    for name in VALUES:
        outcomes = set()
        for _ in range(4):
            before = len(cuda.launches())
            try:
                module.k[1, 1](argument_fuzz.make(Made(name)))
            except ArgumentError as error:
                outcomes.add(str(error))
            else:
                assert len(cuda.launches()) == before + 1
                outcomes.add((cuda.launches()[-1]["kernel"], cuda.launches()[-1]["parameters"]))
        assert len(outcomes) == 1, name


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("library", DIRECT)
@pytest.mark.parametrize("layout", [":,::1", ":,:"])
def test_an_array_that_no_memory_can_hold_is_refused_after_others_were_taken(cuda, installed, library, layout):
    k = cuda.package(kernel("k", f"void(float32[{layout}])")).k
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
def test_a_contiguous_view_that_is_negated_lazily_is_refused_after_others_were_taken(cuda, installed, library, shape):
    axes = ",".join([*[":"] * (len(shape) - 1), "::1"])
    k = cuda.package(kernel("k", f"void(float32[{axes}])")).k
    for _ in range(3):
        k[1, 1](array(library, State("<f4", shape)))
    with pytest.raises(ArgumentError, match="call resolve_conj"):
        k[1, 1](array(library, State("<f4", shape, odd=(("is_neg", True),))))
    assert len(cuda.launches()) == 3


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("library", ["cupy", "numba", "interface"])
def test_strides_between_elements_are_refused_where_a_kernel_counts_in_elements(cuda, installed, library):
    record = kernel("k", "void(float32[:,:])")
    record["overloads"][0]["parameters"][0]["words"] = ["data", "data", "zero", "shape0", "shape1", "step0", "step1"]
    record["overloads"][0]["parameter_bytes"] = 56
    k = cuda.package(record).k
    for _ in range(3):
        k[1, 1](array(library, State("<f4", (2, 2), (16, 4))))
        with pytest.raises(
            ArgumentError, match=r"has strides \(18, 4\) in bytes, and this kernel counts them in elements"
        ):
            k[1, 1](array(library, State("<f4", (2, 2), (18, 4))))
    bytes_ = cuda.package(kernel("k", "void(float32[:,:])"), name="mypkg.bytes").k
    for _ in range(3):
        bytes_[1, 1](array(library, State("<f4", (2, 2), (18, 4))))
    assert np.frombuffer(cuda.parameters(), "<i8").tolist()[5:] == [2, 2, 18, 4]


@pytest.mark.parametrize("function", ["cuCtxGetCurrent", "cuCtxGetDevice"])
def test_a_launch_does_not_fail_for_what_only_later_ones_would_have(cuda, path, monkeypatch, function):
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


def test_what_is_noted_of_overloads_may_change_while_it_is_looked_through(cuda, extension_module, monkeypatch):
    """Other threads note theirs, and drop those of images that went; a launch that was made must not fail for it."""
    monkeypatch.setattr(extension, "_found", [extension_module])
    k = cuda.package(kernel("k", "void(int32)")).k
    k[1, 1](7)
    [overload] = loaded.overloads(k)
    kept = extension.Records(extension_module)

    class Other:
        def __init__(self, live):
            self._live = live

        @property
        def live(self):
            kept.overloads[Other([True])] = None
            kept.overloads.pop(overload, None)
            return self._live

    kept.overloads = {Other([]): None, Other([True]): None}
    assert isinstance(learning._compiled(kept, overload), extension_module.Plan)
    assert not any(each._live == [] for each in kept.overloads if isinstance(each, Other))


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("library", ["cupy", "torch", "numba", "interface", "dlpack"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError, RecursionError])
def test_what_stops_a_program_passes(cuda, installed, library, error):
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    name = {"torch": "data_ptr", "cupy": "ptr", "dlpack": "device", "interface": "interface"}.get(library, "shape")
    for turn in range(3):
        states = [F4] * turn + [State("<f4", odd=((name, Raises(error)),))] * 9
        with pytest.raises(error):
            for _ in range(9):
                k[1, 1](made := array(library, *states))
                states = [states[-1]]
                del made


FAST_PATHS = ("dispatch", "packing", "arrays")


@pytest.fixture(scope="module")
def errors() -> list[str]:
    """The tests of the fast paths that fail where nothing is learnt."""
    tests = Path(__file__).parents[1]
    options = ("-q", "--tb=no", "-rE", "-p", "no:cacheprovider", "-p", "support.never_learns")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *(f"tests/unit/test_runtime_{name}.py" for name in FAST_PATHS)],
        cwd=tests.parent,
        env={**os.environ, "PYTHONPATH": str(tests)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    return re.findall(r"^ERROR tests/unit/test_runtime_(\w+)\.py::", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("module", FAST_PATHS)
def test_tests_of_the_fast_paths_fail_where_nothing_is_learnt(module, errors):
    """That they passed once said nothing of the fast paths: what these declined went the general way."""
    assert errors.count(module) > 30


NEGATIVE, CONJUGATE, KEYS, INFERENCE = 1 << 32, 1 << 31, 0x9400010001, 1 << 20
CLASS = 1
"""The first word of what a tensor is in C++: here of an object of Python's, where it is how many refer to that."""


def torch_in_memory(*, keys_agree=True):
    """PyTorch's tensors as they lie in memory, and what makes one of a state and what else it has there.

    A pointer in the object leads to the words of a tensor, and one of these to its storage.
    """

    class TensorBase:
        __slots__ = ("implementation", "kept", "others")

        def __init__(self, state=F4, *, class_=CLASS, keys=KEYS, dtype=6, flag=0):
            sizes, itemsize = state.shape, 4
            steps = libraries._strides(state)
            words = [
                *sizes[:5],
                *[9] * (5 - len(sizes)),
                *[step // itemsize for step in steps[:5]],
                *[9] * (5 - len(steps)),
            ]
            self.kept = struct.pack("QQ7xB", 5, state.address - 3 * itemsize, flag)  # bytes: an object with these in it
            self.implementation = struct.pack("Qqq10qHQ", id(self.kept) + 32, 3, len(sizes), *words, dtype, keys)
            self.others = [self.implementation] * (class_ - CLASS)

        keys = property(lambda self: struct.unpack_from("Q", self.implementation, len(self.implementation) - 8)[0])
        _cdata = property(lambda self: id(self.implementation))

        def is_neg(self):
            return bool(self.keys & NEGATIVE)

        def is_conj(self):
            return bool(self.keys & CONJUGATE)

        def conj(self):
            return TensorBase(keys=self.keys ^ CONJUGATE)

        imag = property(lambda self: TensorBase(keys=self.keys & ~CONJUGATE | NEGATIVE))

    def told(number):
        return types.SimpleNamespace(raw_repr=lambda: number)

    torch = sys.modules["torch"]
    torch.complex64 = "complex64"
    torch.empty = lambda _size, dtype="", **_device: TensorBase(keys=KEYS + bool(dtype))
    torch._neg_view = lambda tensor: TensorBase(keys=tensor.keys | NEGATIVE)
    torch._C.TensorBase = TensorBase
    torch._C._dispatch_keys = lambda tensor: told(tensor.keys if keys_agree else tensor.keys + 1)
    torch._C.DispatchKey = types.SimpleNamespace(Negative=NEGATIVE, Conjugate=CONJUGATE)
    torch._C.DispatchKeySet = told
    fake = vars(libraries.ExchangeTensor)
    own = {name: value for name, value in fake.items() if name not in ("__dict__", "__weakref__", "is_neg", "is_conj")}
    tensor = type("Tensor", (TensorBase,), own)
    tensor.__module__ = "torch"
    tensor.is_neg, tensor.is_conj = TensorBase.is_neg, TensorBase.is_conj

    def make(state=F4, told=None, **memory):
        made = tensor(libraries._Told((told or state,)))
        TensorBase.__init__(made, state, **memory)
        return made

    return make


@pytest.fixture(name="tensors_in_memory", scope="module")
def _tensors_in_memory(extension_module):
    """What makes them, where the extension has been told their places; it keeps the first ones that it is told."""
    with contextmanager(libraries.installed)():
        make = torch_in_memory()
        bits = torch_layout.find_bits()
    assert bits[3] == NEGATIVE | CONJUGATE
    extension_module.set_torch_bits(*bits)
    numbers = bytearray(2 * torch_layout.MOST_DTYPES)
    numbers[12:14] = 2, 32
    at = [32 + 8 * word for word in range(14)]
    places = (at[0], 8, 23, at[1], at[2], at[8], at[13])
    with pytest.raises(ValueError, match="another number"):
        extension_module.set_torch_layout(*places, b"", CLASS, KEYS, INFERENCE)
    extension_module.set_torch_layout(*places, bytes(numbers), CLASS, KEYS, INFERENCE)
    return make


def in_rows(shape, strides=None, **state):
    return State("<f4", shape, strides, 0x2000, **state)


@pytest.mark.parametrize(
    ("state", "memory"),
    [
        (in_rows((4,)), {}),
        (in_rows((4,)), {"keys": KEYS ^ INFERENCE}),
        (in_rows((1,), (400,)), {}),
        (in_rows((3, 5)), {}),
        (in_rows((3, 5), (4, 12)), {}),
        (in_rows((3, 5), (80, 8)), {}),
        (in_rows((3, 5), (0, 4)), {}),
        (in_rows(()), {}),
        (in_rows((1, 2, 1, 2, 3)), {}),
    ],
)
def test_tensors_are_read_from_memory_as_by_the_exchange(
    cuda, installed, extension_module, monkeypatch, tensors_in_memory, state, memory
):
    monkeypatch.setattr(extension, "_found", [extension_module])
    k = cuda.package(
        kernel("k", f"void(float32[{','.join(':' * len(state.shape))}])" if state.shape else "void(float32[::1])")
    ).k
    make = tensors_in_memory
    taken = state if state.shape else in_rows((4,))
    for _ in range(2):
        k[1, 1](make(taken))
    libraries.EXCHANGED[0] = 0
    other = State("<f4", (7,) * len(state.shape), address=0x9000)  # what the exchange would say
    if not state.shape:
        with pytest.raises(ArgumentError):
            k[1, 1](make(state))
        return
    k[1, 1](make(state, other, **memory))
    assert libraries.EXCHANGED[0] == 0
    found = cuda.parameters()
    k[1, 1](make(state, class_=5))
    assert libraries.EXCHANGED[0] == 1
    assert cuda.parameters() == found


@pytest.mark.parametrize(
    ("state", "memory"),
    [
        (F4, {"class_": CLASS + 1}),
        (F4, {"keys": KEYS | 2}),
        (F4, {"keys": KEYS & ~1}),
        (F4, {"dtype": 7}),
        (F4, {"dtype": 1000}),
        (F4, {"flag": 1}),
    ],
)
def test_what_has_it_otherwise_in_memory_is_asked(
    cuda, installed, extension_module, monkeypatch, tensors_in_memory, state, memory
):
    monkeypatch.setattr(extension, "_found", [extension_module])
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for _ in range(2):
        k[1, 1](tensors_in_memory())
    libraries.EXCHANGED[0] = 0
    k[1, 1](tensors_in_memory(in_rows((4,)), state, **memory))
    assert libraries.EXCHANGED[0] == 1
    assert np.frombuffer(cuda.parameters(), "<i8")[4] == state.address


def test_more_sizes_than_lie_in_a_tensor_are_asked(cuda, installed, extension_module, monkeypatch, tensors_in_memory):
    monkeypatch.setattr(extension, "_found", [extension_module])
    k = cuda.package(kernel("k", "void(float32[:,:,:,:,:,:])")).k
    state, other = in_rows((2, 3, 1, 2, 3, 4)), in_rows((7, 7, 7, 7, 7, 7))
    for _ in range(2):
        k[1, 1](tensors_in_memory(state))
    found = cuda.parameters()
    libraries.EXCHANGED[0] = 0
    k[1, 1](tensors_in_memory(other, state))
    assert libraries.EXCHANGED[0] == 1
    assert cuda.parameters() == found


def test_a_tensor_of_no_elements_has_no_address_as_pytorch_tells(
    cuda, installed, extension_module, monkeypatch, tensors_in_memory
):
    monkeypatch.setattr(extension, "_found", [extension_module])
    k = cuda.package(kernel("k", "void(float32[:,:])")).k
    for state in (in_rows((2, 3)), in_rows((2, 3)), in_rows((3, 0))):
        k[1, 1](tensors_in_memory(state))
    assert np.frombuffer(cuda.parameters(), "<i8")[4] == 0


def test_lazy_negatives_are_told_by_the_word_that_says_so(
    cuda, installed, extension_module, monkeypatch, tensors_in_memory
):
    monkeypatch.setattr(extension, "_found", [extension_module])
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    asked = []
    tensors = [tensors_in_memory(class_=5) for _ in range(3)]  # by the exchange
    monkeypatch.setattr(type(tensors[0]), "is_neg", lambda self: asked.append(self) or bool(self.keys & NEGATIVE))
    for tensor in tensors:
        k[1, 1](tensor)
    assert tensors[2] not in asked
    for memory in ({}, {"class_": 5}):
        with pytest.raises(ArgumentError, match="call resolve_conj"):
            k[1, 1](tensors_in_memory(keys=KEYS | NEGATIVE, **memory))
    assert len(cuda.launches()) == 3


@pytest.mark.parametrize("library", ["exchange", "cupy", "members"])
def test_where_arrays_have_their_members_is_asked_after_many_launches(
    cuda, installed, extension_module, monkeypatch, library
):
    monkeypatch.setattr(extension, "_found", [extension_module])
    asked = []
    monkeypatch.setattr(cupy_layout, "tell", lambda _module, array: asked.append(array) or len(asked) > 1)
    for layout in (torch_layout, numba_layout):
        monkeypatch.setattr(layout, "tell", lambda _module, array: asked.append(array) or True)
    kind = type(array("members", F4))  # one whose places the extension may have been told
    monkeypatch.setitem(libraries._CLASSES, "members", type(kind.__name__, (kind,), {"__module__": kind.__module__}))
    k = cuda.package(kernel("k", "void(float32[::1],float32[::1])")).k
    counts = []
    for _ in range(100):
        k[1, 1](*[array(library, F4) for _ in range(2)])
        counts.append(len(asked))
    assert counts[:30] == [0] * 30
    assert counts[-1] == {"exchange": 1, "cupy": 2, "members": 1}[library]


def test_nothing_is_found_with_a_tensor_that_a_launch_refuses(cuda, installed, extension_module, monkeypatch):
    """Tensors like it, which lie in the host's memory, would be launched with from then on."""
    monkeypatch.setattr(extension, "_found", [extension_module])
    monkeypatch.setattr(torch_layout, "_asked", [])
    asked = []
    monkeypatch.setattr(torch_layout, "find_bits", lambda: asked.append(True))
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    k[1, 1](array("exchange", F4))
    for _ in range(100):
        with pytest.raises(ArgumentError):
            k[1, 1](array("exchange", F4._replace(odd=(("is_cuda", False),))))
    assert asked == []
    for _ in range(100):
        k[1, 1](array("exchange", F4))
    assert asked == [True]


@pytest.mark.usefixtures("installed")
def test_nothing_is_said_of_the_memory_of_another_pytorch():
    torch_in_memory(keys_agree=False)
    assert torch_layout.find_bits() is None
    torch_in_memory()
    bits = torch_layout.find_bits()
    assert torch_layout.find(bits, sys.modules["torch"].empty(1)) is None  # which has no inference mode
    del sys.modules["torch"]._C.TensorBase
    assert torch_layout.find_bits() is None


class MemoryPointer(bytes):
    """CuPy's pointer: its address is a member in C, here in the bytes that the object itself has."""

    def __new__(cls, address):
        return super().__new__(cls, struct.pack("QQ", 3, address))

    ptr = property(lambda self: struct.unpack("QQ", self)[1])
    device_id = 0

    def __add__(self, offset):
        assert self.ptr
        return type(self)(self.ptr + offset)


@functools.cache  # the extension keeps the first layout that it is told
def cupy_in_memory(*, shape_is_there=True):
    """The class of CuPy's arrays as they lie in memory, and a list that gets each attribute that is asked."""
    asked = []

    def told(name):
        return property(lambda self: asked.append(name) or self.kept[name])

    class _ndarray_base(bytes):  # noqa: N801 (CuPy's name)
        def __new__(cls, shape, dtype, memptr, strides=None, order="C"):
            like = (
                np.zeros(shape, dtype, order)
                if strides is None
                else np.lib.stride_tricks.as_strided(np.zeros(1, dtype), shape, strides)
            )
            numbers = [struct.pack(f"{like.ndim}q", *told) for told in (like.shape, like.strides)]
            ends = [at for text in numbers for at in (id(text) + 32, id(text) + 32 + len(text), 0)]
            if not shape_is_there:
                ends[1] += 8
            self = super().__new__(cls, struct.pack("10Q", 5, *ends, id(memptr), id(like.dtype), 7))
            self.kept = {"shape": like.shape, "strides": like.strides, "dtype": like.dtype, "data": memptr}
            self.kept |= {"ndim": like.ndim, "_c_contiguous": like.flags.c_contiguous, "numbers": numbers}
            self.kept["_f_contiguous"] = like.flags.f_contiguous
            return self

        def __len__(self):
            return self.shape[0]

    for name in (*cupy_layout.READ, "_f_contiguous"):
        setattr(_ndarray_base, name, told(name))

    class ndarray(_ndarray_base):  # noqa: N801 (likewise)
        pass

    ndarray.__module__ = "cupy"
    return ndarray, asked


@pytest.fixture
def in_memory(installed, extension_module, monkeypatch):
    monkeypatch.setattr(extension, "_found", [extension_module])
    monkeypatch.setattr(cupy_layout, "_asked", [True])
    kind, asked = cupy_in_memory()
    extension_module.set_cupy_layout(*cupy_layout.find(kind((4,), "<f4", MemoryPointer(0x1000))))
    return kind, asked


@pytest.mark.parametrize(("shape", "strides"), libraries.LAYOUTS)
@pytest.mark.parametrize("layout", ["C", "F", "A"])
def test_arrays_of_cupys_are_read_from_memory_as_by_their_attributes(cuda, in_memory, general, shape, strides, layout):
    kind, asked = in_memory
    axes = {"C": "::1", "F": "::1", "A": ":"}[layout]
    text = ",".join([":"] * (len(shape) - 1) + [axes] if layout != "F" else [axes] + [":"] * (len(shape) - 1))
    k = cuda.package(kernel("k", f"void(float32[{text}])" if shape else "void(float32*)", "void(int32[::1])")).k
    first, second = (kind(shape, "<f4", MemoryPointer(0x1000 * at), strides) for at in (1, 2))
    try:
        k[1, 1](first)
    except ArgumentError:  # by the general path, which asks the attributes; memory must say the same
        taken = (shape, "<f4") if shape else ((4,), "<i4")  # a parameter that is one number takes no array
        for _ in range(2):
            general.clear()
            k[1, 1](kind(*taken, MemoryPointer(0x3000), order=layout if layout == "F" else "C"))
        assert not general
        with pytest.raises(ArgumentError):
            k[1, 1](second)
        return
    wanted = np.frombuffer(cuda.parameters(), "<i8").copy()
    asked.clear()
    general.clear()
    k[1, 1](second)
    assert not general
    assert not asked
    wanted[wanted == 0x1000] = 0x2000
    assert np.frombuffer(cuda.parameters(), "<i8").tolist() == wanted.tolist()


def test_what_is_another_array_in_memory_is_another_one(cuda, in_memory, general):
    kind, asked = in_memory
    k = cuda.package(kernel("k", "void(float32[::1])", "void(float32[:,::1])")).k
    for shape, dtype in [((4,), "<f4"), ((2, 2), "<f4")] * 3:
        k[1, 1](kind(shape, dtype, MemoryPointer(0x1000)))
    assert len(general) == 2
    for shape, dtype, strides in [((4,), "<i4", None), ((4,), "<f4", (8,)), ((), "<f4", None), ((1,) * 9, "<f4", None)]:
        with pytest.raises(ArgumentError):
            k[1, 1](kind(shape, dtype, MemoryPointer(0x1000), strides))

    class Pointer(MemoryPointer):
        ptr = property(lambda self: 0x5000)

    k[1, 1](kind((4,), "<f4", Pointer(0x1000)))  # which only its attribute knows
    assert np.frombuffer(cuda.parameters(), "<i8")[4] == 0x5000

    class Longer(kind):
        shape = property(lambda self: (2,))

    for _ in range(2):
        asked.clear()
        k[1, 1](Longer((4,), "<f4", MemoryPointer(0x1000)))
        assert np.frombuffer(cuda.parameters(), "<i8")[5] == 2


@pytest.mark.usefixtures("installed")
def test_nothing_is_said_of_the_memory_of_another_cupys_arrays():
    kind, _ = cupy_in_memory(shape_is_there=False)
    assert cupy_layout.find(kind((4,), "<f4", MemoryPointer(0x1000))) is None
    assert cupy_layout.find(array("cupy", F4)) is None
    assert cupy_layout.find(np.zeros(4)) is None


@pytest.mark.usefixtures("installed")
def test_the_memory_of_cupys_arrays_is_looked_at_when_one_has_any(monkeypatch):
    monkeypatch.setattr(cupy_layout, "_asked", [])
    kind, _ = cupy_in_memory()
    told = []
    module = types.SimpleNamespace(set_cupy_layout=lambda *layout: told.append(layout))
    for shape, address in [((0,), 0), ((4,), 0x1000), ((4,), 0x1000)]:
        cupy_layout.tell(module, kind(shape, "<f4", MemoryPointer(address)))
    assert [layout[0] for layout in told] == [kind.__mro__[1]]


def test_a_subclass_that_makes_others_of_what_is_read_is_asked():
    assert {*cupy_layout.READ} < {*learning._READ_BY_LAYOUT}


def test_words_of_what_is_no_array_are_refused(extension_module):
    constant = ("k", "q", 0, "C", 0, 0, 0, b"\3" * 40, "", b"", 1, *parameters.NO_BOUNDS, "text")
    with pytest.raises(ValueError, match="only the general path takes"):
        extension_module.Plan(64, (constant,), b"", b"")


class ndarray(np.ndarray):  # noqa: N801 (CuPy's name)
    """An array like CuPy's in that its class has attributes in C: those of NumPy's."""

    _c_contiguous = property(lambda self: self.flags.c_contiguous)
    _f_contiguous = property(lambda self: self.flags.f_contiguous)
    data = property(lambda self: types.SimpleNamespace(ptr=self.ctypes.data, device_id=0))


ndarray.__module__ = "cupy"


class Lying(ndarray):
    def __getattribute__(self, name):
        return np.dtype("<f8") if name == "dtype" else super().__getattribute__(name)


@pytest.mark.usefixtures("path", "installed")
def test_attributes_that_a_class_has_in_c_are_asked_of_each_array(cuda, general):
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


@pytest.mark.usefixtures("path", "installed")
@pytest.mark.parametrize("library", ["cupy", "numba"])
@pytest.mark.parametrize("odd", [None, "float64", float, "<f8"])
def test_what_numpy_would_make_a_dtype_of_is_none(cuda, library, odd):
    """To NumPy `numpy.dtype("float64") == None` is true, as it is for whatever `numpy.dtype` takes."""
    k = cuda.package(kernel("k", "void(float64[::1])")).k
    for _ in range(3):
        k[1, 1](array(library, State("<f8")))
    for _ in range(2):
        with suppress(ArgumentError):  # a string that is a type string may be taken as one, by every path
            k[1, 1](array(library, State("<f8", odd=(("dtype", odd),))))
    taken = len(cuda.launches()) - 3
    with suppress(ArgumentError):
        cuda.package(kernel("k", "void(float64[::1])"), name="first.kernels").k[1, 1](
            array(library, State("<f8", odd=(("dtype", odd),)))
        )
    assert taken == 2 * (len(cuda.launches()) - 3 - taken)
