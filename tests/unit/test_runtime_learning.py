"""Test that the fast path learns from accepted arguments alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from aotcuda.errors import ArgumentError
from aotcuda.runtime import fast as extension
from aotcuda.runtime.arguments import arrays, parameter_kinds
from aotcuda.runtime.fast import specializations
from aotcuda.runtime.general_path import GeneralPath
from support import argument_fuzz, libraries
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
            plan = extension_module.ArgumentLayout(64, (parameter,))
            codes = bytes([specializations._kind(arg) if code is None else code])
            rest = ([True], 0, -1, False, (1,) * 8, arrays.element)
            return extension_module.Specializations().add((arg,), codes, ((plan, 1),), (), *rest)

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
            extension_module.ArgumentLayout(64, (("a", "Q", 0, "C", 1, 4, 1, bytes([17]), "<f4"),))


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
    """The fast path declines an argument that it cannot read, and does not try the next overload."""
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
def test_lazy_conjugates_are_refused_after_others_were_launched(cuda, installed, library, shape):
    axes = ",".join([*[":"] * (len(shape) - 1), "::1"])
    k = cuda.package(kernel("k", f"void(complex64[{axes}])")).k
    for _ in range(3):
        k[1, 1](array(library, State("<c8", shape)))
    with pytest.raises(ArgumentError, match="call resolve_conj"):
        k[1, 1](array(library, State("<c8", shape, odd=(("is_conj", True),))))
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
    """Return the tests of the fast paths that fail where nothing is learnt."""
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


@pytest.mark.matrix  # it tests tests
@pytest.mark.parametrize("module", FAST_PATHS)
def test_tests_of_the_fast_path_fail_where_nothing_is_learnt(module, errors):
    """Without this, a test would pass where the fast path declines everything."""
    assert errors.count(module) > 15


def test_words_of_what_is_no_array_are_refused(extension_module):
    constant = ("k", "q", 0, "C", 0, 0, 0, b"\3" * 40, "", b"", 1, *parameter_kinds.NO_BOUNDS, "text")
    with pytest.raises(ValueError, match="only the general path takes"):
        extension_module.ArgumentLayout(64, (constant,), b"", b"")


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


class Own(int):
    """An int that says other numbers than it holds."""

    def __index__(self):
        return 5

    def __int__(self):
        return 6


@pytest.fixture(params=["general", "extension"])
def either_path(request, monkeypatch):
    """Launches go by the general path alone, or by C where that takes them."""
    module = request.getfixturevalue("extension_module") if request.param == "extension" else None
    monkeypatch.setattr(extension, "_found", [module])
    if module is None:
        monkeypatch.setattr(GeneralPath, "settle", lambda *_args: None, raising=False)


def elements():
    """Return a kernel that takes of an array its address alone."""
    record = kernel("k", "void(int64)")
    record["overloads"][0]["parameters"][0] |= {"type": "*fp32", "kind": "elements", "dtype": "<f4"}
    return record


NO_MEMORY = [
    State("<f4", address=0),
    State("<f4", (2, 3), address=0),
    State("<f4", (2, 3), (40, 8), address=0),
    State("<f4", (1,), (400,), address=0),
    State("<f4", (1, 1), address=0),
    State("<f4", (), address=0),
]


@pytest.mark.usefixtures("either_path", "installed")
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


@pytest.mark.usefixtures("either_path", "installed")
@pytest.mark.parametrize("library", ["torch", "exchange"])
def test_tensors_that_begin_within_no_memory_are_refused(cuda, library):
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for _ in range(3):
        k[1, 1](array(library, F4))
    with pytest.raises(ArgumentError, match=r"has shape \(4,\) and no memory: its address is 0"):
        k[1, 1](array(library, State("<f4", address=12, odd=(("storage_offset", 3),))))
    k[1, 1](array(library, State("<f4", address=12, odd=(("storage_offset", 2),))))
    assert len(cuda.launches()) == 4


ODD_INTS = [
    ("shape", (Own(3),), (3,)),
    ("shape", (True,), (1,)),
    ("shape", (np.int64(3),), (3,)),
    ("shape", (Own(3), Own(2)), (3, 2)),
    ("strides", (Own(8),), (8,)),
    ("strides", (np.int32(8),), (8,)),
    ("strides", (True,), (1,)),
    ("stride", (Own(2),), (2,)),
    ("data", (Own(4096), False), (4096, False)),
    ("ptr", Own(4096), 4096),
    ("device_pointer", Own(4096), 4096),
    ("stream", Own(77), 77),
    ("stream", np.int64(77), 77),
]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("library", "name", "value", "held"),
    [
        (library, *odd)
        for library in ("cupy", "torch", "numba", "members", "interface", "instance")
        for odd in ODD_INTS
        if odd[0] in argument_fuzz._odd(library)
    ],
)
def test_ints_of_a_subclass_are_the_number_that_they_hold_on_every_path(
    cuda, extension_module, monkeypatch, library, name, value, held
):
    def outcome(module, odd, package):
        monkeypatch.setattr(extension, "_found", [module])
        monkeypatch.setattr(GeneralPath, "settle", settle if module else lambda *_args: None, raising=False)
        k = cuda.package(kernel("k", "void(float32[:])", "void(float32[:,:])"), name=package).k
        found = []
        for _ in range(4):
            waits = len(cuda.calls("cuStreamWaitEvent"))
            shape = held if name == "shape" else (4,)
            strides = (16,) if name in ("strides", "stride") else None
            try:
                k[1, 1](array(library, State("<f4", shape, strides, odd=((name, odd),))))
            except ArgumentError as error:
                found.append(str(error))
            else:
                found.append((cuda.parameters(), len(cuda.calls("cuStreamWaitEvent")) - waits))
        return found

    settle = GeneralPath.settle
    packages = iter(f"p{number}.kernels" for number in range(4))
    expected = outcome(None, held, next(packages))
    assert outcome(None, value, next(packages)) == expected
    assert outcome(extension_module, value, next(packages)) == expected
