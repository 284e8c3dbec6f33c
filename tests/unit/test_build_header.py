"""Check the C header: prototypes, structs, parameter blocks, and names that C accepts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotcuda import manifest
from aotcuda.builder.config import rules
from aotcuda.builder.emit.c_header import c_types, header, parameter_blocks
from aotcuda.builder.frontends.protocol import CompiledFunction
from aotcuda.integrations.interop import packaged

if TYPE_CHECKING:
    from pathlib import Path


def function(result: str, *parameters: tuple[str, str]) -> CompiledFunction:
    return CompiledFunction(ir=b"", signature="as Python", result=result, parameters=parameters)


def test_prototypes_have_the_usual_spelling() -> None:
    assert header.prototype("add", function("int", ("int", "x"), ("int", "y"))) == "int add(int x, int y);"
    assert header.prototype("go", function("void", ("float *", "p"))) == "void go(float *p);"
    assert header.prototype("next", function("float *", ("void *", "p"))) == "float *next(void *p);"
    assert header.prototype("answer", function("int")) == "int answer(void);"


def test_file_name_and_guard_follow_the_module_name() -> None:
    digest = manifest.digest(b"my_pkg.sub.kernels")[:8].upper()
    text = header.render("my_pkg.sub.kernels", [("answer", function("int"))])
    assert header.file_name("my_pkg.sub.kernels") == "my_pkg_sub_kernels.h"
    assert re.findall(r"^#(?:ifndef|define) (AOTCUDA_MY\w+)", text, re.MULTILINE) == [
        f"AOTCUDA_MY_PKG_SUB_KERNELS_{digest}_H"
    ] * 2 + ["AOTCUDA_MY_PKG_SUB_KERNELS_H"]


def test_complex_types_are_declared_if_one_is_used() -> None:
    plain = header.render("pkg.k", [("f", function("int"))])
    assert "complex" not in plain
    used = header.render("pkg.k", [("f", function("aotcuda_complex64"))])
    assert "} aotcuda_complex64;" in used
    assert "} aotcuda_complex128;" in used


def test_constants_are_not_in_the_parameter_block(tmp_path: Path) -> None:
    parameters = [
        {"name": "x", "type": "*fp32:16", "kind": "elements", "offset": 0, "dtype": "<f4"},
        {"name": "BLOCK", "type": "BLOCK=128", "kind": "constant", "offset": 0, "value": 128},
        {"name": "mask", "type": "*ki8", "kind": "elements", "offset": 8, "dtype": "|i1", "readonly": True},
        {"name": "flag", "type": "i1", "kind": "number", "offset": 16, "format": "?"},
        {"name": "n", "type": "i32", "kind": "number", "offset": 20, "format": "i"},
        {"name": "num_warps", "type": "num_warps=4", "kind": "constant", "offset": 0, "value": 4},
    ]
    overload: Any = {"symbol": "k_0", "signature": "void()", "parameters": parameters, "parameter_bytes": 40}
    overload["launches"] = {"sm_90a": {"threads": 128, "shared": 64}}
    lines = [*parameter_blocks.render("m", [{"name": "k", "origin": "m:k", "overloads": [overload]}])]
    assert "/* sm_90a: blocks of 128 threads, 64 bytes of shared memory */" in lines
    offsets = {item["name"]: item["offset"] for item in parameters if item["kind"] != "constant"} | {"reserved": 24}
    checks = [f'_Static_assert(offsetof(m_k_0_parameters, {name}) == {at}, "");' for name, at in offsets.items()]
    size = '_Static_assert(sizeof(m_k_0_parameters) == m_k_0_parameter_bytes, "");'
    source = tmp_path / "blocks.c"
    source.write_text("\n".join(["#include <stdbool.h>", "#include <stddef.h>", *lines, *checks, size]) + "\n")
    process = subprocess.run(["cc", "-fsyntax-only", "-Werror", source], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def structs(**dtypes: object) -> c_types.Structs:
    return c_types.Structs("f", "my.pkg", dtypes)


@pytest.mark.parametrize(
    ("python", "c"),
    [
        ("x", "x"),
        ("template", "template_"),
        ("größe", "gru00f6u00dfe"),
        ("__x", "x_"),
        ("_A", "A_"),
    ],
)
def test_names_that_c_reserves_are_changed(python: str, c: str) -> None:
    assert c_types.identifier(python) == c


def test_record_with_the_layout_of_c_is_a_struct() -> None:
    collection = structs()
    dtype = np.dtype([("a", "i1"), ("b", "f8"), ("c", "c8", (2, 3))], align=True)
    assert collection.record(dtype, "Record(...)") == "f_record0"
    assert collection.definitions["f_record0"] == (
        "typedef struct {\n    signed char a;\n    double b;\n    aotcuda_complex64 c[2][3];\n} f_record0;"
    )


def test_record_of_another_layout_is_packed_with_gaps() -> None:
    dtype = np.dtype({"names": ["b", "a"], "formats": ["f4", "u2"], "offsets": [6, 1], "itemsize": 12})
    collection = structs(thing=dtype)
    assert collection.record(dtype, "Record(...)") == "my_pkg_thing"
    text = collection.definitions["my_pkg_thing"]
    assert text.startswith("#pragma pack(push, 1)\n")
    assert text.endswith("#pragma pack(pop)")
    assert [line.strip() for line in text.splitlines()[2:-2]] == [
        "unsigned char aotcuda_gap0[1];",
        "unsigned short a;",
        "unsigned char aotcuda_gap1[3];",
        "float b;",
        "unsigned char aotcuda_gap2[2];",
    ]


def test_records_of_one_name_have_different_structs() -> None:
    collection = structs()
    dtype_at_0, dtype_at_4 = (np.dtype({"names": ["x"], "formats": ["f4"], "offsets": [at]}) for at in (0, 4))
    names = [collection.record(dtype, "Record(x: float32)") for dtype in (dtype_at_0, dtype_at_4, dtype_at_0)]
    assert names == ["f_record0", "f_record1", "f_record0"]
    assert "gap" not in collection.definitions["f_record0"]


@pytest.mark.parametrize("kind", ["S4", "U2", ">f4", "O"])
def test_fields_without_a_type_in_c_are_refused(kind: str) -> None:
    with pytest.raises(NotImplementedError):
        structs().record(np.dtype([("x", kind)]), "Record(...)")


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype([("x", "f4"), ("y", [("a", "i1"), ("b", "f8", (3,))])]),
        np.dtype([("x", "?"), ("y", "f8")], align=True),
        np.dtype({"names": ["b"], "formats": ["f4"], "offsets": [8], "itemsize": 16}),
    ],
)
def test_described_record_equals_the_original(dtype: np.dtype[Any]) -> None:
    description = json.loads(json.dumps(c_types.describe(dtype)))
    text, names = packaged.signature_names(
        {"signature": "void(Record(x: float32), bool, datetime64[ns])", "records": {"Record(x: float32)": description}},  # type: ignore[arg-type]
        lambda made: made,
    )
    assert text == "void(aotcuda_record0, boolean, NPDatetime('ns'))"
    assert names["aotcuda_record0"] == dtype
    assert names["aotcuda_record0"].isalignedstruct == dtype.isalignedstruct


def parameter(kind: str, **keys: object) -> Any:
    return {"name": "x", "type": "T", "kind": kind, "offset": 0, **keys}


def members(*parameters: Any) -> list[str]:
    overload = {"symbol": "k__0", "signature": "void()", "parameters": list(parameters), "parameter_bytes": 8}
    lines = list(parameter_blocks.render("my.pkg", [{"name": "k", "origin": "", "overloads": [overload]}]))  # type: ignore[list-item]
    assert lines[0] == '/* "k__0": k, void() */'
    assert lines[-2] == "enum { my_pkg_k__0_parameter_bytes = 8 };"
    return lines[2:-3]


def test_each_kind_of_parameter_has_a_member() -> None:
    assert members(parameter("scalar", format="e")) == ["    unsigned short x; /* T */"]
    assert members(parameter("complex", format="d")) == ["    aotcuda_complex128 x; /* T */"]
    assert members(parameter("datetime", dtype="<M8[ns]")) == ["    long long x; /* T */"]
    assert members(parameter("pointer")) == members(parameter("record", dtype="|V8")) == ["    void *x; /* T */"]


def test_array_is_a_struct_of_its_words() -> None:
    words = ["zero", "zero", "items", "data", "shape0", "stride0"]
    lines = members(parameter("array", dtype="<f4", words=words))
    assert [line.strip() for line in lines] == [
        "struct {",
        "long long zero0;",
        "long long zero1;",
        "long long items;",
        "float *data;",
        "long long shape0;",
        "long long stride0;",
        "} x; /* T */",
    ]
    memref = members(parameter("array", dtype="|V8{a:<f8@0}", words=["data", "data", "zero", "shape0", "step0"]))
    assert [line.strip() for line in memref[1:4]] == ["void *data0;", "void *data1;", "long long zero;"]


def test_items_of_a_tuple_are_members_of_the_block() -> None:
    item = {**parameter("scalar", format="i"), "name": "t[0]"}
    nested_item = {**parameter("scalar", format="f"), "name": "t[1][0]"}
    nested = {**parameter("tuple", members=[nested_item]), "name": "t[1]"}
    lines = members({**parameter("tuple", members=[item, nested]), "name": "t"})
    assert lines == ["    int t_0; /* T */", "    float t_1_0; /* T */"]


ODD = (
    "long", "long_", "template", "linux", "bool", "aotcuda", "x", "_", "__x", "x_", "_A", "\u00e9", "\u03bc_Q", "u00e9",
    "reserved", "aotcuda_gap0", "zero", "AOTCUDA_DEVICE", "AOTCUDA_PKG_K_H", "t_0", "t_0_0", "f_record0", "two_result",
    "pkg_k_two_parameters", "float4", "threadIdx", "main", "size_t",
)  # fmt: skip
FIELDS = (*ODD, "*/", "a b", "a\nb", "a\\", '"', "\u202e")


def odd_function(name: str) -> CompiledFunction:
    """Return a function whose parameters, records and fields have odd names."""
    record = np.dtype([(field, "i1" if field == "x" else ("f4", (2, 3))) for field in FIELDS], align=True)
    structs = c_types.Structs(name, "pkg.k", {"\u00e9": record})
    pointer = f"{structs.record(record, 'Record(...)')} *"
    return CompiledFunction(
        ir=b"",
        signature="void(Record(f*/x: float32))",
        result=structs.result(["int item0", "aotcuda_complex64 item1"]),
        parameters=tuple((pointer if number % 2 else "int", odd) for number, odd in enumerate(ODD)),
        structs=tuple(structs.definitions.items()),
    )


def odd_kernel(name: str) -> Any:
    array = parameter("array", dtype="<f4", words=["zero", "zero", "data"])
    nested = parameter("tuple", members=[{**parameter("scalar", format="i"), "name": f"t[{at}]"} for at in range(2)])
    overload = {"symbol": name, "signature": "void(Record(f*/x: float32)[::1])", "parameter_bytes": 8}
    overload["parameters"] = [{**array, "name": odd} for odd in ODD] + [{**nested, "name": "t"}]
    return {"name": name, "origin": "pkg._k:f", "overloads": [overload]}


@pytest.mark.parametrize(("compiler", "language"), [("gcc", "c"), ("g++", "c++")])
def test_compilers_accept_headers_with_any_names(compiler: str, language: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    path = tmp_path / "pkg_k.h"
    functions = ("two", "two_result", "two_result_2", "two_record0", "pkg_k_x", "pkg_k_two_parameters")
    functions_of_module = [(name, odd_function(name)) for name in functions]
    path.write_text(header.render("pkg.k", functions_of_module, [odd_kernel("two"), odd_kernel("x")]))
    command = [compiler, "-x", language, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", path]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


@given(st.lists(st.sampled_from(FIELDS) | st.text("a\u00e9_1*/ ", min_size=1, max_size=4), max_size=8))
def test_names_become_different_valid_names_of_c(names: list[str]) -> None:
    identifiers = c_types.Scope().identifiers(names)
    assert len({*identifiers}) == len(names)
    for name in identifiers:
        assert rules.c_name(name) == name
    for name in {*names}:
        if c_types.identifier(name) == name:
            assert identifiers[names.index(name)] == name
