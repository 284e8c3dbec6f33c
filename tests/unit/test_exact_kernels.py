"""Exact kernels: a launch selects the variant that Triton's JIT would compile for its arguments."""

from __future__ import annotations

import inspect
import itertools
import pickle
import random

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, CudaError, LaunchError, MissingVariantError
from aotcuda.runtime import driver
from aotcuda.runtime.launch.arguments.exact import ExactOverloads
from support import libraries
from support.libraries import Array, State
from support.triton_in_place import record

OPTIONS = (4, 1, 3, None, None, False, False)
ELEMENTS = ("<f4", "<f2", "bfloat16", "<i4", "|b1", "<i8")


def kernel(names, variants, **keys):
    """Return an exact kernel.

    Args:
        names: The names of its arguments.
        variants: By symbol, types and constants of the arguments, perhaps followed by `num_warps`.
        keys: More keys of arguments in the manifest, by name.
    """
    values = [dict(zip([*names, "num_warps"], each, strict=False)) for each in variants.values()]
    found = record("k", [{"name": name, **keys.get(name, {})} for name in names], *values)
    for overload, symbol in zip(found["overloads"], variants, strict=True):
        overload["symbol"] = symbol
    return found


@pytest.fixture
def package(cuda, path):
    return lambda record: cuda.package(record, by_grid=True, frontend="triton").k


@pytest.fixture
def launched(cuda, path):
    """Return a function that launches three times, and returns the selected variant, None for a miss."""

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
            continue  # both Triton and the packaged launch refuse it later
        refused = annotation[:1] in ("i", "u") and isinstance(value, float)
        assert found_in(table, value) == (None if refused else symbols.get(kind)), (value, kind)


@pytest.mark.parametrize("hints", HINTS)
def test_tensors_get_tritons_types(hints):
    specialise = triton_class(hints, "")
    specialise(1)  # Triton searches PyTorch once, and must not find the stand-in
    with libraries.installed():
        values = [
            libraries.make(Array("torch", State(dtype, shape, None, 4096 + 4 * shift)))
            for dtype, shift, shape in itertools.product(ELEMENTS, range(9), ((4,), (2, 3), (), (0,)))
        ]
        wanted = [*map(specialise, values)]
        table, symbols = table_of(wanted, hints, "")
        for value, kind in zip(values, wanted, strict=True):
            assert found_in(table, value) == symbols[kind]


def table_of(kinds, hints, annotation):
    """Return an exact kernel with a variant for each of Triton's classes, and the variants' symbols."""
    argument = ({"hints": hints} if hints else {}) | ({"annotation": annotation} if annotation else {})
    symbols = {kind: f"k{at}" for at, kind in enumerate(dict.fromkeys(kinds)) if kind is not None}
    variants = {symbol: [value] for (value, _), symbol in symbols.items()}
    return ExactOverloads(kernel(["n"], variants, n=argument), "k", driver.new_validity_flag()), symbols


def found_in(table, value):
    args = (value, *OPTIONS)
    candidates = table.argument_types(args)
    reads = [arg if read is None else read(arg, [], 0) for read, arg in zip(candidates.readers, args, strict=False)]
    overloads = candidates.specialization(reads).overloads
    return overloads[0].record["symbol"] if overloads else None


def triton_class(hints, annotation):
    """Return a function that returns Triton's class of an argument: a type, "i32:16", or a constant with its type.

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
    {
        "aligned": ["*fp32:16", "i32:16", 128, None],
        "plain": ["*fp32:16", "i32", 128, None],
        "one": ["*fp32:16", 1, 128, None],
        "large": ["*fp32:16", "i64:16", 128, None, 8],
        "float": ["*fp32:16", "i32", 1.0, None],
        "true": ["*fp32:16", "i32", True, "relu"],
        "int": ["*fp32:16", "i32", 1, "relu"],
        "zero": ["*fp32:16", "i32", 0.0, [1, "a", [2.0]]],
        "dtype": ["*fp32", "i32", 1, "tl.float16"],
        "other": ["*fp32", "i32", 1, "elsewhere"],
    },
)
TABLE["overloads"][-1]["launches"] = {"sm_80": {"threads": 32, "shared": 0}}


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
        (4, 32, 128, None, {}, None),  # Triton would compile a variant for unaligned addresses
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
def test_variant_accepts_only_its_own_arguments(cuda, package, launched, shift, n, block, act, named, wanted):
    k, x = package(TABLE), cuda.array(64)
    x.interface["data"] = (x.address + shift, False)
    assert launched(k, x, n, block, act, **named) == wanted
    assert launched(k, x, n, ACT=act, BLOCK=block, **named) == wanted
    found = k.find((x, n, block, act), named)
    assert (found and found["symbol"]) == wanted


def test_miss_names_nearest_variant(cuda, package):
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


def test_grid_function_is_called_once_for_each_launch(cuda, package):
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
    with pytest.raises(MissingVariantError):
        launch((3, 4), x, 32, 256, None)
    assert len(calls) == 7
    with pytest.raises(KeyError, match="nothing"):
        k[lambda meta: meta["nothing"]](x, 32, 128, None)
    assert len(cuda.launches()) == count
    cuda.set(fail="cuLaunchKernel=701")
    with pytest.raises(CudaError, match=r"with grid \(3, 4, 1\), block \(32, 1, 1\)"):
        launch((3, 4), x, 32, 128, None)
