"""Exact kernels: a variant is launched for just those arguments for which Triton's JIT would compile it."""

from __future__ import annotations

import inspect
import itertools
import pickle
import random

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, CudaError, LaunchError, MissingVariantError
from aotcuda.runtime import driver
from aotcuda.runtime.arguments.exact import ExactOverloads
from support import libraries
from support.libraries import Array, State

OPTIONS = {"num_warps": 4, "num_ctas": 1, "num_stages": 3, "maxnreg": None}
FORMATS = {"i32": ("i", 4), "i64": ("q", 8), "u64": ("Q", 8), "fp32": ("f", 4), "fp64": ("d", 8), "i1": ("?", 1)}
FORMATS["u1"] = FORMATS["i1"]
ELEMENTS = {"*fp32": "<f4", "*fp16": "<f2", "*bf16": "bfloat16", "*i32": "<i4", "*u1": "|b1", "*i64": "<i8"}


def parameter(name, what, offset):
    """Return a parameter of a Triton type, "i32:16", or of a constant, and the offset behind it."""
    if not isinstance(what, str) or what.startswith("="):
        value = what[1:] if isinstance(what, str) else what
        return {"name": name, "type": f"{name}={value!r}", "kind": "constant", "offset": 0, "value": value}, offset
    plain, _, hint = what.partition(":")
    divisor = {"divisor": 16} if hint else {}
    form, size = ("Q", 8) if plain.startswith("*") else FORMATS[plain]
    offset = -(-offset // size) * size
    found = {"name": name, "type": what, "offset": offset, **divisor}
    if plain.startswith("*"):
        return {**found, "kind": "elements", "dtype": ELEMENTS[plain]}, offset + 8
    return {**found, "kind": "number", "format": form}, offset + size


def variant(symbol, names, types, arch="sm_90", **options):
    parameters, offset = [], 0
    for name, what in zip(names, types, strict=True):
        found, offset = parameter(name, what, offset)
        parameters.append(found)
    parameters += [parameter(name, options.get(name, value), 0)[0] for name, value in OPTIONS.items()]
    return {
        "signature": f"void({', '.join(each['type'] for each in parameters[: len(names)])})",
        "symbol": symbol,
        "parameters": parameters,
        "parameter_bytes": offset,
        "cooperative": False,
        "launch_bounds": [],
        "carveout": None,
        "resources": {},
        "launches": {arch: {"threads": 32 * parameters[len(names)]["value"], "shared": 0}},
    }


def kernel(names, *overloads, heuristics=(), **keys):
    """Return an exact kernel; `keys` are more of what its arguments have, by name."""
    arguments = [{"name": name, **keys.get(name, {})} for name in names]
    arguments += [{"name": name, "default": value, "keyword": True} for name, value in OPTIONS.items()]
    record = {"name": "k", "origin": "mypkg.k:k", "overloads": [*overloads], "arguments": arguments, "exact": True}
    return record | ({"heuristics": [*heuristics]} if heuristics else {})


@pytest.fixture
def package(cuda, path):
    return lambda record: cuda.package(record, by_grid=True, frontend="triton").k


@pytest.fixture
def launched(cuda, path):
    """Return the kernel that a launch takes, None for a miss; however often it is launched."""

    def run(k, *args, **named):
        found = set()
        for _ in range(3):
            count = len(cuda.launches())
            try:
                k[1](*args, **named)
            except MissingVariantError:
                found.add(None)
            else:
                found.add(cuda.launches()[-1]["kernel"])
                assert len(cuda.launches()) == count + 1
        (only,) = found
        return only

    return run


VALUES = [
    *(0, 1, 2, 15, 16, 17, -1, -16, -15, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**31 + 16, 2**32, 2**63 - 1, 2**63),
    *(2**63 + 8, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, True, False, 0.0, -0.0, 1.0, 16.0, 1.5, None, "text", 1j),
    *(np.int64(3), np.int32(16), np.float32(1.0), np.bool_(True), (1, 2), ()),
]
ANNOTATIONS = ["", "i32", "i64", "fp32", "fp64", "u1"]
HINTS = ["", "no alignment", "none"]


@pytest.mark.parametrize("annotation", ANNOTATIONS)
@pytest.mark.parametrize("hints", HINTS)
def test_numbers_get_tritons_types(annotation, hints):
    generator = random.Random(5)
    numbers = [generator.randrange(-(2**bits), 2**bits) for bits in range(1, 66) for _ in range(20)]
    values = [*VALUES, *numbers, *(16 * number for number in numbers)]
    wanted = [*map(triton_class(hints, annotation), values)]
    table, symbols = table_of(wanted, hints, annotation)
    for value, kind in zip(values, wanted, strict=True):
        if annotation and not (isinstance(value, int | float) and (annotation[0] == "f" or abs(value) < 2**63)):
            continue  # Triton's launch refuses it later, and so does packing
        refused = annotation[:1] in ("i", "u") and isinstance(value, float)  # likewise
        assert found_in(table, value) == (None if refused else symbols.get(kind)), (value, kind)


@pytest.mark.parametrize("hints", HINTS)
def test_tensors_get_tritons_types(hints):
    specialise = triton_class(hints, "")
    specialise(1)  # Triton looks for PyTorch once, before the stand-in comes
    with libraries.installed():
        values = [
            libraries.make(Array("torch", (State(dtype, shape, None, 4096 + 4 * shift),)))
            for dtype, shift, shape in itertools.product(ELEMENTS.values(), range(9), ((4,), (2, 3), (), (0,)))
        ]
        wanted = [*map(specialise, values)]
        table, symbols = table_of(wanted, hints, "")
        for value, kind in zip(values, wanted, strict=True):
            assert found_in(table, value) == symbols[kind]


def table_of(kinds, hints, annotation):
    """Return an exact kernel with a variant for each of Triton's classes, and the variants' symbols."""
    argument = ({"hints": hints} if hints else {}) | ({"annotation": annotation} if annotation else {})
    symbols = {kind: f"k{at}" for at, kind in enumerate(dict.fromkeys(kinds)) if kind is not None}
    variants = [variant(symbol, ["n"], [what]) for (what, _), symbol in symbols.items()]
    return ExactOverloads(kernel(["n"], *variants, n=argument), "k", driver.live_mark()), symbols


def found_in(table, value):
    args = (value, *OPTIONS.values())
    candidates = table.candidates(args)
    reads = [arg if read is None else read(arg, [], 0) for read, arg in zip(candidates.readers, args, strict=False)]
    overloads = candidates.specialization(reads).overloads
    return overloads[0].record["symbol"] if overloads else None


def triton_class(hints, annotation):
    """Return the function that gives Triton's class of an argument: a type, "i32:16", or a constant, with its own type.

    None where Triton refuses it, or would take tuples apart.
    """
    pytest.importorskip("triton")
    from triton.backends.compiler import BaseBackend
    from triton.runtime.jit import JITFunction, create_function_from_signature

    def plain(n): ...

    plain.__annotations__ = {"n": annotation} if annotation else {}
    given = {
        "none": {"do_not_specialize": ["n"]},
        "no alignment": {"do_not_specialize_on_alignment": ["n"]},
    }
    function = JITFunction(plain, **given.get(hints, {}))
    bind = create_function_from_signature(inspect.signature(plain), function.params, BaseBackend)

    def specialise(value):
        try:
            _, ((kind, key),), _ = bind(value)
        except (TypeError, OverflowError):
            return None
        if isinstance(kind, tuple):
            return None
        return (key, type(key)) if kind == "constexpr" else (f"{kind}{':16' if key == 'D' else ''}", str)

    return specialise


NAMES = ["x", "n", "BLOCK", "ACT"]
TABLE = kernel(
    NAMES,
    variant("aligned", NAMES, ["*fp32:16", "i32:16", 128, None]),
    variant("plain", NAMES, ["*fp32:16", "i32", 128, None]),
    variant("one", NAMES, ["*fp32:16", 1, 128, None]),
    variant("large", NAMES, ["*fp32:16", "i64:16", 128, None], num_warps=8),
    variant("float", NAMES, ["*fp32:16", "i32", 1.0, None]),
    variant("true", NAMES, ["*fp32:16", "i32", True, "=relu"]),
    variant("int", NAMES, ["*fp32:16", "i32", 1, "=relu"]),
    variant("zero", NAMES, ["*fp32:16", "i32", 0.0, [1, "a", [2.0]]]),
    variant("dtype", NAMES, ["*fp32", "i32", 1, "=tl.float16"]),
    variant("other", NAMES, ["*fp32", "i32", 1, "=elsewhere"], arch="sm_80"),
)


class Dtype:
    def __init__(self, name):
        self.name = name


Dtype.__module__, Dtype.__name__ = "triton.language.core", "dtype"


@pytest.mark.parametrize(
    ("shift", "n", "block", "act", "named", "wanted"),
    [
        (0, 32, 128, None, {}, "aligned"),
        (0, 33, 128, None, {}, "plain"),
        (0, 1, 128, None, {}, "one"),
        (0, 2**40, 128, None, {"num_warps": 8}, "large"),
        (0, 2**40, 128, None, {}, None),
        (4, 32, 128, None, {}, None),  # no variant is for such addresses, and none that promises less is taken
        (0, 33, 1.0, None, {}, "float"),
        (0, 33, True, None, {}, None),
        (0, 33, True, "relu", {}, "true"),
        (0, 33, 1, "relu", {}, "int"),
        (0, 33, np.int64(1), "relu", {}, None),
        (0, 33, 0.0, (1, "a", (2.0,)), {}, "zero"),
        (0, 33, -0.0, (1, "a", (2.0,)), {}, None),
        (0, 33, 0.0, (True, "a", (2.0,)), {}, None),
        (4, 33, 1, Dtype("fp16"), {}, "dtype"),
        (4, 33, 1, Dtype("bf16"), {}, None),
        (4, 33, 1, "tl.float16", {}, None),
        (4, 33, 1, "elsewhere", {}, None),  # packaged, and not for this GPU
        (0, 32, 128, None, {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None}, "aligned"),
        (0, 32, 128, None, {"num_warps": 4.0}, None),
        (0, 32, 128, None, {"maxnreg": 64}, None),
        (0, 32, 128, None, {"nonsense": 1}, None),
        (0, [1], 128, None, {}, None),
    ],
)
def test_a_variant_takes_its_own_arguments_alone(cuda, package, launched, shift, n, block, act, named, wanted):
    k, x = package(TABLE), cuda.array(64)
    x.interface["data"] = (x.address + shift, False)
    assert launched(k, x, n, block, act, **named) == wanted
    assert launched(k, x, n, ACT=act, BLOCK=block, **named) == wanted
    found = k.find((x, n, block, act), named)
    assert (found and found["symbol"]) == (wanted if wanted or act != "elsewhere" else "other")


def test_a_miss_names_the_nearest_variant(cuda, package):
    k, x = package(TABLE), cuda.array(64)
    for args, named, said in [
        ((x, 2**40, 128, None), {}, "n is i64:16 where i32:16 is packaged"),
        ((x, 34, 128, None), {"num_warps": 8}, ", num_warps is 8 where 4 is packaged"),
        (
            (x, 34, 128, None),
            {"nonsense": 8},
            "has no argument nonsense; it has x, n, BLOCK, ACT, num_warps, num_ctas",
        ),
        ((x, 34, 128), {}, "was not given ACT; it is packaged with None, 'relu'"),
        ((x, "34", 128, None), {}, "n is '34' where i32"),
        ((cuda.array(np.zeros(4)), 34, 128, None), {}, "x is *fp64:16 where *fp32:16 is packaged"),
    ]:
        with pytest.raises(MissingVariantError) as caught:
            k[1](*args, **named)
        assert isinstance(caught.value, ArgumentError)
        text = str(caught.value)
        assert said in text
        assert "\n" not in text
        assert str(pickle.loads(pickle.dumps(caught.value))) == text


@pytest.mark.parametrize(
    ("given", "named", "wanted"),
    [((), {"num_stages": 5}, "both"), ((5,), {}, "parameter"), ((3,), {"num_warps": 8}, None), ((), {}, "neither")],
)
@pytest.mark.parametrize("exact", [True, False])
def test_a_constant_may_have_the_name_of_an_option(cuda, package, given, named, wanted, exact):
    names = ["x", "num_stages"]
    variants = [
        variant("both", names, ["*fp32:16", 5]),
        variant("parameter", names, ["*fp32:16", 5]),
        variant("neither", names, ["*fp32:16", 2]),
    ]
    variants[0]["parameters"][4] |= {"value": 5}
    record = kernel(names, *variants, num_stages={"default": 2}) | {"exact": exact}
    k, x = package(record), cuda.array(64)
    for _ in range(3):
        if wanted is None:
            with pytest.raises(ArgumentError):
                k[1](x, *given, **named)
        else:
            k[1](x, *given, **named)
            assert cuda.launches()[-1]["kernel"] == wanted


@pytest.mark.parametrize("positional", [True, False])
@pytest.mark.parametrize("given", [{}, {"HAS": 7, "LACKS": "nonsense"}])
def test_none_heuristics_replace_given_values(cuda, package, launched, positional, given):
    names = ["x", "bias", "HAS", "LACKS"]
    record = kernel(
        names,
        variant("bias", names, ["*fp32:16", "*fp32:16", True, False]),
        variant("none", names, ["*fp32:16", None, False, True]),
        heuristics=("HAS", "LACKS"),
        HAS={"is_not_none": "bias"},
        LACKS={"is_none": "bias"},
        bias={"default": None},
    )
    k, x = package(record), cuda.array(64)
    for bias, wanted in [(x, "bias"), (None, "none"), (x, "bias")]:
        args, named = ((x, bias), {}) if positional else ((x,), {"bias": bias})
        assert launched(k, *args, **named, **given) == wanted
    assert launched(k, x, **given) is None  # Triton's heuristics see what the launch gives, and no defaults
    assert launched(k, x, x, True, **given) is None


@pytest.mark.parametrize("attribute", ["cooperative", "dependent"])
def test_variants_are_launched_with_their_attributes(cuda, package, launched, attribute):
    names = ["x", "BLOCK"]
    record = kernel(names, variant("with", names, ["*fp32:16", 1]), variant("without", names, ["*fp32:16", 2]))
    record["overloads"][0]["launches"]["sm_90"][attribute] = True
    k, x = package(record), cuda.array(64)
    for block, wanted in [(1, "with"), (2, "without"), (1, "with")]:
        assert launched(k, x, block) == wanted
        call = cuda.calls("cuLaunchKernel", "cuLaunchKernelEx")[-1]
        assert bool(call.get("cooperative") or call.get("attributes")) == (wanted == "with"), call


def test_a_grid_function_is_called_once_for_each_launch(cuda, package):
    k, x = package(TABLE), cuda.array(64)
    calls = []

    def launch(given, *args, **named):
        return k[lambda meta: calls.append(meta) or given](*args, **named)

    for given in [(3, 4), 5, (6,), [7, 8], (np.int64(2), 1), (1, 2, 3)] * 3:
        assert launch(given, x, 32, BLOCK=128, ACT=None, num_warps=4) is None
        assert calls.pop() == {"x": x, "n": 32, "BLOCK": 128, "ACT": None}
        wanted = [*given] if isinstance(given, tuple | list) else [given]
        assert cuda.launches()[-1]["grid"] == [*wanted, 1, 1][:3]
    count = len(cuda.launches())
    assert launch((0, 3), x, 32, 128, None) is None
    for given in ((1, 2, 3, 4), "3", (2**40,), None, lambda _meta: 1):
        with pytest.raises(LaunchError, match="grid"):
            launch(given, x, 32, 128, None)
    with pytest.raises(MissingVariantError) as caught:
        launch((3, 4), x, 32, 256, None)
    assert caught.value.grid == (3, 4)
    assert len(calls) == 7
    with pytest.raises(KeyError, match="nothing"):
        k[lambda meta: meta["nothing"]](x, 32, 128, None)
    assert len(cuda.launches()) == count
    cuda.set(fail="cuLaunchKernel=701")
    with pytest.raises(CudaError, match=r"with grid \(3, 4, 1\), block \(128, 1, 1\)"):
        launch((3, 4), x, 32, 128, None)
