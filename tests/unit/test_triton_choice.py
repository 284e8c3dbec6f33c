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
    candidates = table.argument_types(full)
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


SPECIFICATIONS: dict[str, Any] = {
    "x": {},
    "y": {"hints": "no alignment"},
    "n": {},
    "m": {"hints": "none"},
    "k": {"hints": "no alignment"},
    "a": {"annotation": "i64"},
}
KINDS = {
    "x": ("*fp32:16", "*fp32", "*fp16:16", None),
    "y": ("*fp32", None),
    "n": ("i32:16", "i32", 1, "i64:16", "i64", "u64:16", "u64", "i1", "fp32", None),
    "m": ("i32", "i64"),
    "k": ("i32", 1, "i64"),
    "a": ("i64:16", "i64"),
}
INTEGERS = (1, 0, -1, -16, 7, 32, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**40, 2**63 - 1, 2**63, 2**63 + 1, 2**64)


def facts(name: str, value: Any) -> tuple[object, int] | None:
    """Return the type and the hint that Triton gives an argument, from its rules in words; None if it has none."""
    limits = SPECIFICATIONS[name]
    may_align, may_be_one = "hints" not in limits, limits.get("hints") != "none" and "annotation" not in limits
    if value is None:
        return None, 0
    if isinstance(value, tuple):  # the dtype and the address of an array
        return f"*{value[0]}", 16 * (may_align and value[1] % 16 == 0)
    if type(value) is bool:
        return ("i64" if "annotation" in limits else "i1"), 0
    if type(value) is float:
        return "fp32", 0
    if may_be_one and value == 1:
        return "i32", 1
    hint = 16 * (may_align and value % 16 == 0)
    if "annotation" in limits:
        return "i64", hint
    for kind, least, end in (("i32", -(2**31), 2**31), ("i64", -(2**63), 2**63), ("u64", 0, 2**64)):
        if least <= value < end:
            return kind, hint
    return None


def rule(variants: list[tuple[Any, ...]], names: str, launch: tuple[Any, ...]) -> int | None:
    """Return the variant for a launch in place by the rule in words."""
    found = []
    has = [facts(name, value) for name, value in zip(names, launch, strict=True)]
    for number, variant in enumerate(variants):
        counts = [0, 0, 0]
        for kind, fact in zip(variant, has, strict=True):
            base = "i32" if kind == 1 else kind and kind.removesuffix(":16")
            is_pointer = base is not None and base.startswith("*")
            drops = is_pointer and fact is not None and fact[1] == 16 and hints(kind) == 0
            if fact is None or fact[0] != base or hints(kind) not in (0, fact[1]) or drops:
                break
            counts[0 if is_pointer else 1 if kind == 1 else 2] += hints(kind) != 0
        else:
            found.append(([-count for count in counts], number))
    return min(found)[1] if found else None


@pytest.mark.parametrize("seed", range(12))
def test_any_argument_in_place_gets_the_variant_of_the_rule(seed: int) -> None:
    generator = random.Random(seed)
    names = "".join(generator.sample("xynmka", 3))
    variants = list({tuple(generator.choice(KINDS[name]) for name in names) for _ in range(40)})
    generator.shuffle(variants)
    table = table_of(*variants, names=names, **SPECIFICATIONS)
    with libraries.installed():
        pointers = [(dtype, at) for dtype in ("fp32", "fp16") for at in (4096, 4104, 4112)]
        made = {
            each: libraries.make(Array("torch", State({"fp32": "<f4", "fp16": "<f2"}[each[0]], (4,), None, each[1])))
            for each in pointers
        }
        for _ in range(400):
            launch = tuple(
                generator.choice(
                    (*pointers, None) if name in "xy" else (*INTEGERS[: 13 if name == "a" else None], True)
                )
                if name != "n"
                else generator.choice((*INTEGERS, True, False, None, 1.0, 16.0))
                for name in names
            )
            args = [made.get(value, value) if isinstance(value, tuple) else value for value in launch]
            assert chosen(table, *args) == rule(variants, names, launch), (names, variants, launch)


@pytest.mark.parametrize("seed", range(4))
def test_integers_of_generated_modules_get_the_narrowest_type_then_most_hints(seed: int) -> None:
    kinds = ["i32:16", "i32", 1, "i64:16", "i64"]
    random.Random(seed).shuffle(kinds)
    for count in range(1, 6):
        table = table_of(*((kind,) for kind in kinds[:count]), adopts=True, names="n")
        for value in INTEGERS[:12]:
            found = []
            for number, kind in enumerate(kinds[:count]):
                is_wide = str(kind).startswith("i64")
                fits = is_wide or -(2**31) <= value < 2**31
                hint = hints(kind)
                if fits and (not hint or (value == 1 if hint == 1 else value % 16 == 0)):
                    found.append((is_wide, hint != 1, hint != 16, number))
            if found:
                assert chosen_in_range(table, value) == min(found)[-1], (kinds[:count], value)
            else:
                assert table.select((value, *OPTIONS), 0) is None, (kinds[:count], value)


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
