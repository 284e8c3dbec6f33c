"""The overload that the arguments of a launch select, and errors for arguments that none accepts."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from aotcuda.errors import ArgumentError
from aotcuda.manifest.dtypes import structured
from support import libraries
from support.libraries import Array, State
from support.manifests import kernel
from support.stand_in import DeviceArray

pytestmark = pytest.mark.usefixtures("both_paths")

F4 = np.zeros(4, "<f4")
F8 = np.zeros(4, "<f8")


def selected(cuda, signatures, *args):
    """Return the number of the signature that a launch with these arguments selects."""
    cuda.package(kernel("k", *signatures)).k[1, 32](*args)
    return int(cuda.launches()[-1]["kernel"].removeprefix("k_"))


@pytest.mark.general("records")
def test_fields_of_records_select(cuda):
    dtypes = [np.dtype([("p", "f4", (3,))]), np.dtype([("p", "f4", (4,))])]
    dtypes += [np.dtype([("a", "i1"), ("b", "f8")], align=aligned) for aligned in (False, True)]
    record = kernel("k", *[f"void({name}[::1])" for name in ("float32", "float64", "int32", "int64")])
    for overload, dtype in zip(record["overloads"], dtypes, strict=True):
        overload["parameters"][0]["dtype"] = structured(dtype.str, dtype.descr)
    module = cuda.package(record)
    order = (3, 1, 0, 2, 1, 0)
    for number in order:
        module.k[1, 32](cuda.array(np.zeros(4, dtypes[number]), descr=dtypes[number].descr))
    assert [launch["kernel"] for launch in cuda.launches()] == [f"k_{number}" for number in order]


def test_arguments_dimensions_dtype_and_layout_select(cuda):
    strided = np.zeros(8, "<f4")[::2]
    rows = [
        ("void(float32[::1])", lambda: (cuda.array(F4),)),
        ("void(float32[:])", lambda: (cuda.array(strided),)),
        ("void(float32[:,::1])", lambda: (cuda.array(np.zeros((2, 2), "<f4")),)),
        ("void(float64[::1])", lambda: (cuda.array(F8),)),
        ("void(float32[::1], int32)", lambda: (cuda.array(F4), 3)),
        ("void(float32[::1,:])", lambda: (cuda.array(np.zeros((2, 3), "<f4", order="F")),)),
    ]
    module = cuda.package(kernel("k", *[signature for signature, _ in rows]))
    order = [*range(len(rows)), 1, 0, 3, 0, 5, 2]
    for number in order:
        module.k[1, 1](*rows[number][1]())
    assert [launch["kernel"] for launch in cuda.launches()] == [f"k_{number}" for number in order]


@pytest.mark.parametrize(
    ("types", "value", "nearest"),
    [
        (["float64", "int32"], 3, "int32"),
        (["int32", "float32"], 3.0, "float32"),
        (["int32", "int64"], 3, "int64"),
        (["uint64", "int64"], 3, "int64"),
        (["int64", "uint64"], 2**63, "uint64"),
        (["int32", "float32"], 2**40, "float32"),
        (["float32", "float64"], 0.1, "float64"),
        (["float32", "float64"], np.float32(0.1), "float32"),
        (["complex64", "float64"], np.float32(0.1), "float64"),
        (["int64", "int8"], np.int8(1), "int8"),
        (["complex128", "float32"], 1.0, "float32"),
        (["float64", "complex64"], 1j, "complex64"),
        (["int8", "bool"], True, "bool"),
        (["bool", "int8"], 1, "int8"),
        (["bool", "float64"], 1, "float64"),
        (["bool", "complex64"], 1, "complex64"),
        (["complex64", "complex128"], 1j, "complex128"),
        pytest.param(
            ["complex128", "complex64"], np.complex64(1j), "complex64", marks=pytest.mark.general("NumPy's complex64")
        ),
    ],
)
def test_the_nearest_scalar_type_is_selected(cuda, types, value, nearest):
    assert types[selected(cuda, [f"void({type_})" for type_ in types], value)] == nearest


@pytest.mark.general("overloads for other dimensions than the one that is taken are in the group")
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_dimensions_select_after_launches_in_a_row(cuda, current, library):
    """An overload with the array's number of dimensions is preferred to one for any number."""
    record = kernel("k", "void(float32[:,::1])", "void(float32[::1])")
    buffer = record["overloads"][1]["parameters"][0]
    buffer.update(kind="buffer", type="float *")
    run = cuda.package(record).k[1, 1]
    line, matrix = (libraries.make(Array(library, State(shape=shape, address=1 << 41))) for shape in [(4,), (4, 4)])
    for value in (line, line, line, line, matrix, line, matrix, matrix, matrix, matrix, line):
        run(value)
    assert [call["kernel"] for call in cuda.launches()] == [
        f"k_{number}" for number in (1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 1)
    ]


def test_the_first_of_equal_overloads_is_selected(cuda):
    assert selected(cuda, ["void(int32, int64)", "void(int64, int32)"], 1, 1) == 0


def test_kinds_of_scalars_count_more_than_widths(cuda):
    assert selected(cuda, ["void(float64, int64, int64)", "void(int8, int8, int8)"], 1, 1, 1) == 1


@pytest.mark.general("tuples")
def test_members_of_tuples_select(cuda):
    module = cuda.package(kernel("k", "void((int32, int32))", "void((float32, float32))"))
    module.k[1, 1]((1, 2))
    module.k[1, 1]((1.0, 2.0))
    module.k[1, 1]((1, 2.0))
    assert [launch["kernel"] for launch in cuda.launches()] == ["k_0", "k_1", "k_1"]


class Refusals:
    """A kernel; a call returns the error for arguments that it refuses."""

    def __init__(self, cuda, *signatures, **changes):
        self.cuda = cuda
        self.module = cuda.package(kernel("k", *signatures, **changes))

    def __call__(self, *args):
        with pytest.raises(ArgumentError) as caught:
            self.module.k[1, 32](*args)
        assert isinstance(caught.value, TypeError)
        assert self.cuda.launches() == []
        return str(caught.value)


@pytest.mark.parametrize(
    ("signature", "make", "problem"),
    [
        ("void(int32)", lambda _: 1.0, "is float where int32 is packaged"),
        ("void(float32)", lambda _: 1j, "is complex where float32 is packaged"),
        ("void(int32)", lambda _: "3", "is str where int32 is packaged"),
        ("void(int32)", lambda _: None, "is NoneType where int32 is packaged"),
        ("void(int32)", lambda cuda: cuda.array(F4), r"is float32[::1] where int32 is packaged"),
        ("void(int32)", lambda _: np.float32(1), "is float32 where int32 is packaged"),
        ("void(float32[::1])", lambda _: 3.0, "is float where float32[::1] is packaged"),
        ("void(float32[::1])", lambda _: np.float32(3), "is float32 where float32[::1] is packaged"),
        ("void(float32[::1])", lambda _: [1.0], "is list where float32[::1] is packaged"),
        ("void(float32[::1])", lambda cuda: cuda.array(F8), "is float64[::1] where float32[::1] is packaged"),
        ("void(float32[::1])", lambda cuda: cuda.array(F4.reshape(2, 2)), "is float32[:,::1] where float32[::1] is"),
        ("void(float32[::1])", lambda cuda: cuda.array(F4.astype(">f4")), "is >f4[::1] where float32[::1] is packaged"),
        ("void((int32, int32))", lambda _: (1, 2, 3), "is (int, int, int) where a tuple of 2 is packaged"),
        ("void((int32, int32))", lambda _: [1, 2], "is list where a tuple of 2 is packaged"),
        ("void((int32, int32))", lambda _: (1, 2.5), "in its item 1, is float where int32 is packaged"),
        ("void((int8, int32))", lambda _: (300, 2), "in its item 0, is 300, which is out of range for int8"),
    ],
)
def test_a_wrong_argument_is_named_with_the_packaged_type(cuda, signature, make, problem):
    first, *advised, passed, packaged = Refusals(cuda, signature)(make(cuda)).splitlines()
    assert all(line.startswith("  pass:     ") for line in advised)
    assert first.startswith(f"mypkg.kernels.k: argument 1, a, {problem}")
    assert passed.startswith("  passed:   (")
    assert packaged == f"  packaged: {signature}"


class Convertible(DeviceArray):
    """An array of a library with the conversions of CuPy and JAX."""

    def astype(self, dtype): ...

    def item(self): ...


class Parameter(DeviceArray):
    """A tensor with the conversions of PyTorch; launches read its interface."""

    __module__ = "torch"

    def to(self, dtype): ...


@pytest.mark.parametrize(
    ("signature", "args", "advised"),
    [
        ("void(float32[::1])", [Convertible(4096, F8)], 'a.astype("float32"), a copy'),
        ("void(bool[::1])", [Convertible(4096, F8)], 'a.astype("bool"), a copy'),
        ("void(float32[::1])", [Convertible(4096, F8.reshape(2, 2))], 'a.astype("float32"), a copy'),
        ("void(float32[::1])", [Convertible(4096, F4.reshape(2, 2))], None),
        ("void(float32[::1])", [Parameter(4096, F8)], "a.to(torch.float32), a copy"),
        ("void(float32[::1])", [DeviceArray(4096, F8)], None),  # Numba's arrays do not convert
        ("void(float32[::1])", [[1.0]], 'cupy.asarray(a, "float32"); a list is no array, and on no GPU'),
        ("void(int64[::1])", [range(3)], 'cupy.asarray(a, "int64"); a range is no array, and on no GPU'),
        (
            "void(float32[::1], float32[::1])",
            [(1.0, 2.0), Parameter(4096, F4)],
            'torch.tensor(a, dtype=torch.float32, device="cuda"); a tuple is no array, and on no GPU',
        ),
        ("void((int32, int32))", [[1, 2]], "tuple(a)"),
        ("void(float32)", [Convertible(4096, F4)], "a.item(), the number in an array of one element"),
        ("void(float32)", [np.array(2.5)], "a.item(), the number in an array of one element"),
        ("void(int32)", [4.0], "int(a), or a // 2 in place of a / 2"),
        ("void(int32)", ["4"], None),
        ("void(float32)", [2j], None),
    ],
)
def test_convertible_arguments_say_how_to_convert(cuda, signature, args, advised):
    _, *lines = Refusals(cuda, signature)(*args).splitlines()
    assert [line for line in lines if line.startswith("  pass:")] == ([f"  pass:     {advised}"] if advised else [])


class TorchArray(np.ndarray):
    """A tensor of PyTorch in the host's memory."""

    __module__ = "torch"


class JaxArray(np.ndarray):
    """An array of JAX in the host's memory."""

    __module__ = "jaxlib._jax"


@pytest.mark.parametrize(
    ("kind", "name", "copy"),
    [
        (np.ndarray, "numpy.ndarray", "as cupy.asarray does (or set AOTCUDA_HOST_ARRAYS=copy)"),
        (TorchArray, "torch.TorchArray", "as a.cuda() does"),
        (JaxArray, "jaxlib._jax.JaxArray", 'as jax.device_put(a, jax.devices("gpu")[0]) does'),
    ],
)
def test_a_host_array_names_its_librarys_copy(cuda, kind, name, copy):
    assert Refusals(cuda, "void(float32[::1])")(F4.view(kind)).splitlines()[0] == (
        f"mypkg.kernels.k: argument 1, a, is an array in the host's memory ({name}); copy it to the GPU first, {copy}"
    )


@pytest.mark.parametrize(
    ("signatures", "args", "first"),
    [
        (["void(int32)"], (), "mypkg.kernels.k takes 1 argument, got 0"),
        (["void(int32, int32)"], (1,), "mypkg.kernels.k takes 2 arguments, got 1"),
        (["void(int32)", "void(int32, int32)"], (1, 2, 3), "mypkg.kernels.k takes 1 or 2 arguments, got 3"),
        (["void()"], (1,), "mypkg.kernels.k takes 0 arguments, got 1"),
    ],
)
def test_a_wrong_number_of_arguments_says_both_numbers(cuda, signatures, args, first):
    assert Refusals(cuda, *signatures)(*args).splitlines()[0] == first


def test_several_signatures_are_listed_with_the_passed_types(cuda):
    refuse = Refusals(cuda, "void(float32, float32[::1])", "void(float64, float64[::1])")
    assert refuse(2.0, cuda.array(np.zeros(4, "<i4"))).splitlines() == [
        (
            "no packaged signature of mypkg.kernels.k accepts these arguments; in the nearest one, "
            "argument 2, b, is int32[::1] where float32[::1] is packaged"
        ),
        "  passed:   (float, int32[::1])",
        "  packaged: void(float32, float32[::1])",
        "  packaged: void(float64, float64[::1])",
    ]


def test_the_documentation_shows_the_real_message(cuda):
    page = Path(__file__).parents[2].joinpath("docs", "runtime.md").read_text().partition("### Mismatches")[2]
    shown = page.split("```")[1].strip()
    signature = re.search(r"packaged: (void.*)", shown)[1]
    record = kernel("damp", signature)
    for parameter, name in zip(record["overloads"][0]["parameters"], ("values", "rate", "out"), strict=True):
        parameter["name"] = name
    with pytest.raises(ArgumentError) as caught:
        cuda.package(record).damp[1, 32](Convertible(4096, F8), 0.5, Convertible(8192, F4))
    assert str(caught.value) == shown


def test_a_strided_array_shows_strides_and_layout(cuda):
    strided = np.zeros(8, "<f4")[::2]
    assert (
        "argument 1, a, has shape (4,) and strides (8,) in bytes, which is not contiguous in C order as float32[::1] "
        "promises; pass a contiguous copy"
    ) in Refusals(cuda, "void(float32[::1])")(cuda.array(strided))


def test_a_read_only_parameter_takes_both(cuda):
    array, locked = cuda.array(F4), cuda.array(F4)
    locked.interface["data"] = (locked.address, True)
    module = cuda.package(kernel("k", "void(float32[::1])", readonly=("a",)))
    module.k[1, 1](array)
    module.k[1, 1](locked)
    assert len(cuda.launches()) == 2


@pytest.mark.general("whose type does not tell what each object is")
def test_an_object_with_index_or_float_is_a_scalar(cuda):
    class Index:
        def __index__(self):
            return 5

    module = cuda.package(kernel("k", "void(int32, float64)"))
    module.k[1, 1](Index(), Fraction(1, 4))
    assert cuda.parameters() == np.array(5, "<i8").tobytes() + np.array(0.25, "<f8").tobytes()
