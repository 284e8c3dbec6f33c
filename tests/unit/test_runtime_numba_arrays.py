"""Numba's own arrays, which are read without their interface: the same answers, and the right ones for strides."""

from __future__ import annotations

import ctypes
import importlib
import struct
import sys
import types
import warnings
import weakref

import numpy as np
import pytest

from aotcuda import ArgumentError
from aotcuda.runtime import fast as extension
from aotcuda.runtime.arguments import arrays
from aotcuda.runtime.fast import numba_layout
from support import libraries
from support.manifests import kernel

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from numba.cuda.cudadrv import devicearray

F4 = np.dtype("float32")


class Context:
    """What Numba's memory refers to; nothing is asked of it."""


class Stream:
    """A stream of Numba's, as its arrays keep it."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __int__(self) -> int:
        return self.handle


@pytest.fixture(params=["owned", "part", "plain"])
def memory(request):
    """Whose the arrays' memory is: allocated by Numba, a part of such, or not Numba's."""
    return request.param


@pytest.fixture
def make(cuda, path, memory):
    """Makes an array of Numba's in the stand-in's memory."""
    return maker(cuda, memory, devicearray.DeviceNDArray)


def maker(cuda, memory, kind):
    context, driver = Context(), sys.modules[f"{kind.__module__.rpartition('.')[0]}.driver"]
    kept = []

    def make(shape=(8,), strides=None, dtype=F4, device=0, stream=0):
        strides = np.empty(shape, dtype).strides if strides is None else strides
        pointer = driver.binding.CUdeviceptr(cuda.allocate(4096, device))
        plain = driver.MemoryPointer(context=context, pointer=pointer, size=4096)
        owner = driver.AutoFreePointer(context, pointer, 4096)
        kept.append(owner)
        of = {
            "plain": lambda: plain,
            "owned": owner.own,
            "part": lambda: driver.OwnedPointer(weakref.proxy(owner), plain),
        }
        extents = tuple([extent or 1 for extent in shape])  # for one without elements Numba would ask the driver
        array = kind(extents, strides, dtype, stream=stream, gpu_data=of[memory]())
        array.shape = shape
        return array

    make.kept = kept
    return make


def address(array):
    return array.__cuda_array_interface__["data"][0]


def test_the_family_is_of_numbas_class_alone(make):
    class Other(devicearray.DeviceNDArray):
        pass

    array = make()
    assert arrays.family(array) == "numba"
    array.__class__ = Other
    assert arrays.family(array) == "interface"


@pytest.mark.parametrize(("shape", "dtype"), [((), "int64"), ((5,), "float32"), ((3, 4), "complex64")])
def test_the_view_is_that_of_the_interface(make, shape, dtype):
    array = make(shape, dtype=np.dtype(dtype))
    found, expected = arrays.reader(array)(array, [], 0), arrays._read_interface(array, [], 0)
    assert found[:3] == expected[:3]
    assert found[3] is None


@pytest.mark.parametrize("layout", ["float32[::1]", "float32[:]"])
def test_each_launch_packs_its_own_arguments(cuda, make, general, layout):
    k = cuda.package(kernel("k", f"void({layout})")).k
    for length in (8, 5, 7, 1):
        array = make((length,))
        k[1, 1](array)
        words = struct.unpack("<7q", cuda.parameters())
        assert words[2:] == (length, 4, address(array), length, 4)
    assert len(general) == 1


@pytest.mark.parametrize("memory", ["owned", "part"])
def test_an_owner_of_memory_is_not_asked_what_it_would_pass_on(cuda, make, monkeypatch):
    made = [make() for _ in range(3)]
    monkeypatch.delattr(sys.modules["numba.cuda.cudadrv.driver"].OwnedPointer, "__getattr__")
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for array in made:
        k[1, 1](array)
        assert struct.unpack("<7q", cuda.parameters())[4] == address(array)


def test_two_dimensions_in_every_layout(cuda, make, general):
    k = cuda.package(kernel("k", "void(float32[:,::1])", "void(float32[::1,:])", "void(float32[:,:])")).k
    for _ in range(3):
        for strides in ((16, 4), (4, 12), (32, 8)):
            k[1, 1](make((3, 4), strides))
            assert struct.unpack("<9q", cuda.parameters())[-2:] == strides
    assert len(general) <= 3


def test_broadcast_dimensions_are_not_contiguous(cuda, make):
    k = cuda.package(kernel("k", "void(float32[::1])", "void(float32[:,::1])")).k
    for _ in range(2):
        k[1, 1](make((8,)))
        for shape, strides in (((8,), (0,)), ((3, 8), (0, 4))):
            with pytest.raises(ArgumentError, match=r"contiguous|float32\[:,:\]"):
                k[1, 1](make(shape, strides))


@pytest.mark.parametrize(("bound", "launched", "waits"), [(0, 0, 0), (0, 7, 0), (7, 7, 0), (7, 0, 2), (9, 7, 2)])
def test_a_launch_and_the_stream_that_the_array_is_bound_to_wait_for_each_other(cuda, make, bound, launched, waits):
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for count in (1, 2, 3):
        k[1, 1, launched](make(stream=Stream(bound) if bound else 0))
        assert len(cuda.calls("cuStreamWaitEvent")) == waits * count


def test_other_dtypes_and_dimensions_are_refused_after_right_ones(cuda, make):
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    for _ in range(3):
        k[1, 1](make())
    for wrong in (make(dtype=np.dtype("float64")), make((2, 4)), make(strides=(8,))):
        with pytest.raises(ArgumentError):
            k[1, 1](wrong)
    assert len(cuda.launches()) == 3


def test_an_array_on_another_gpu_is_refused(cuda, make):
    from aotcuda.runtime import driver

    cuda.set(devices="9.0,9.0")
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    driver.get().make_current(0)
    for _ in range(3):
        k[1, 1](make())
    with pytest.raises(ArgumentError, match=r"launched on GPU 0 .* lies on GPU 1"):
        k[1, 1](make(device=1))


NUMBAS = ["numba.cuda.cudadrv", "numba_cuda_mlir.numba_cuda.cudadrv"]


def in_rows(module):
    """A class of Numba's arrays of which nothing is known yet, and where its objects have their attributes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = pytest.importorskip(f"{module}.devicearray")
        importlib.import_module(f"{module}.driver")
    kind = type("DeviceNDArray", (found.DeviceNDArray,), {"__module__": found.__name__})
    if sys.version_info[:2] not in numba_layout._FORMS:
        pytest.skip("where objects of this Python have their attributes is not known")
    return kind, numba_layout.find(kind)


@pytest.fixture(params=NUMBAS)
def rows(request, extension_module, monkeypatch):
    """The same, for launches by the extension, which is told."""
    monkeypatch.setattr(extension, "_found", [extension_module])
    kind, found = in_rows(request.param)
    extension_module.add_numba_layout(*found)
    return kind, found


def outcomes(cuda, k, *made):
    """For each array the bytes that a launch hands over, and how often it waits; or the first line of its error."""
    found = []
    for array in made:
        waits = len(cuda.calls("cuStreamWaitEvent"))
        try:
            k[1, 1](array)
        except ArgumentError as error:
            found.append(str(error).splitlines()[0].partition(": ")[2])
        else:
            found.append((cuda.parameters(), len(cuda.calls("cuStreamWaitEvent")) - waits))
    return found


def by_attributes(cuda, *made, signatures=("void(float32[::1])", "void(float32[:])", "void(float32[:,:])")):
    """The same by kernels that have learnt nothing."""
    packaged = (cuda.package(kernel("k", *signatures), name=f"new{at}.kernels").k for at in range(len(made)))
    return [outcomes(cuda, k, array)[0] for k, array in zip(packaged, made, strict=True)]


def note(monkeypatch, extension_module, found):
    """Gives a list of the attributes that are asked for from now on, and says that the classes are as they were."""
    asked = []
    form, number, keys, row, array, owner, *memories, proxy, referent, pointer, address = found

    def noted(name):
        return property(lambda thing: asked.append(name) or thing.__dict__[name])

    for kind, names in ((array[0], numba_layout._ARRAY), (owner[0], ["_view"]), (memories[1][0], ["device_pointer"])):
        for name in names:
            monkeypatch.setattr(kind, name, noted(name), raising=False)
    same = [(one[0], numba_layout._number_of(one[0], number), *one[2:]) for one in (array, owner, *memories)]
    extension_module.add_numba_layout(form, number, keys, row, *same, proxy, referent, pointer, address)
    return asked


def launched_by_numba(array):
    """An array that Numba has launched a kernel with: it keeps its type in its dictionary."""
    assert array._numba_type_
    assert "_numba_type_" in vars(array)


@pytest.mark.parametrize("before", [lambda array: None, vars, launched_by_numba], ids=["new", "asked", "launched"])
@pytest.mark.parametrize(("shape", "strides"), libraries.LAYOUTS)
@pytest.mark.parametrize("text", ["float32[::1]", "float32[:,::1]", "float32[::1,:]", "float32[:]", "float32[:,:]"])
def test_arrays_are_read_from_their_rows_as_by_their_attributes(
    cuda, rows, general, monkeypatch, extension_module, shape, strides, text, before
):
    kind, found = rows
    make, signatures = maker(cuda, "owned", kind), (f"void({text})", "void(int32[:,:,::1])")
    plain = (4,) if text.count(":,") + text.count(",:") == 0 else (3, 5)
    order = np.empty(plain, F4, order="F" if text.endswith("1,:]") else "C").strides
    arrays_made = [make(plain, order), make(plain, order), make(shape, strides), make(plain, order)]
    for array in arrays_made:
        before(array)
    expected = by_attributes(cuda, *arrays_made, signatures=signatures)
    asked = note(monkeypatch, extension_module, found)
    k = cuda.package(kernel("k", *signatures)).k
    assert outcomes(cuda, k, arrays_made[0]) == expected[:1]
    general.clear()
    asked.clear()
    assert outcomes(cuda, k, arrays_made[1]) == expected[1:2]
    assert not general
    assert not asked
    assert outcomes(cuda, k, *arrays_made[2:]) == expected[2:]


def changed(array, name, value):
    """An array of which one attribute is another one."""
    setattr(array, name, value)
    return array


def without(array, name):
    delattr(array, name)
    return array


def asked_for_all(array):
    """An array whose attributes are in a dictionary, since somebody has asked for that."""
    vars(array)["shape"] = (3,)
    return array


def with_a_dictionary(array):
    array.__dict__ = {**vars(array), "shape": (3,)}
    return array


class Otherwise:
    """Has an array's attributes in another order."""


def with_the_dictionary_of_another(array):
    """Of another class, in whose row the strides are where the shape was."""
    dtype, shape, strides, *others = numba_layout._ARRAY
    other = Otherwise()
    for name in dict.fromkeys([dtype, strides, shape, *others, *vars(array)]):
        setattr(other, name, vars(array)[name])
    other.shape = (3,)
    array.__dict__ = vars(other)
    return array


def with_the_dictionary_of_one_of_its_class(array):
    other = object.__new__(type(array))
    for name, value in vars(array).items():
        setattr(other, name, value)
    other.shape = (3,)
    array.__dict__ = vars(other)
    return array


def with_more_attributes_than_a_row_has_room_for(array):
    vars(array).update({f"more{number}": number for number in range(40)}, shape=(3,))
    return array


def with_an_emptied_dictionary(array):
    vars(array).clear()
    return array


def with_memory(array, change):
    """An array whose memory is another one, or has another address."""
    change(array.gpu_data)
    return array


class Line(tuple):
    """A shape of a class of its own."""

    __slots__ = ()


CHANGES = {
    "dtype": lambda array: changed(array, "dtype", np.dtype("float64")),
    "equal dtype": lambda array: changed(array, "dtype", np.dtype([("x", "f4")])["x"]),
    "no dtype": lambda array: changed(array, "dtype", None),
    "shape": lambda array: changed(array, "shape", (3,)),
    "list": lambda array: changed(array, "shape", [3]),
    "shape of a class": lambda array: changed(array, "shape", Line((3,))),
    "numpy's number": lambda array: changed(array, "shape", (np.int64(3),)),
    "bool": lambda array: changed(array, "shape", (True,)),
    "text": lambda array: changed(array, "shape", ("3",)),
    "large": lambda array: changed(array, "shape", (2**64,)),
    "negative": lambda array: changed(array, "shape", (-1,)),
    "dimensions": lambda array: changed(changed(array, "shape", (2, 2)), "strides", (8, 4)),
    "too many": lambda array: changed(changed(array, "shape", (1,) * 9), "strides", (4,) * 9),
    "strides": lambda array: changed(array, "strides", (8,)),
    "other strides": lambda array: changed(array, "strides", (8, 4)),
    "stream": lambda array: changed(array, "stream", 77),
    "bound": lambda array: changed(array, "stream", Stream(77)),
    "bound to none": lambda array: changed(array, "stream", Stream(0)),
    "false": lambda array: changed(array, "stream", False),
    "no stream": lambda array: changed(array, "stream", None),
    "shape is gone": lambda array: without(array, "shape"),
    "stream is gone": lambda array: without(array, "stream"),
    "memory is gone": lambda array: without(array, "gpu_data"),
    "dictionary": asked_for_all,
    "own dictionary": with_a_dictionary,
    "dictionary of another": with_the_dictionary_of_another,
    "dictionary of its class": with_the_dictionary_of_one_of_its_class,
    "many attributes": with_more_attributes_than_a_row_has_room_for,
    "no attributes": with_an_emptied_dictionary,
    "address": lambda array: with_memory(
        array, lambda data: changed(getattr(data, "_mem", data), "device_pointer", 0x7000)
    ),
    "address of ctypes": lambda array: changed(
        array, "gpu_data", types.SimpleNamespace(device_pointer=ctypes.c_void_p(0x7000))
    ),
    "no memory": lambda array: changed(array, "gpu_data", None),
}


@pytest.mark.parametrize("asked", [False, True], ids=["", "asked"])
@pytest.mark.parametrize("name", CHANGES)
def test_an_array_that_is_changed_is_another_one(cuda, rows, memory, name, asked):
    make = maker(cuda, memory, rows[0])
    made = [make() for _ in range(4)]
    for array in made if asked else ():
        vars(array)
    made[2] = CHANGES[name](made[2])
    k = cuda.package(kernel("k", "void(float32[::1])", "void(float32[:])", "void(float32[:,:])")).k
    found = outcomes(cuda, k, *made)
    assert found == by_attributes(cuda, *made)
    assert found[0] != found[2] != found[3]


@pytest.mark.parametrize(
    ("text", "forms", "steps"),
    [
        ("float32[:]", [(8,), (5,)], [(4,), (8,), (-4,)]),
        ("float32[:,:]", [(2, 3), (3, 2), (2, 3)], [(12, 4), (4, 8), (0, 4)]),
        ("float32[:,:,:,:,:]", [(2, 1, 1, 1, 3), (1, 2, 3, 1, 1)], [(12, 12, 12, 12, 4), (4, 8, 8, 8, 8)]),
    ],
)
def test_shapes_and_strides_that_change_in_turn_are_each_read(cuda, rows, general, text, forms, steps):
    """Also where only one of the two is another one, in the same array and in others that have the same tuples."""
    make = maker(cuda, "owned", rows[0])
    made = [make(forms[0], steps[0]) for _ in range(2)]
    k = cuda.package(kernel("k", f"void({text})")).k
    outcomes(cuda, k, *made)
    general.clear()
    for form, strides in [(form, strides) for form in forms for strides in (*steps, steps[0])] * 2:
        for array in made:
            array.shape, array.strides = form, strides
            k[1, 1](array)
            words = struct.unpack(f"<{5 + 2 * len(form)}q", cuda.parameters())
            assert words[2:] == (int(np.prod(form)), 4, address(array), *form, *strides)
    assert not general


def test_shapes_and_strides_are_let_go(cuda, rows):
    make = maker(cuda, "owned", rows[0])
    first, other = make(), make()
    first.shape, first.strides = forms = tuple(np.arange(8, 9).tolist()), tuple(np.arange(4, 5).tolist())
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    before = [*map(sys.getrefcount, forms)]
    for _ in range(4):
        k[1, 1](first)
    del first.shape, first.strides
    for _ in range(2):
        k[1, 1](other)
    assert [*map(sys.getrefcount, forms)] == [count - 1 for count in before]


def test_memory_that_was_freed_is_an_error(cuda, rows):
    make = maker(cuda, "owned", rows[0])
    made = [make(), make(), make()]
    k = cuda.package(kernel("k", "void(float32[::1])")).k
    first = outcomes(cuda, k, *made[:2])
    make.kept.clear()
    assert outcomes(cuda, k, made[2])[0].endswith(
        "cannot be read: ReferenceError: weakly-referenced object no longer exists"
    )
    assert all(isinstance(one, tuple) for one in first)


@pytest.mark.parametrize("name", ["dtype", "shape", "strides", "gpu_data", "stream", "_view", "device_pointer"])
def test_a_class_that_has_changed_is_asked(cuda, rows, memory, monkeypatch, name):
    kind, found = rows
    make, signatures = maker(cuda, memory, kind), ("void(float32[::1])", "void(float32[:])")
    made, other = [make() for _ in range(5)], make((3,), (16,), np.dtype("float64"), stream=9)
    k = cuda.package(kernel("k", *signatures)).k
    outcomes(cuda, k, *made[:3])
    view = getattr(other.gpu_data, "_view", other.gpu_data)
    others = {"_view": (found[5][0], view), "device_pointer": (found[7][0], view.device_pointer)}
    changing, value = others[name] if name in others else (kind, getattr(other, name))
    monkeypatch.setattr(changing, name, property(lambda _self: value), raising=False)
    after = outcomes(cuda, k, *made[3:])
    assert after == by_attributes(cuda, *made[3:], signatures=signatures)
    if name in ("device_pointer", "gpu_data") or (name == "_view" and memory != "plain"):
        assert after[0] == after[1]  # the address of the other


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("module", NUMBAS)
def test_where_objects_have_their_attributes_is_found_of_plain_classes_alone(monkeypatch, module):
    kind, found = in_rows(module)
    assert found is not None
    slotted = type("DeviceNDArray", (), {"__module__": kind.__module__, "__slots__": numba_layout._ARRAY})
    others = [
        type("DeviceNDArray", (kind,), {"__module__": kind.__module__, **own})
        for own in (
            {"shape": property(lambda _self: (3,))},
            {"stream": 0},
            {"__getattribute__": lambda _self, _name: None},
            {"__slots__": ("dtype",)},
        )
    ]
    assert [numba_layout.find(other) for other in (slotted, *others, int)] == [None] * 6
    driver = sys.modules[f"{module}.driver"]
    with monkeypatch.context() as patch:
        patch.setattr(driver.MemoryPointer, "device_pointer", property(lambda _self: 5), raising=False)
        assert numba_layout.find(kind) is None
    with monkeypatch.context() as patch:
        patch.setattr(driver.binding, "CUdeviceptr", int)
        assert numba_layout.find(kind) is None
    monkeypatch.setattr(numba_layout, "_FORMS", {})
    assert numba_layout.find(kind) is None


def test_the_extension_is_told_once_for_each_class(monkeypatch):
    monkeypatch.setattr(numba_layout, "_asked", [])
    kinds, told = [in_rows(NUMBAS[0])[0] for _ in range(2)], []
    for kind in (*kinds, *kinds):
        numba_layout.tell(
            types.SimpleNamespace(add_numba_layout=lambda *found: told.append(found[4][0])), object.__new__(kind)
        )
    assert told == kinds
