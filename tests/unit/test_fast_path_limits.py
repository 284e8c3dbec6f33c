"""Test every limit of the fast path at the limit and one beyond: a launch beyond it takes the general path.

`LIMITS` has the limits of launch.h. Each makes a kernel that is beyond the limit for a size of one more.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aotcuda.runtime.launch import fast
from support import libraries
from support.launch_paths import SOURCES, record_launches
from support.libraries import Array, State
from support.manifests import overload
from support.triton_in_place import record

HEADER = Path(SOURCES[0]).with_name("launch.h")
NOT_OF_A_KERNEL = {"DEPTH", "SPECIALIZATIONS", "SPECIALIZATIONS_OF_VARIANTS", "TYPES", "STREAMS"}
"""Limits of other things than a kernel and its arguments; tests below have them."""
NOT_ADDED = {"LAYOUT", "CODER", "COUNT", "CHANGED"}
"""The reasons in launch.h not to add a specialization."""


def limit(name: str) -> int:
    """Return a limit of the C sources, `MOST_{name}`."""
    text = "".join(path.read_text() for path in (HEADER, *SOURCES))
    (number,) = set(re.findall(rf"\bMOST_{name} = (\d+|1 << \d+)", text))
    return int(eval(number))  # digits and <<


def array(address: int = 1 << 41, shape: tuple[int, ...] = (4,), library: str = "cupy") -> Any:
    return libraries.make(Array(library, State(shape=shape, address=address)))


def number(at: int, offset: int) -> dict[str, Any]:
    return {"name": f"n{at}", "type": "int8", "kind": "scalar", "format": "b", "offset": offset}


def buffer(at: int, offset: int) -> dict[str, Any]:
    return {"name": f"x{at}", "type": "float *", "kind": "buffer", "dtype": "<f4", "offset": offset}


def kernel(parameters: list[dict[str, Any]], size: int, **keys: Any) -> dict[str, Any]:
    return {
        "name": "k",
        "origin": "m:k",
        "overloads": [overload("void()", "k_0", parameters=parameters, parameter_bytes=size, **keys)],
    }


def arguments(size: int) -> tuple[dict[str, Any], list[Any]]:
    return kernel([number(at, at) for at in range(size)], size), [at % 100 for at in range(size)]


def arrays(size: int) -> tuple[dict[str, Any], list[Any]]:
    return kernel([buffer(at, 8 * at) for at in range(size)], 8 * size), [array() for _ in range(size)]


def dimensions(size: int) -> tuple[dict[str, Any], list[Any]]:
    return kernel([buffer(0, 0)], 8), [array(shape=(2,) * size)]


def dimensions_of_array(size: int) -> tuple[dict[str, Any], list[Any]]:
    words = ["data", *[f"shape{axis}" for axis in range(size)]]
    parameter = {**buffer(0, 0), "kind": "array", "ndim": size, "layout": "C", "words": words}
    return kernel([parameter], 8 * len(words)), [array(shape=(2,) * size)]


def bytes_of_block(size: int) -> tuple[dict[str, Any], list[Any]]:
    return kernel([number(0, size - 1)], size), [7]


def words(size: int) -> tuple[dict[str, Any], list[Any]]:
    parameter = {**buffer(0, 0), "kind": "array", "ndim": 1, "layout": "C", "words": ["data"] * size}
    return kernel([parameter], 8 * size), [array()]


def sizes(size: int) -> tuple[dict[str, Any], list[Any]]:
    each = [{"name": "items", "type": "i", "word": "items", "format": "q", "offset": 8 + 8 * at} for at in range(size)]
    return kernel([{**buffer(0, 0), "sizes": each}], 8 + 8 * size), [array()]


def starts(size: int) -> tuple[dict[str, Any], list[Any]]:
    reserved = [8 * at for at in range(1, size)]
    return kernel([number(0, 0)], 8 * size, one_by_one=True, reserved=reserved), [7]


def pairs(size: int) -> tuple[dict[str, Any], list[Any]]:
    count = 12
    apart = [*itertools.islice(map(list, itertools.combinations(range(count), 2)), size)]
    parameters = [buffer(at, 8 * at) for at in range(count)]
    args = [array((1 << 41) + (at << 12)) for at in range(count)]
    return kernel(parameters, 8 * count, apart=apart), args


def values_of_tests(size: int) -> tuple[dict[str, Any], list[Any]]:
    # Overloads with other divisors of the number; all but the last do not fit.
    divisors = [3, 5, 7, 11, 13][:size]
    overloads = [
        overload(
            "void()",
            f"k_{at}",
            parameters=[{**number(0, 0), "kind": "number", "format": "i", "divisor": divisor}],
            parameter_bytes=4,
        )
        for at, divisor in enumerate(divisors)
    ]
    return {"name": "k", "origin": "m:k", "overloads": overloads}, [divisors[-1]]


LIMITS = {
    "ARGUMENTS": [arguments],
    "ARRAYS": [arrays],
    "DIMENSIONS": [dimensions, dimensions_of_array],
    "BYTES": [bytes_of_block],
    "WORDS": [words],
    "SIZES": [sizes],
    "STARTS": [starts],
    "PAIRS": [pairs],
    "TESTS": [values_of_tests],
}
WAYS = {
    "[grid, block]": lambda k: lambda: k[2, 32],
    "stored": lambda k: itertools.repeat(k[2, 32]).__next__,
    "stream": lambda k: lambda: k[2, 32, 77],
    "configure": lambda k: lambda: k.configure(2, 32, stream=77),
    "priority": lambda k: lambda: k.configure(2, 32, priority=0),
    "forall": lambda k: lambda: k.forall(64, 32),
    "stored forall": lambda k: itertools.repeat(k.forall(64)).__next__,
}
"""The ways to launch: functions from a kernel to a function that returns the launcher of a call."""

CASES = [
    pytest.param(name, make, beyond, id=f"{make.__name__}-{'beyond' if beyond else 'at'}")
    for name, makes in LIMITS.items()
    for make in makes
    for beyond in (0, 1)
]


@pytest.fixture(autouse=True)
def _libraries():
    with libraries.installed():
        yield


def test_table_has_all_limits_of_the_sources():
    text = "".join(path.read_text() for path in (HEADER, *SOURCES) if path.name != "xla.c")
    assert {*re.findall(r"\bMOST_(\w+) = ", text)} == {*LIMITS} | NOT_OF_A_KERNEL


@pytest.mark.parametrize(("name", "make", "beyond"), CASES)
def test_launches_beyond_a_limit_take_the_general_path(cuda, path, monkeypatch, name, make, beyond):
    described, args = make(limit(name) + beyond)
    k = cuda.package(described).k
    if make is starts:
        monkeypatch.setenv("FAKE_CUDA_SIZES", ",".join(["1", *["8"] * (limit(name) + beyond - 1)]))
    submitted = _count_submits(monkeypatch)
    declines = fast.in_use().declines if path == "extension" else dict
    met: set[str] = set()
    for way, launcher_of in WAYS.items():
        launcher = launcher_of(k)
        earlier, before = len(cuda.launches()), declines()
        submitted.clear()
        for _ in range(6):
            launcher()(*args)
        launches = cuda.launches()[earlier:]
        assert len(launches) == 6, way
        assert len({(launch["kernel"], launch["parameters"], str(launch["grid"])) for launch in launches}) == 1, way
        if path == "extension" and not (way == "stored forall" and make is values_of_tests):  # its overloads' blocks
            assert (len(submitted) == 6) == bool(beyond), way
            met |= {name for name, number in declines().items() if number > before[name]}
    assert (not met.isdisjoint(NOT_ADDED)) == (bool(beyond) and path == "extension")


GRIDS = {
    "int": lambda k: lambda: k[2],
    "stored": lambda k: itertools.repeat(k[2]).__next__,
    "function": lambda k: lambda: k[lambda _arguments: 2],
    "stored function": lambda k: itertools.repeat(k[lambda arguments: (len(arguments),)]).__next__,
    "stream": lambda k: lambda: k.configure(2, stream=77),
    "function and stream": lambda k: lambda: k.configure(lambda _arguments: 2, stream=77),
}


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("count", [*range(62, 67), 200])
def test_kernels_of_a_grid_take_any_number_of_arguments(cuda, path, monkeypatch, count, by_name):
    names = [f"n{at}" for at in range(count)]
    k = cuda.package(
        record("k", [{"name": name} for name in names], dict.fromkeys(names, "i32")), by_grid=True, frontend="triton"
    ).k
    args, named = [5] * count, {}
    if by_name:
        args, named = args[:10], dict.fromkeys(names[10:], 5)
    submitted = _count_submits(monkeypatch)
    for way, launcher_of in GRIDS.items():
        launcher = launcher_of(k)
        before = len(cuda.launches())
        submitted.clear()
        for _ in range(6):
            launcher()(*args, **named)
        assert len(cuda.launches()) == before + 6, way
        assert len({launch["parameters"] for launch in cuda.launches()}) == 1, way
        if path == "extension" and "function and" not in way:
            assert (len(submitted) == 6) == (len(k.record()["arguments"]) > limit("ARGUMENTS")), way


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("beyond", [0, 1])
def test_data_on_many_streams(cuda, beyond, monkeypatch, path):
    count = limit("STREAMS") + beyond
    described, _ = arrays(count)
    k = cuda.package(described).k
    streams = [cuda.stream() for _ in range(count)] if hasattr(cuda, "stream") else [*range(100, 100 + count)]
    args = [cuda.array(np.zeros(4, "<f4"), stream=stream) for stream in streams]
    submitted = _count_submits(monkeypatch)
    for _ in range(6):
        k[2, 32](*args)
    assert len(cuda.launches()) == 6
    if path == "extension":
        assert (len(submitted) == 6) == bool(beyond)


@pytest.mark.usefixtures("path")
def test_launches_inside_readings_of_arguments_go_deep(cuda):
    k = cuda.package(kernel([buffer(0, 0)], 8)).k
    left = [0]

    class Nested:
        @property
        def __cuda_array_interface__(self):
            if left[0]:
                left[0] -= 1
                k[1, 32](Nested())
            return {"version": 3, "data": (1 << 41, False), "shape": (4,), "typestr": "<f4", "strides": None}

    for depth in (0, 1, limit("DEPTH"), limit("DEPTH") + 1, 60):
        for _ in range(3):
            left[0], before = depth, len(cuda.launches())
            k[1, 32](Nested())
            assert len(cuda.launches()) - before >= depth + 1


@pytest.mark.usefixtures("path")
def test_more_argument_types_than_the_limit(cuda):
    k = cuda.package(kernel([number(0, 0)], 1)).k
    kinds = [type(f"Int{at}", (int,), {}) for at in range(limit("TYPES") + 2)]
    for kind, _ in itertools.product(kinds, range(3)):
        k[1, 32](kind(7))
    assert len(cuda.launches()) == 3 * len(kinds)


def _count_submits(monkeypatch) -> list[object]:
    """Return a list that gets the launches of the general path."""
    assert fast._module  # the fixture `path` has chosen
    submitted: list[object] = []
    record_launches(monkeypatch, lambda: submitted.append(None))
    return submitted
