"""The choice among Triton's variants: the exact one, else by hints, in modules in place and in generated modules."""

from __future__ import annotations

import itertools
import logging
import random
import warnings
from typing import Any

import numpy as np
import pytest

from aotcuda.errors import MissingVariantError
from aotcuda.manifest import constants
from aotcuda.runtime import driver
from aotcuda.runtime.launch.arguments.exact import ExactOverloads
from support import libraries
from support.libraries import Array, State
from support.triton_in_place import record

OPTIONS = (4, 1, 3, None, None, False, False)
TYPES = {
    "x": ("*fp32:16", "*fp32"),
    "y": ("*fp32:16", "*fp32", None),
    "n": ("i32:16", "i32", 1),
    "m": ("i32:16", "i32", 1),
}
ADDRESSES = (4096, 4100)
NUMBERS = (1, 7, 32)


def table_of(*variants: tuple[Any, ...], adopts: bool = False, names: str = "xynm", **keys: Any) -> ExactOverloads:
    """Return the overloads of a kernel with these variants: the types of its arguments."""
    arguments = [{"name": name, **keys.get(name, {})} for name in names]
    kernel = record("k", arguments, *(dict(zip(names, each, strict=True)) for each in variants))
    return ExactOverloads({**kernel, "adopts": adopts}, "k", driver.new_validity_flag())  # type: ignore[typeddict-item]


def chosen(table: ExactOverloads, *args: Any) -> int | None:
    """Return the number of the variant for a launch, or None."""
    full = (*args, *OPTIONS)
    candidates = table.candidates(full)
    if candidates is None or not candidates.readers:
        return None
    reads = [arg if read is None else read(arg, [], 0) for read, arg in zip(candidates.readers, full, strict=True)]
    for overload in candidates.specialization(reads).overloads:
        values: list[object] = []
        if all(fit is None or fit(item, values) for fit, item in zip(overload.fits, reads, strict=True)):
            return int(overload.record["symbol"].rpartition("_")[2])
    return None


def hints(kind: Any) -> int:
    return 1 if kind == 1 else 16 if isinstance(kind, str) and kind.endswith(":16") else 0


def expected(variants: list[tuple[Any, ...]], launch: tuple[Any, ...], *, in_place: bool) -> int | None:
    """Return the variant by the rule in words, written apart from the run time."""
    best: tuple[Any, ...] | None = None
    for number, variant in enumerate(variants):
        aligned = ones = multiples = 0
        fits = True
        for kind, value in zip(variant, launch, strict=True):
            is_pointer = isinstance(kind, str) and kind.startswith("*")
            if (kind is None) != (value is None) or kind is None:
                fits = fits and kind is value
                continue
            if hints(kind) == 16:
                fits = fits and value % 16 == 0
            if kind == 1:
                fits = fits and value == 1
            if in_place and is_pointer and value % 16 == 0 and not hints(kind):
                fits = False
            aligned += is_pointer and hints(kind) == 16
            ones += kind == 1
            multiples += not is_pointer and hints(kind) == 16
        order = (-aligned, -ones, -multiples, number)
        if fits and (best is None or order < best):
            best = order
    return None if best is None else best[-1]


@pytest.mark.parametrize("adopts", [False, True], ids=["in place", "generated"])
@pytest.mark.parametrize("seed", range(12))
def test_launch_takes_the_variant_with_most_hints_that_hold(adopts: bool, seed: int) -> None:
    generator = random.Random(seed)
    every = [*itertools.product(*TYPES.values())]
    variants = generator.sample(every, 9)
    table = table_of(*variants, adopts=adopts)
    with libraries.installed():
        arrays = {at: libraries.make(Array("torch", State("<f4", (4,), None, at))) for at in ADDRESSES}
        for launch in itertools.product(ADDRESSES, (*ADDRESSES, None), NUMBERS, NUMBERS):
            args = [arrays.get(value, value) if at < 2 else value for at, value in enumerate(launch)]
            assert chosen(table, *args) == expected(variants, launch, in_place=not adopts), (variants, launch)


@pytest.mark.parametrize("number", [5, 16, 1, 2**40, 2**63, -3, 200, 3.5, True])
def test_numbers_adopt_the_narrowest_type_that_has_their_value(number: Any) -> None:
    kinds = ["i8", "i32", "i64", "fp32", "fp64"]
    ranges = {"i8": 2**7, "i32": 2**31, "i64": 2**63}
    table = table_of(*((kind,) for kind in reversed(kinds)), adopts=True, names="n")
    fits = [kind for kind in kinds if kind not in ranges or (type(number) is not float and abs(number) < ranges[kind])]
    found = chosen_in_range(table, number)
    assert found == len(kinds) - 1 - kinds.index(fits[0])


def chosen_in_range(table: ExactOverloads, number: Any) -> int:
    selection = table.select((number, *OPTIONS), 0)
    assert selection is not None
    return int(selection[0].record["symbol"].rpartition("_")[2])


def test_general_variants_are_off_by_variable_in_place_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTCUDA_GENERAL", "0")
    for adopts, wanted in ((False, None), (True, 0)):
        table = table_of(("i32",), adopts=adopts, names="n")
        assert [chosen(table, n) for n in (7, 32, 1)] == [0, wanted, wanted]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((4096, 4096, 33, 16), "record a launch with n = 33"),
        ((4096, 4100, 32, 16), "record a launch with y not at a multiple of 16 bytes"),
        ((4096, 4096, 1, 7), "record a launch with n = 1 and m = 7"),
    ],
)
def test_miss_names_the_integer_or_alignment_to_record(args: tuple[int, ...], words: str) -> None:
    table = table_of(("*fp32:16", "*fp32:16", "i32:16", "i32:16"))
    with libraries.installed():
        arrays = [libraries.make(Array("torch", State("<f4", (4,), None, at))) for at in args[:2]]
        error = table.refusal((*arrays, *args[2:], *OPTIONS))
        assert isinstance(error, MissingVariantError)
        assert words in str(error)


VALUES = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1, 1.0, True, None, "a", (1, (2.0, None)), (1, (-0.0,))]


@pytest.mark.parametrize("adopts", [False, True], ids=["in place", "generated"])
def test_each_constant_has_its_own_variant(adopts: bool) -> None:
    class Mode(int):
        pass

    class Name(str):
        __slots__ = ()

    table = table_of(*((constants.encode(value),) for value in VALUES), adopts=adopts, names="A")
    for number, value in enumerate(VALUES):
        assert chosen(table, value) == number, value
    assert chosen(table, Mode(1)) == VALUES.index(1)
    assert chosen(table, Name("a")) == VALUES.index("a")
    assert [chosen(table, value) for value in (2, 2.0, False, "b", (1,), b"a")] == [None] * 6


@pytest.mark.parametrize("adopts", [False, True], ids=["in place", "generated"])
def test_served_counts_launches_of_both_paths(
    adopts: bool, cuda: Any, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    del path
    names = [{"name": "n"}]
    kernel = record("k", names, {"n": "i32:16"}, {"n": "i32:16", "num_warps": 8}, {"n": "i32", "num_warps": 8})
    kernel["overloads"][2]["general"] = True
    k = cuda.package({**kernel, "adopts": adopts}, by_grid=True, frontend="triton").k
    caplog.set_level(logging.INFO, "aotcuda")
    assert k.served == (0, 0, 0)
    for _ in range(5):
        k[1](32)
        k[1](48, num_warps=8)
        k[1](1, num_warps=8)
        with pytest.raises(MissingVariantError):
            k[1](33)
    assert k.served == (10, 5, 0)
    assert len(cuda.launches()) == 15
    assert [each.message for each in caplog.records] == [
        "mypkg.kernels.k was launched with integers that are not recorded; a variant with fewer hints serves them"
    ]


def test_host_arrays_are_copied_for_generated_modules(cuda: Any, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    del path
    monkeypatch.setenv("AOTCUDA_HOST_ARRAYS", "copy")
    kernel = record("k", [{"name": "x"}], {"x": "*fp32:16"})
    k = cuda.package({**kernel, "adopts": True}, by_grid=True, frontend="triton").k
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        k[1](np.zeros(4, "<f4"))
    assert len(cuda.launches()) == 1
