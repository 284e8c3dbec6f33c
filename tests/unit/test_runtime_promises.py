"""Kernels that were compiled for properties of arrays: divisors of address, extents and strides, and no overlap."""

from __future__ import annotations

import numpy as np
import pytest

from aotcuda.errors import ArgumentError
from support.manifests import kernel


def array(ndim, layout="C", *, divisor=1, extents=1, strides=1):
    """Return an array parameter of a cuTile kernel: address, extents and strides are separate parameters."""
    sizes = []
    for word, promised in (("shape", extents), ("step", strides)):
        for axis in range(ndim):
            one = {
                "name": f"x.{'shape' if word == 'shape' else 'strides'}[{axis}]",
                "type": "int32",
                "word": f"{word}{axis}",
                "format": "i",
                "offset": 8 + 4 * len(sizes),
            }
            is_unit = word == "step" and axis == {"C": ndim - 1, "F": 0}.get(layout)
            if promised > 1 and not is_unit:
                one["divisor"] = promised
            if word == "step" and layout == "A":
                one["least"] = 0
            sizes.append(one)
    found = {"name": "x", "type": "tile", "kind": "array", "dtype": "<f4", "ndim": ndim, "layout": layout, "offset": 0}
    return found | {"words": ["data"], "sizes": sizes} | ({"divisor": divisor} if divisor > 1 else {})


@pytest.fixture
def package(cuda):
    """Return a function that packages a kernel with an overload for each parameter."""

    def make(*parameters):
        found = kernel("k", *["void()"] * len(parameters))
        for at, (overload, parameter) in enumerate(zip(found["overloads"], parameters, strict=True)):
            last = parameter["sizes"][-1]
            overload |= {
                "parameters": [parameter],
                "parameter_bytes": last["offset"] + 4,
                "symbol": f"k_{at}",
                "one_by_one": True,
            }
        cuda.set(sizes=",".join(["8", *["4"] * len(parameters[0]["sizes"])]))
        return cuda.package(found).k

    return make


def array_at(cuda, shape, *, shift=0, strides=None):
    """Return an array whose address is `shift` bytes behind a multiple of 16; strides are in bytes."""
    memory = cuda.array(np.zeros(4096, "<f4"))
    assert memory.address % 16 == 0
    memory.interface |= {"shape": shape, "strides": strides, "data": (memory.address + shift, False)}
    return memory


def launched_kernel(cuda):
    return [call for call in cuda.calls() if call["call"].startswith("cuLaunchKernel")][-1]["kernel"]


EVEN, ALIGNED, ANY = array(2, divisor=16, extents=16, strides=4), array(2, divisor=16, strides=4), array(2)

VARIANTS = [
    ((32, 16), 0, None, "k_0"),
    ((32, 20), 0, None, "k_1"),
    ((20, 16), 0, None, "k_1"),
    ((32, 16), 4, None, "k_2"),
    ((32, 18), 0, None, "k_2"),
    ((1, 18), 0, None, "k_2"),
]


@pytest.mark.usefixtures("both_paths")
@pytest.mark.parametrize(("shape", "shift", "strides", "expected"), VARIANTS, ids=str)
def test_first_variant_whose_promises_hold_is_launched(cuda, package, shape, shift, strides, expected):
    k = package(EVEN, ALIGNED, ANY)
    x = array_at(cuda, shape, shift=shift, strides=strides)
    for _ in range(2):
        k[1, 1](x)
        assert launched_kernel(cuda) == expected
        numbers = np.array([*shape, shape[1], 1], "<i4")
        assert cuda.parameters() == np.uint64(x.interface["data"][0]).tobytes() + numbers.tobytes()


@pytest.mark.usefixtures("both_paths")
def test_strides_are_counted_in_elements(cuda, package):
    k = package(array(2, "A"))
    for strides in ((64, 8), (4, 400), (0, 4)):
        x = array_at(cuda, (3, 2), strides=strides)
        k[1, 1](x)
        assert cuda.parameters()[8:] == np.array([3, 2, strides[0] // 4, strides[1] // 4], "<i4").tobytes()


REFUSED = [
    (ALIGNED, (32, 16), 4, None, r"has the address 0x\w+4, which 16 does not divide as tile promises"),
    (ALIGNED, (32, 18), 0, None, r"has strides\[0\] = 18, which 4 does not divide as tile promises"),
    (array(2, "A"), (3, 2), 64, (-16, 4), r"has strides\[0\] = -4, which is negative, and must not be, as tile"),
    (array(2, "A"), (3, 2), 0, (16, 6), r"has strides \(16, 6\) in bytes, and this kernel counts them in elements"),
    (ANY, (3, 2), 0, (16, 4), r"is not contiguous in C order"),
    (array(1, "A"), (3,), 0, (1 << 40,), r"has shape \(3,\), which exceeds the range of the kernel's "),
]


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(
    ("parameter", "shape", "shift", "strides", "message"), REFUSED, ids=[one[-1] for one in REFUSED]
)
def test_arrays_that_break_promise_are_refused(cuda, package, monkeypatch, parameter, shape, shift, strides, message):
    monkeypatch.setenv("AOTCUDA_FALLBACK", "error")
    k = package(parameter)
    right = (16,) * len(shape)
    for _ in range(3):  # the first launch takes the general path
        with pytest.raises(ArgumentError, match=message):
            k[1, 1](array_at(cuda, shape, shift=shift, strides=strides))
        k[1, 1](array_at(cuda, right))
    assert len(cuda.launches()) == 3


def two_arrays(cuda, layout="C"):
    """Return a kernel with an overload for two arrays that do not overlap, and an overload for other arrays."""
    first = {**array(1, layout), "name": "x"}
    second = {**array(1, layout), "name": "out", "offset": 16}
    second["sizes"] = [{**size, "offset": size["offset"] + 16} for size in second["sizes"]]
    constant = {"name": "c", "type": "c=5", "kind": "constant", "offset": 0, "value": 5}
    found = kernel("k", "void()", "void()")
    for at, overload in enumerate(found["overloads"]):
        overload |= {
            "parameters": [first, constant, second],
            "parameter_bytes": 32,
            "symbol": f"k_{at}",
            "one_by_one": True,
            **({"apart": [[0, 2]]} if at == 0 else {}),
        }
    cuda.set(sizes="8,4,4,8,4,4")
    return found


APART = [(0, 8, 32, 8), (32, 8, 0, 8), (0, 1, 4, 1)]
OVERLAPPING = [(0, 8, 0, 8), (0, 8, 28, 8), (28, 8, 0, 8), (0, 100, 16, 1)]


@pytest.mark.usefixtures("both_paths")
@pytest.mark.parametrize(
    ("places", "expected"), [*((one, "k_0") for one in APART), *((one, "k_1") for one in OVERLAPPING)], ids=str
)
def test_overlapping_arrays_select_their_own_variant(cuda, places, expected):
    k = cuda.package(two_arrays(cuda)).k
    memory = cuda.array(np.zeros(4096, "<f4"))
    start, count, other, others = places
    x, out = view_of(cuda, memory, start, count), view_of(cuda, memory, other, others)
    for _ in range(2):
        k[1, 1](x, 5, out)
        assert launched_kernel(cuda) == expected


@pytest.mark.usefixtures("path")
def test_overlapping_arrays_are_refused_by_name(cuda, monkeypatch):
    monkeypatch.setenv("AOTCUDA_FALLBACK", "error")
    found = two_arrays(cuda)
    del found["overloads"][1]
    k = cuda.package(found).k
    memory = cuda.array(np.zeros(4096, "<f4"))
    for _ in range(3):
        k[1, 1](view_of(cuda, memory, 0, 8), 5, view_of(cuda, memory, 64, 8))
        with pytest.raises(ArgumentError, match=r"argument 1, x, and argument 3, out, overlap, and the kernel was"):
            k[1, 1](view_of(cuda, memory, 0, 8), 5, view_of(cuda, memory, 4, 8))
    assert len(cuda.launches()) == 3


def view_of(cuda, memory, start, count, stride=4):
    """Return an array of `count` elements, `start` bytes into another one."""
    found = cuda.array(0)
    strides = None if stride == 4 else (stride,)
    found.interface |= {"shape": (count,), "strides": strides, "data": (memory.address + start, False)}
    return found
