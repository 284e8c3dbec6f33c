"""Test that arrays whose elements are not aligned as the kernel reads them are refused before a launch."""

from __future__ import annotations

import itertools

import pytest

from aotcuda.errors import AlignmentError, ArgumentError
from support import libraries
from support.libraries import Array, State
from support.manifests import kernel, overload

BASE = 1 << 41  # an address as the driver allocates them
ALIGNMENTS = {
    "|b1": 1,
    "|u1": 1,
    "<i2": 2,
    "<f2": 2,
    "<i4": 4,
    "<f4": 4,
    "<i8": 8,
    "<f8": 8,
    "<c8": 4,
    "<c16": 8,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "<M8[ns]": 8,
}


def parameter(kind="array", dtype="<f4", *, ndim=1, layout="C", **keys):
    record = {"name": "x", "type": "T *" if kind == "buffer" else "T[::1]", "kind": kind, "offset": 0, "dtype": dtype}
    if kind == "array":
        words = ["data", *[f"shape{axis}" for axis in range(ndim)], *[f"stride{axis}" for axis in range(ndim)]]
        record |= {"ndim": ndim, "layout": layout, "words": words}
    return {**record, **keys}


def kernel_of(*parameters, **keys):
    """Return a kernel with an overload of one argument for each of these parameters."""
    overloads = [
        overload("void()", f"k_{at}", parameters=[each], parameter_bytes=8 * len(each.get("words", [0])))
        for at, each in enumerate(parameters)
    ]
    return {"name": "k", "origin": "m:k", "overloads": overloads, **keys}


def launch(cuda, record, arg):
    """Launch three times, the last ones on the fast path if there is one; return the number of launches."""
    k = cuda.package(record).k
    before = len(cuda.launches())
    for _ in range(3):
        k[1, 32](arg)
    return len(cuda.launches()) - before


def array(address, dtype="<f4", shape=(4,), strides=None, library="interface"):
    return libraries.make(Array(library, State(typestr=dtype, shape=shape, address=address, strides=strides)))


@pytest.fixture(autouse=True)
def _libraries():
    with libraries.installed():
        yield


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("kind", ["array", "buffer", "elements"])
@pytest.mark.parametrize(("dtype", "alignment"), ALIGNMENTS.items())
def test_arrays_begin_at_multiples_of_their_type(cuda, kind, dtype, alignment):
    library = "interface" if dtype[0] in "<|" else "torch"
    k = cuda.package(kernel_of(parameter(kind, dtype))).k
    for _ in range(3):
        for offset in range(1, 17):
            if offset % alignment == 0:
                k[1, 32](array(BASE + offset, dtype, library=library))
                continue
            with pytest.raises(AlignmentError, match=rf"argument 1, x, begins at .* multiples of {alignment} bytes"):
                k[1, 32](array(BASE + offset, dtype, library=library))


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("library", ["cupy", "torch", "exchange", "interface", "numba", "dlpack"])
@pytest.mark.parametrize("kind", ["array", "buffer"])
def test_declared_alignment_replaces_that_of_the_type(cuda, library, kind):
    k = cuda.package(kernel_of(parameter(kind, align=16))).k
    for _ in range(5):
        k[1, 32](array(BASE + 16, library=library))
        with pytest.raises(AlignmentError, match="multiples of 16 bytes; pass a copy"):
            k[1, 32](array(BASE + 8, library=library))
    assert len(cuda.launches()) == 5


@pytest.mark.usefixtures("path")
def test_misaligned_arrays_take_no_other_overload(cuda):
    k = cuda.package(kernel_of(parameter("buffer", align=16), parameter("buffer", align=4))).k
    for address, _ in itertools.product((BASE, BASE + 4), range(3)):
        if address == BASE:
            k[1, 32](array(address))
        else:
            with pytest.raises(AlignmentError):
                k[1, 32](array(address))
    assert {launch["kernel"] for launch in cuda.launches()} == {"k_0"}


@pytest.mark.usefixtures("path")
def test_overload_that_does_not_fit_does_not_refuse_arrays(cuda):
    other = parameter("array", "<f8", align=8), parameter("array", "<f4", ndim=2, align=16)
    k = cuda.package(kernel_of(*other, parameter("array", align=4))).k
    for _ in range(3):
        k[1, 32](array(BASE + 4))
    assert {launch["kernel"] for launch in cuda.launches()} == {"k_2"}


@pytest.mark.usefixtures("path")
def test_empty_arrays_and_null_have_no_alignment(cuda):
    for address in (0, BASE + 1):
        assert launch(cuda, kernel_of(parameter("buffer", align=16)), array(address, shape=(0,))) == 3


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("kind", ["array", "record"])
@pytest.mark.parametrize("declared", [{}, {"align": 1}, {"align": 8}])
def test_structured_elements_have_the_alignment_of_the_manifest(cuda, kind, declared):
    record = kernel_of(parameter(kind, "|V12", **declared))
    assert launch(cuda, record, array(BASE + 8, "|V12", shape=(1,))) == 3
    if declared.get("align") == 8:
        with pytest.raises(AlignmentError, match="multiples of 8 bytes"):
            launch(cuda, record, array(BASE + 12, "|V12", shape=(1,)))
    else:
        assert launch(cuda, record, array(BASE + 1, "|V12", shape=(1,))) == 3


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("library", ["cupy", "interface", "numba"])
def test_strides_between_elements_are_aligned(cuda, library):
    k = cuda.package(kernel_of(parameter(layout="A"), parameter(layout="A", ndim=2))).k
    for _ in range(3):
        k[1, 32](array(BASE, strides=(8,), library=library))
        k[1, 32](array(BASE, shape=(1, 4), strides=(7, 12), library=library))  # the 7 leads nowhere
        for shape, strides in (((4,), (6,)), ((2, 4), (18, 8))):
            with pytest.raises(AlignmentError, match=r"has strides .* multiples of 4 bytes"):
                k[1, 32](array(BASE, shape=shape, strides=strides, library=library))


@pytest.mark.usefixtures("path")
def test_arrays_in_tuples_are_aligned(cuda):
    member = parameter("array")
    inner = {"name": "t", "type": "Tuple(T[::1])", "kind": "tuple", "offset": 0, "members": [member]}
    record = kernel_of({**inner, "words": member["words"]})
    assert launch(cuda, record, (array(BASE + 4),)) == 3
    with pytest.raises(AlignmentError, match=r"argument 1, t\[0\], begins at"):
        launch(cuda, record, (array(BASE + 2),))


@pytest.mark.usefixtures("path")
def test_addresses_as_numbers_have_no_alignment(cuda):
    pointer = {"name": "p", "type": "float64*", "kind": "pointer", "offset": 0}
    assert launch(cuda, kernel_of(pointer), BASE + 1) == 3


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("offset", [8, 16])
def test_misaligned_array_is_no_miss_of_an_exact_kernel(cuda, offset):
    argument = {"name": "x", "type": "*fp32"}
    record = kernel_of(parameter("elements", divisor=16), exact=True, arguments=[argument])
    k = cuda.package(record).k
    for _ in range(3):
        if offset % 16:
            with pytest.raises(ArgumentError, match="no packaged variant"):
                k[1, 32](array(BASE + offset))
        else:
            k[1, 32](array(BASE + offset))
        with pytest.raises(AlignmentError, match="argument 1, begins at"):
            k[1, 32](array(BASE + offset + 2))


def test_forall_and_stored_launchers_check_alignment(cuda):
    k = cuda.package(kernel("k", "void(float64[::1])")).k
    stored = k[1, 32]
    for call in (stored, k.forall(8), k.configure(1, 32), k.forall(0)):
        call(array(BASE + 8, "<f8"))
        with pytest.raises(AlignmentError):
            call(array(BASE + 4, "<f8"))
