"""Whatever the arguments, both paths of a launch do the same; the long run is bench/fuzz_arguments.py."""

from __future__ import annotations

import ctypes
import itertools
import re

import pytest
from hypothesis import HealthCheck, given, settings

from aotcuda.errors import ArgumentError
from support import argument_fuzz, libraries
from support.argument_fuzz import Case, Made
from support.libraries import Array, Raises, State
from support.manifests import kernel

LINE = ("array", "<f4", 1, "C", False, "numba")
EXAMPLES = settings(
    max_examples=60,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def fuzz(cuda, extension_module, monkeypatch):
    """Make the two paths over one module."""
    monkeypatch.delenv("FAKE_CUDA_LOG")
    module = cuda.package(kernel("k", "void()")).__aotcuda__
    module.attribute("k")[1, 1]()
    with argument_fuzz.patched():
        yield argument_fuzz.Fuzz(module, ctypes.CDLL(str(cuda.library)), extension_module)


def test_the_paths_agree(fuzz):
    @EXAMPLES
    @given(argument_fuzz.cases())
    def run(case):
        fuzz.run(case)

    run()
    assert fuzz.tuples > 1000
    assert fuzz.taken["extension"]["extension"] > 50
    assert fuzz.errors > 50


TYPES = ("bool", "int32", "int64", "uint64", "float64", "complex128")


@pytest.mark.parametrize("exact", [False, True], ids=["adopting", "exact"])
@pytest.mark.parametrize("types", [*itertools.permutations(TYPES, 2), *[(type_,) for type_ in TYPES]], ids="-".join)
def test_earlier_numbers_do_not_change_how_a_number_is_taken(fuzz, types, exact):
    """Whatever number came first: `Fuzz.run` holds each against a kernel that nothing was launched with."""
    overloads = [argument_fuzz.overload([("scalar", type_)], at, exact=exact) for at, type_ in enumerate(types)]
    record = {"name": "k", "origin": "mypkg._kernels:k", "overloads": overloads}
    numbers = [(Made(name),) for name in argument_fuzz.NUMBERS if name.startswith(("int ", "uint64 ", "bool "))]
    fuzz.run(Case(record, [*numbers, *reversed(numbers)], 0))
    assert fuzz.tuples == 2 * len(numbers)


@pytest.mark.parametrize("bounds", [None, (0, 100), (1, 2**63 - 1)], ids=str)
@pytest.mark.parametrize("divisor", [1, 16])
@pytest.mark.parametrize("type_", ["uint8", "int64", "uint64"])
def test_a_divisor_without_bounds_takes_any_number(fuzz, type_, divisor, bounds):
    """Half of the unsigned 64-bit numbers lie beyond the range of bounds."""
    record = {"name": "k", "origin": "mypkg._kernels:k"}
    record["overloads"] = [argument_fuzz.overload([("number", type_, divisor, bounds)], 0)]
    numbers = [(Made(name),) for name in argument_fuzz.NUMBERS if name.startswith("int ")]
    assert (Made("int 9223372036854775808"),) in numbers
    fuzz.run(Case(record, [*numbers, *reversed(numbers)], 0))
    assert fuzz.tuples == 2 * len(numbers)
    assert fuzz.errors < fuzz.tuples


@pytest.mark.parametrize("before", ["record", "other record"])
def test_a_record_takes_the_overload_of_its_layout(fuzz, before):
    """Both are NumPy's `void`: what was learnt of one must not be launched with the other."""
    overloads = [argument_fuzz.overload([("struct", text)], at) for at, text in enumerate(("<f8", "<f4"))]
    record = {"name": "k", "origin": "mypkg._kernels:k", "overloads": overloads}
    both = [(Made("record"),), (Made("other record"),)]
    fuzz.run(Case(record, [(Made(before),)] * 3 + both * 3, 0))
    assert fuzz.tuples == 9
    assert not fuzz.errors


@pytest.mark.parametrize("library", ["numba", "interface"])
@pytest.mark.parametrize("stride", [2**63, -(2**63) - 1, 2**200])
@pytest.mark.parametrize(
    "parameter",
    [("array", "<i8", 1, "A", False, "mlir"), ("array", "<i8", 2, "A", False, "mlir"), ("elements", "<i8", 1, False)],
    ids=str,
)
def test_strides_beyond_64_bits_are_refused_after_others_were_launched(fuzz, library, stride, parameter):
    shape = (4, 4) if parameter[2] == 2 else (4,)
    good = Array(library, (State("<i8", shape, (16,) * len(shape)),))
    bad = Array(library, (State("<i8", shape, (16,) * len(shape), odd=(("strides", (stride,) * len(shape)),)),))
    record = {"name": "k", "origin": "mypkg._kernels:k", "overloads": [argument_fuzz.overload([parameter], 0)]}
    fuzz.run(Case(record, [(good,), (good,), (good,), (bad,), (good,)], 0))
    assert fuzz.errors == 1


@pytest.mark.parametrize("library", ["numba", "interface", "cupy"])
@pytest.mark.parametrize(
    ("address", "strides"), [(2**64 - 8, None), (8, (-16,)), (0x1000, (2**62,)), (2**64 - 8, (2**40,))], ids=str
)
def test_arrays_beyond_all_addresses_overlap_on_both_paths_alike(fuzz, library, address, strides):
    """They do not exist, but what is told of them is told to all paths."""
    plain = Array(library, (State(),))
    odd = Array(library, (State(address=address, strides=strides),))
    parameter = ("array", "<f4", 1, "A", False, "numba")
    overloads = [argument_fuzz.overload([parameter] * 2, at, apart=at == 0) for at in range(2)]
    record = {"name": "k", "origin": "mypkg._kernels:k", "overloads": overloads}
    far = Array(library, (State(address=0x9000),))
    fuzz.run(Case(record, [(plain, far)] * 3 + [(odd, odd), (odd, plain), (plain, odd), (odd, odd)], 0))
    assert fuzz.tuples == 7


ERROR = re.compile(r"[^\n]*mypkg\.kernels\.k[^\n]*argument 1, a, [^\n]+\n  passed:   \([^\n]+(\n  packaged: [^\n]+)+")
ODDLY_TOLD = {
    "array": [("array", "<f4", 1, "A", False, "numba")],
    "array without dimensions": [("array", "<f4", 0, "A", False, "numba")],
    "array of two dimensions": [("array", "<f4", 2, "A", False, "numba")],
    "array that is only read": [("array", "<f4", 1, "A", True, "numba")],
    "array for several": [("array", "<f4", 1, "C", False, "numba"), ("array", "<f4", 1, "A", True, "numba")],
    "elements": [("elements", "<f4", 1, False)],
}
"""The parameters of the overloads; what is asked of an array depends on them."""


@pytest.mark.parametrize("overloads", ODDLY_TOLD.values(), ids=ODDLY_TOLD)
@pytest.mark.parametrize("library", libraries.LIBRARIES)
def test_every_odd_attribute_is_read_alike_by_both_paths(fuzz, overloads, library):
    """Covers the first launched array, which the fast path learns from, and a later one."""
    described = [argument_fuzz.overload([parameter], at) for at, parameter in enumerate(overloads)]
    record = {"name": "k", "origin": "mypkg._kernels:k", "overloads": described}
    ndim = overloads[0][2]
    state = State(shape=(4,) * ndim, strides=(64, 16)[2 - ndim :])
    good = Array(library, (state,))
    odd = [Array(library, (state._replace(odd=(told,)),)) for told in argument_fuzz.every_odd(library)]
    for arrays in ([good] * 3 + odd, *([each, each, good] for each in odd)):
        fuzz.run(Case(record, [(array,) for array in arrays], 77))
    assert fuzz.tuples == 3 + 4 * len(odd)
    assert [message for message in fuzz.messages if ERROR.fullmatch(message) is None] == []


PROTOCOLS = [library for library in libraries.LIBRARIES if library != "exchange"]


class Speechless(Exception):  # noqa: N818
    """An error that raises when it is asked what it says."""

    def __str__(self):
        raise ZeroDivisionError


@pytest.mark.parametrize("library", PROTOCOLS)
def test_an_error_of_an_attribute_is_the_cause(fuzz, library):
    name = {"interface": "interface", "instance": "interface", "torch": "data_ptr", "cupy": "ptr", "numba": "shape"}
    odd = name.get(library, "capsule")
    for error in (OSError, KeyError, ZeroDivisionError, Speechless):
        array = Array(library, (State(odd=((odd, Raises(error)),)),))
        record = {"name": "k", "origin": "mypkg._kernels:k", "overloads": [argument_fuzz.overload([LINE], 0)]}
        with pytest.raises(ArgumentError, match=f"argument 1, a, cannot be read: {error.__name__}") as caught:
            fuzz.launcher("general", Case(record, [], 0))(libraries.make(array))
        assert isinstance(caught.value.__cause__, error)


@pytest.mark.parametrize("type_", ["complex64", "complex128", "float32", "int32", "uint64", "bool"])
@pytest.mark.parametrize(
    "value", [10**400, -(10**400), 10**5000, 2**64], ids=["large", "negative", "digits", "64 bits"]
)
def test_an_int_beyond_all_numbers_is_out_of_range(fuzz, type_, value):
    overload = argument_fuzz.overload([("scalar", type_)], 0)
    record = {"name": "k", "origin": "mypkg._kernels:k", "overloads": [overload]}
    if value == 2**64 and type_ in ("complex64", "complex128", "float32"):
        return
    for path in argument_fuzz.PATHS:
        launch = fuzz.launcher(path, Case(record, [], 0))
        for _ in range(3):
            launch(1)
            with pytest.raises(ArgumentError, match=r"argument 1, a, is .*, which is out of range"):
                launch(value)
