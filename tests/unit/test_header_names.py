"""The C header of modules in which names fall together, or are none in C: gcc and g++ take it."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aotcuda.builder.c_header import c_types, header
from aotcuda.builder.config import rules
from aotcuda.builder.frontends.protocol import CompiledFunction

if TYPE_CHECKING:
    from pathlib import Path

ODD = (
    "long", "long_", "long_2", "int", "template", "linux", "unix", "bool", "aotcuda", "self", "x", "_", "__x", "x_",
    "_A", "\u00e9", "\u00e8", "\u03bc_Q", "\u03c3_Q", "u00e9", "u03bc_Q", "reserved", "aotcuda_gap0", "aotcuda_gap1",
    "zero", "AOTCUDA_DEVICE", "AOTCUDA_COMPLEX", "AOTCUDA_PKG_K_H", "aotcuda_complex64", "t_0", "t_0_0", "f_record0",
    "two_result", "pkg_k_two_parameters", "pkg_k_x", "float4", "threadIdx", "main", "size_t",
)  # fmt: skip
NAMES = st.sampled_from(ODD) | st.text("a\u00e9_1", min_size=1, max_size=3).filter(str.isidentifier)
FIELDS = NAMES | st.text('a\u00e9_1*/ \n\\?"\u202e', min_size=1, max_size=4)
FUNCTIONS = (
    *("two", "two_result", "two_result_2", "two_result_result", "two_record0", "two_record1"),
    *("pkg_k_x", "pkg_k_long_", "pkg_k_two_parameters", "pkg_k_two_parameter_bytes"),
)
NUMBERS = st.sampled_from(["i1", "f4", "f8", "c8", "M8[ns]", ("f4", (2, 3))])


def records(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.lists(st.tuples(FIELDS, inner), min_size=1, max_size=4, unique_by=lambda field: field[0])
    return st.builds(lambda items, align: np.dtype(items, align=align), fields, st.booleans())


RECORDS = records(NUMBERS | records(NUMBERS))
TYPES = st.sampled_from(["int", "aotcuda_complex64 *", "void *"]) | RECORDS


@st.composite
def functions(draw: st.DrawFn, name: str) -> CompiledFunction:
    """Return a function as front ends declare one."""
    named = draw(st.dictionaries(NAMES, RECORDS, max_size=2))
    structs = c_types.Structs(name, "pkg.k", named)
    parameters = []
    for kind in draw(st.lists(TYPES | st.sampled_from([*named.values()] or ["int"]), max_size=4)):
        what = kind if isinstance(kind, str) else f"{structs.record(kind, f'Record({kind.names})')} *"
        parameters.append((what, draw(NAMES)))
    results = ["int", "void", structs.result(["int item0", "aotcuda_complex64 item1"])]
    return CompiledFunction(
        ir=(),
        fastmath=False,
        signature=f"void({', '.join(structs.records)})",
        result=draw(st.sampled_from(results)),
        parameters=tuple(parameters),
        structs=tuple(structs.definitions.items()),
    )


SCALAR = {"kind": "scalar", "format": "i", "type": "int32"}
ARRAY = {"kind": "array", "dtype": "<f4", "words": ["zero", "zero", "data"], "type": "Record(f*/x: float32)[::1]"}
TUPLE = {"kind": "tuple", "type": "UniTuple(int32, 2)"}


def parameter(name: str, kind: str) -> dict[str, Any]:
    if kind == "tuple":
        return TUPLE | {"name": name, "offset": 0, "members": [parameter(f"{name}[{at}]", "int32") for at in range(2)]}
    return {"array": ARRAY, "int32": SCALAR}[kind] | {"name": name, "offset": 0}


@st.composite
def kernels(draw: st.DrawFn, name: str) -> Any:
    found = draw(
        st.lists(
            st.tuples(NAMES, st.sampled_from(["int32", "array", "tuple"])), max_size=5, unique_by=lambda item: item[0]
        )
    )
    overload = {"symbol": name, "signature": "void(Record(f*/x: float32)[::1])", "parameter_bytes": 8}
    overload["parameters"] = [parameter(*item) for item in (*found, ("t", "tuple"))]
    if draw(st.booleans()):
        overload["launches"] = {}
    return {"name": name, "origin": "pkg._k:f", "overloads": [overload]}


@st.composite
def headers(draw: st.DrawFn) -> str:
    names = draw(st.lists(st.sampled_from(FUNCTIONS), max_size=6, unique=True))
    built = [(name, draw(functions(name))) for name in names]
    return header.render("pkg.k", built, [draw(kernels(name)) for name in ("two", "x")])


@pytest.mark.parametrize(("compiler", "language"), [("gcc", "c"), ("g++", "c++")])
def test_compilers_take_headers_of_any_names(compiler: str, language: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    path = tmp_path / "pkg_k.h"
    command = [compiler, "-x", language, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", path]

    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
    @given(headers())
    def check(text: str) -> None:
        path.write_text(text)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + text

    check()


@given(st.lists(FIELDS, max_size=8))
def test_each_name_has_one_of_its_own_and_those_that_c_takes_stay(names: list[str]) -> None:
    found = c_types.Scope().identifiers(names)
    assert len({*found}) == len(names)
    for name in found:
        assert rules.c_name(name) == name
    for name in {*names}:
        if c_types.identifier(name) == name:
            assert found[names.index(name)] == name
