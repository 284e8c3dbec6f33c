"""Both paths of a launch do the same with any arguments."""

from __future__ import annotations

import ctypes
import os
import re

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from aotcuda.errors import ArgumentError
from slow import argument_fuzz
from slow.argument_fuzz import Case, Value
from support import libraries
from support.libraries import Array, Raises, State
from support.manifests import kernel

LINE = ("array", "<f4", 1, "C", False, "numba")


@pytest.fixture
def fuzz(cuda, extension_module, monkeypatch):
    """Make the two paths over one module."""
    monkeypatch.delenv("FAKE_CUDA_LOG")
    module = cuda.package(kernel("k", "void()")).__aotcuda__
    module.attribute("k")[1, 1]()
    with argument_fuzz.patched():
        yield argument_fuzz.Fuzz(module, ctypes.CDLL(str(cuda.library)), extension_module)


def test_the_paths_agree(fuzz, extent):
    differences = []
    limits = settings(
        max_examples=extent.part(80, 400),
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )

    def run(case):
        try:
            fuzz.run(case)
        except argument_fuzz.DifferenceError as difference:
            differences.append(str(difference))

    seeds = range(1, extent.part(1, 20) + 1)
    for each in seeds:
        seed(each)(limits(given(argument_fuzz.cases())(run)))()
    extent.add(
        "fuzz_arguments",
        "under sanitizers" if "-fsanitize" in os.environ.get("CFLAGS", "") else "plain",
        seeds=len(seeds),
        tuples=fuzz.tuples,
        refused=fuzz.errors,
        launches={path: fuzz.launches[path] for path in argument_fuzz.PATHS},
        differences=len(differences),
        first_differences=differences[:20],
    )
    assert differences[:5] == []
    assert fuzz.tuples > 1000
    assert fuzz.launches["extension"]["extension"] > 20
    assert fuzz.errors > 50


INTS = [(Value(expression),) for expression in argument_fuzz.VALUES["int"] + argument_fuzz.VALUES["bool"]]
TYPES = ("bool", "int32", "int64", "uint64", "float64", "complex128")


def case(tuples, *overloads, exact=False, apart=()):
    """Return the launches of a kernel with overloads of these parameters."""
    records = [
        argument_fuzz.overload(parameters, number, exact=exact, apart=number in apart)
        for number, parameters in enumerate(overloads)
    ]
    return Case({"name": "k", "origin": "mypkg._kernels:k", "overloads": records}, tuples, 0)


@pytest.mark.parametrize("exact", [False, True], ids=["adopting", "exact"])
@pytest.mark.parametrize("first", range(len(TYPES)), ids=TYPES)
def test_earlier_numbers_do_not_select_the_overload(fuzz, first, exact):
    overloads = [[("scalar", type_)] for type_ in TYPES[first:] + TYPES[:first]]
    for count in (1, 2, len(overloads)):
        fuzz.run(case([*INTS, *reversed(INTS)], *overloads[:count], exact=exact))


@pytest.mark.parametrize("bounds", [None, (0, 100), (1, 2**63 - 1)], ids=str)
@pytest.mark.parametrize("divisor", [1, 16])
def test_a_divisor_without_bounds_takes_any_uint64(fuzz, divisor, bounds):
    """Half of the unsigned 64-bit numbers lie beyond the range of bounds."""
    fuzz.run(case([*INTS, *reversed(INTS)], [("number", "uint64", divisor, bounds)]))
    assert fuzz.errors < fuzz.tuples


@pytest.mark.parametrize("library", libraries.LIBRARIES)
@pytest.mark.parametrize(
    "parameter",
    [
        *(("array", "<f4", ndim, layout, False, "numba") for ndim in (1, 2) for layout in "CA"),
        ("array", "<f4", 2, "A", False, "mlir"),
        ("buffer", "<f4", False, ()),
        ("elements", "<f4", 1, False),
    ],
    ids=str,
)
def test_contiguous_arrays_do_not_decide_for_strided_ones(fuzz, library, parameter):
    ndim = parameter[2] if parameter[0] == "array" else 2
    plain = State("<f4", (4,) * ndim, address=1 << 41)
    strided = [plain._replace(strides=steps[2 - ndim :]) for steps in ((4, 16), (32, 8), (34, 10), (0, 0))]
    arrays = [(Array(library, state),) for state in (plain, plain, plain, *strided, plain)]
    fuzz.run(case(arrays, [parameter]))


@pytest.mark.parametrize("library", ["numba", "interface", "cupy"])
@pytest.mark.parametrize(
    ("address", "strides"), [(2**64 - 8, None), (8, (-16,)), (0x1000, (2**62,)), (2**64 - 8, (2**40,))], ids=str
)
def test_addresses_that_wrap_around_overlap_on_both_paths_alike(fuzz, library, address, strides):
    plain = Array(library, State())
    odd = Array(library, State(address=address, strides=strides))
    parameter = ("array", "<f4", 1, "A", False, "numba")
    far = Array(library, State(address=0x9000))
    tuples = [(plain, far)] * 3 + [(odd, odd), (odd, plain), (plain, odd), (odd, odd)]
    fuzz.run(case(tuples, [parameter] * 2, [parameter] * 2, apart=(0,)))


@pytest.mark.parametrize("divisors", [(1,), (16,), (1, 16), (16, 1)], ids=str)
@pytest.mark.parametrize("library", libraries.LIBRARIES)
def test_earlier_addresses_do_not_select_the_variant(fuzz, library, divisors):
    arrays = [(Array(library, State(address=(1 << 41) + more)),) for more in (0, 0, 0, 4, 8, 0, 4, 4, 4, 0, 0)]
    for exact in (False, True):
        launches = case(arrays, *[[("elements", "<f4", divisor, False)] for divisor in divisors])
        if exact:
            launches.record.update(exact=True, arguments=[{"name": "a"}])
        fuzz.run(launches)


NO_ARRAYS = {
    "constant": [("constant", 1, True)],
    "constants": [("constant", 1, True), ("constant", "relu", False)],
    "number": [("number", "int32", 16, None)],
    "struct": [("struct", "<f4")],
    "type": [("type", "<f4")],
    "constant or array": [("constant", 1, True), ("elements", "<f4", 16, False)],
}


@pytest.mark.parametrize(
    ("name", "exact"),
    [(name, exact) for name in NO_ARRAYS for exact in (True, False) if not exact or name not in ("struct", "type")],
)
def test_arrays_in_place_of_other_arguments_are_refused_alike(fuzz, name, exact):
    arrays = [Array(library, State(address=address)) for library in libraries.LIBRARIES for address in (4096, 4098)]
    host = [Value("np.zeros((), '<f4')"), Value("np.zeros(4, '<f4')")]
    launches = case([(each,) for each in [*host, *arrays]], *[[parameter] for parameter in NO_ARRAYS[name]])
    if exact:
        launches.record.update(exact=True, arguments=[{"name": "a"}])
    fuzz.run(launches)


ERROR = re.compile(r"[^\n]*mypkg\.kernels\.k[^\n]*argument 1, a, [^\n]+\n  passed:   \([^\n]+(\n  packaged: [^\n]+)+")
PARAMETERS = {"array": ("array", "<f4", 1, "A", False, "numba"), "elements": ("elements", "<f4", 1, False)}
"""A parameter with all numbers of an array, and one with the address alone."""


@pytest.mark.parametrize("parameter", PARAMETERS.values(), ids=PARAMETERS)
@pytest.mark.parametrize("library", libraries.LIBRARIES)
def test_both_paths_read_each_wrong_attribute_alike(fuzz, parameter, library):
    """Covers the first launched array and a later one."""
    state = State(strides=(16,))
    good = Array(library, state)
    wrong = [Array(library, state._replace(changes=(change,))) for change in argument_fuzz.all_changes(library)]
    for arrays in ([good] * 3 + wrong, *([each, each, good] for each in wrong)):
        fuzz.run(case([(array,) for array in arrays], [parameter])._replace(stream=77))
    assert fuzz.tuples == 3 + 4 * len(wrong)
    assert [message for message in fuzz.messages if ERROR.fullmatch(message) is None] == []


class Speechless(Exception):  # noqa: N818
    """An error whose text raises another error."""

    def __str__(self):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("library", "attribute"),
    [("interface", "interface"), ("torch", "data_ptr"), ("cupy", "ptr"), ("numba", "shape"), ("dlpack", "capsule")],
)
def test_an_error_of_an_attribute_is_the_cause(fuzz, library, attribute):
    for error in (OSError, KeyError, Speechless):
        array = Array(library, State(changes=((attribute, Raises(error)),)))
        with pytest.raises(ArgumentError, match=f"argument 1, a, cannot be read: {error.__name__}") as caught:
            fuzz.kernel("general", case([], [LINE]))[1, 1, 0](libraries.make(array))
        assert isinstance(caught.value.__cause__, error)


@pytest.mark.parametrize("type_", ["complex128", "float32", "uint64", "bool"])
@pytest.mark.parametrize("value", [10**400, 10**5000], ids=["large", "too many digits for text"])
def test_an_int_beyond_all_numbers_is_out_of_range(fuzz, type_, value):
    for path in argument_fuzz.PATHS:
        launch = fuzz.kernel(path, case([], [("scalar", type_)]))[1, 1, 0]
        for _ in range(3):
            launch(1)
            with pytest.raises(ArgumentError, match=r"argument 1, a, is .*, which is out of range"):
                launch(value)
