"""Kernels that are launched by their grid alone, as Triton's are: variants, constants and grids, on both paths."""

from __future__ import annotations

import inspect
import struct

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, CallError, CudaError, LaunchError
from support.grids import PAIR, kernel, variant

pytestmark = pytest.mark.usefixtures("path")

FLOATS = np.zeros(64, "<f4")


def launch_of(cuda):
    """Return kernel, grid, block and shared memory of the last launch."""
    call = [call for call in cuda.calls() if call["call"].startswith("cuLaunchKernel")][-1]
    return call["kernel"], call["grid"], call["block"], call["shared"]


@pytest.fixture
def package(cuda):
    return lambda record=PAIR: cuda.package(record, by_grid=True, frontend="triton").k


def at(cuda, shift, like=FLOATS):
    array = cuda.array(like)
    array.interface["data"] = (array.address + shift, False)
    return array


@pytest.mark.parametrize(
    ("shift", "n", "block", "expected"),
    [
        (0, 32, 128, "small_even"),
        (0, 33, 128, "small"),
        (4, 32, 128, "small"),
        (0, -16, 128, "small_even"),
        (0, True, 128, "small"),
        (0, 32, 1024, "large"),
    ],
)
def test_the_most_specific_variant_is_launched(cuda, package, shift, n, block, expected):
    k, x, other = package(), at(cuda, shift), at(cuda, 0)
    for _ in range(3):
        k[(3, 2)](x, 1.5, n, BLOCK=block)
        assert launch_of(cuda) == (expected, [3, 2, 1], [block // 4, 1, 1], block * 4)
        assert cuda.parameters() == struct.pack("<Qfi16x", x.address, 1.5, n)
        k[(3, 2)](other, 2, 32, 128)  # by position; takes another variant
        assert launch_of(cuda)[0] == "small_even"


@pytest.mark.parametrize(
    "like",
    [
        FLOATS,
        FLOATS.reshape(8, 8),
        FLOATS.reshape(8, 8)[:, :4],
        np.zeros((), "<f4"),
    ],
)
def test_arrays_of_any_shape_and_strides_are_launched(cuda, package, general, like):
    k, x, line = package(), at(cuda, 0, like), at(cuda, 0)
    for _ in range(3):
        k[4](x, 1.0, 16, BLOCK=128)
        assert cuda.parameters()[:8] == struct.pack("<Q", x.address)
        k[4](line, 1.0, 16, BLOCK=128)
    assert len(general) <= 4


@pytest.mark.parametrize(("act", "expected"), [("relu", "relu"), (True, "flag"), (None, "large")])
def test_constants_may_be_strings_bools_and_none(cuda, package, act, expected):
    k, x = package(), at(cuda, 0)
    for _ in range(3):
        k[1](x, 1.0, 16, BLOCK=1024, ACT=act)
        assert launch_of(cuda)[0] == expected
    for wrong in ("gelu", 1, 1.0, False):
        with pytest.raises(ArgumentError, match="ACT, "):
            k[1](x, 1.0, 16, BLOCK=1024, ACT=wrong)


def test_a_variant_without_an_image_is_skipped(cuda, package):
    elsewhere = variant("other", 128, launches={"sm_80": {"threads": 32, "shared": 512}})
    k, x = package(kernel(elsewhere, variant("own", 128))), at(cuda, 0)
    for _ in range(2):
        k[1](x, 1.0, 16, BLOCK=128)
        assert launch_of(cuda)[0] == "own"
    alone = cuda.package(kernel(elsewhere), name="mypkg.alone", by_grid=True, frontend="triton").k
    with pytest.raises(ArgumentError, match=r"other of mypkg.alone, .* is not in the image for GPU 0 .* takes sm_90"):
        alone[1](x, 1.0, 16, BLOCK=128)


def test_bounds_choose_a_variant(cuda, package):
    k, x = package(kernel(variant("few", 128, least=1, most=100), variant("many", 128))), at(cuda, 0)
    for n, expected in [(50, "few"), (1, "few"), (100, "few"), (101, "many"), (0, "many"), (50, "few")] * 2:
        k[1](x, 1.0, n, 128)
        assert launch_of(cuda)[0] == expected


def test_grids_are_numbers_tuples_lists_or_functions(cuda, package):
    k, x = package(), at(cuda, 0)
    calls = []

    def grid(meta):
        calls.append(meta)
        return (-(-meta["n"] // meta["BLOCK"]),)

    for value, expected in [
        (5, [5, 1, 1]),
        ((5,), [5, 1, 1]),
        ((1, 2, 3), [1, 2, 3]),
        ([7, 2], [7, 2, 1]),
        (grid, [8, 1, 1]),
    ]:
        k[value](x, 1.0, 1024, BLOCK=128)
        assert launch_of(cuda)[1] == expected
    assert calls == [{"x": x, "factor": 1.0, "n": 1024, "BLOCK": 128, "ACT": None}]
    count = len(cuda.launches())
    k[(0,)](x, 1.0, 1024, BLOCK=128)
    assert len(cuda.launches()) == count
    for wrong in ((), (1, 2, 3, 4), "grid", -1, (2, -1)):
        with pytest.raises(LaunchError, match="grid is"):
            k[wrong](x, 1.0, 1024, BLOCK=128)


def test_a_grid_of_zero_launches_nothing(cuda, package):
    k, x = package(), at(cuda, 0)
    for launched in range(3):
        for zero in (0, np.int64(0), np.array(0), (0,), (4, 0), [np.int32(4), 0, 1]):
            k.configure(zero, stream=77)(x, 1.0, 1024, BLOCK=128)
            k[zero](x, 1.0, 1024, BLOCK=128)
            k[lambda _meta, zero=zero: zero](x, 1.0, 1024, BLOCK=128)
        assert len(cuda.launches()) == launched
        k[1](x, 1.0, 1024, BLOCK=128)


@pytest.mark.parametrize("count", [63, 64, 200])
def test_a_kernel_may_have_many_arguments(cuda, package, count):
    numbers = [
        {"name": f"a{index}", "type": "i32", "kind": "number", "offset": 4 * index, "format": "i"}
        for index in range(count)
    ]
    option = {"name": "num_warps", "type": "", "kind": "constant", "offset": 0, "value": 4, "optional": True}
    overload = variant("many", 128) | {"parameters": [*numbers, option], "parameter_bytes": 4 * count}
    arguments = [
        *({"name": f"a{index}"} for index in range(count)),
        {"name": "num_warps", "default": None, "keyword": True},
    ]
    k = package(kernel(overload, arguments=arguments))
    for grid in (4, lambda _meta: (4,)):
        for _ in range(3):
            k[grid](*range(count))
            k[grid](*range(count - 1), **{f"a{count - 1}": count - 1}, num_warps=4)
    assert {call["parameters"] for call in cuda.launches()} == {np.arange(count, dtype="<i4").tobytes().hex()}
    assert len(cuda.launches()) == 12


def test_a_grid_function_gets_constants_that_the_launch_omits(cuda, package):
    chosen = [variant("few", 128, least=1, most=100), variant("many", 1024)]
    for item in chosen:
        item["parameters"][3]["optional"] = True
    k, x = package(kernel(*chosen)), at(cuda, 0)
    for n, block in [(100, 128), (1000, 1024)]:
        k[lambda meta: (meta["BLOCK"],)](x, 1.0, n)
        assert launch_of(cuda)[1:3] == ([block, 1, 1], [block // 4, 1, 1])


@pytest.mark.parametrize(
    ("args", "named", "message"),
    [
        ((1.0, 16), {"BLOCK": 128}, "was not given n"),
        ((1.0, 16, 128, None, 1), {}, "takes 5 arguments, got 6"),
        ((1.0, 16), {"BLOCK": 128, "block": 3}, "has no argument block; it has x, factor, n, BLOCK, ACT, num_warps"),
        ((1.0, 16, 128), {"BLOCK": 128}, "was given BLOCK by position and by name"),
        ((1.0, 16), {"BLOCK": 256}, "argument 4, BLOCK, is 256 where BLOCK=128 is packaged"),
        ((1.0, 1.5), {"BLOCK": 128}, "argument 3, n, is float"),
        (("y", 16), {"BLOCK": 128}, "argument 2, factor, is str"),
    ],
)
def test_wrong_arguments_are_named(cuda, package, args, named, message):
    x = at(cuda, 0)
    positional = (x, *args) if "n" not in message.split() else (x, args[0])
    k = package()
    for _ in range(2):
        k[1](x, 1.0, 16, BLOCK=128)  # adds a specialization to the fast path
    with pytest.raises(ArgumentError) as caught:
        k[1](*positional, **named)
    assert len(cuda.launches()) == 2
    assert message in str(caught.value)
    assert "packaged: void(*fp32, fp32, i32; BLOCK=1024)" in str(caught.value)


def test_an_array_of_another_dtype_or_read_only_is_refused(cuda, package):
    k, x = package(), at(cuda, 0)
    k[1](x, 1.0, 16, BLOCK=128)
    with pytest.raises(ArgumentError, match=r"argument 1, x, is float64\[::1\] where \*fp32 is packaged"):
        k[1](at(cuda, 0, np.zeros(4)), 1.0, 16, BLOCK=128)
    x.interface["data"] = (x.address, True)
    with pytest.raises(ArgumentError, match="argument 1, x, is read-only"):
        k[1](x, 1.0, 16, BLOCK=128)


def test_more_shared_memory_than_the_default_is_requested(cuda, package):
    large = variant("large", 1024, launches={"sm_90": {"threads": 256, "shared": 100_000}})
    k, x = package(kernel(large)), at(cuda, 0)
    for _ in range(3):
        k[2](x, 1.0, 16, 1024)
        assert launch_of(cuda) == ("large", [2, 1, 1], [256, 1, 1], 100_000)
    assert [call for call in cuda.calls("cuKernelSetAttribute") if call["attribute"] == 8]


def test_clusters_multiply_the_grid(cuda, package):
    launch = {"threads": 128, "shared": 0, "cluster": [2, 1, 1]}
    k, x = package(kernel(variant("pairs", 128, launches={"sm_90": launch}))), at(cuda, 0)
    for _ in range(3):
        k[(4, 3)](x, 1.0, 16, 128)
        assert launch_of(cuda)[1] == [8, 3, 1]
        assert cuda.launches()[-1]["attributes"] == {"4": [2, 1, 1], "5": [1, 0, 0]}  # spread, as Triton launches


def test_configure_takes_a_stream_alone(cuda, package):
    k, x = package(), at(cuda, 0)
    k.configure(3, stream=0)(x, 1.0, 16, BLOCK=128)
    assert launch_of(cuda)[1] == [3, 1, 1]
    for wrong in ({"block": 3}, {"shared": 7}, {"cluster": 2}):
        with pytest.raises(LaunchError, match="it was compiled into the kernel; configure"):
            k.configure(3, **wrong)
    with pytest.raises(LaunchError, match=r"write k\[grid\]"):
        k.forall(10)
    with pytest.raises(CallError, match=r"^mypkg.kernels.k needs a configuration: k\[grid\]\(\.\.\.\)$"):
        k(x, 1.0, 16)


def test_a_grid_that_equals_integers_is_refused(cuda, package):
    k, x = package(), at(cuda, 0)
    for plain in (3, np.int64(3), (3, 2), (np.int32(3), np.int64(2))):
        k[plain](x, 1.0, 16, BLOCK=128)
    for wrong in (3.0, (3.0, 2), (3, 2.0), np.float32(3), (3, (2,))):
        for grid in (wrong, lambda _meta, wrong=wrong: wrong):
            with pytest.raises(LaunchError, match="grid is"):
                k[grid](x, 1.0, 16, BLOCK=128)
    assert [launch["grid"][:2] for launch in cuda.launches()] == [[3, 1], [3, 1], [3, 2], [3, 2]]


def test_help_shows_names_and_defaults(package):
    k = package()
    assert k.__doc__.splitlines()[0] == "k[grid](x, factor, n, BLOCK, ACT, num_warps=...)"
    shown = "(x: '*fp32', factor: 'fp32', n: 'i32', BLOCK: '128 | 1024', ACT: \"None | 'relu' | True\" = None, *, "
    assert str(inspect.signature(k)) == f"{shown}num_warps: '1 | 8' = None)"


def test_driver_errors_name_grid_and_block_at_every_launch(cuda, package):
    clusters = {"sm_90": {"threads": 64, "shared": 128, "cluster": [2, 1, 1]}}
    k, x = package(kernel(variant("plain", 128), variant("clustered", 1024, launches=clusters))), at(cuda, 0)
    for block, shown in [
        (128, r"with grid \(2, 3, 1\), block \(32, 1, 1\)"),
        (1024, r"clusters of \(2, 1, 1\) blocks"),
    ]:
        run = k.configure((2, 3), stream=55)
        for _ in range(3):
            cuda.set(fail="cuLaunchKernel=701")
            with pytest.raises(CudaError, match=shown):
                run(x, 1.0, 16, BLOCK=block)
            cuda.set(fail="")
            run(x, 1.0, 16, BLOCK=block)


def test_named_arguments_come_in_any_order(cuda, package, general):
    k, x = package(), at(cuda, 0)
    for _ in range(3):
        k[1](x, 2.0, 16, BLOCK=128)
    named = {str(b"BLOCK", "ascii"): 128, str(b"n", "ascii"): 16, "factor": 2.0}  # not interned
    for arguments in (named, dict(reversed(named.items()))):
        k[1](x, **arguments)
        assert launch_of(cuda)[0] == "small_even"
        assert cuda.parameters() == struct.pack("<Qfi16x", x.address, 2.0, 16)
    assert len(general) == 2
