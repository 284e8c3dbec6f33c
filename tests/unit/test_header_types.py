"""C types of the header: names, structs for records and tuples, parameter blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aotcuda.builder.c_header import c_types, parameter_blocks


def structs(**named: object) -> c_types.Structs:
    return c_types.Structs("f", "my.pkg", named)


@pytest.mark.parametrize(
    ("python", "c"),
    [
        ("x", "x"),
        ("double", "double_"),
        ("template", "template_"),
        ("größe", "gru00f6u00dfe"),
        ("__x", "x_"),
        ("_A", "A_"),
    ],
)
def test_names_that_c_has_other_plans_for_are_changed(python: str, c: str) -> None:
    assert c_types.identifier(python) == c


def test_a_record_with_the_layout_of_c_is_a_plain_struct() -> None:
    made = structs()
    dtype = np.dtype([("a", "i1"), ("b", "f8"), ("c", "c8", (2, 3))], align=True)
    assert made.record(dtype, "Record(...)") == "f_record0"
    assert made.definitions["f_record0"] == (
        "typedef struct {\n    signed char a;\n    double b;\n    aotcuda_complex64 c[2][3];\n} f_record0;"
    )


def test_any_other_layout_is_packed_with_its_gaps_filled() -> None:
    dtype = np.dtype({"names": ["b", "a"], "formats": ["f4", "u2"], "offsets": [6, 1], "itemsize": 12})
    made = structs(thing=dtype)
    assert made.record(dtype, "Record(...)") == "my_pkg_thing"
    text = made.definitions["my_pkg_thing"]
    assert text.startswith("#pragma pack(push, 1)\n")
    assert text.endswith("#pragma pack(pop)")
    assert [line.strip() for line in text.splitlines()[2:-2]] == [
        "unsigned char aotcuda_gap0[1];",
        "unsigned short a;",
        "unsigned char aotcuda_gap1[3];",
        "float b;",
        "unsigned char aotcuda_gap2[2];",
    ]


def test_records_that_are_spelled_alike_keep_their_own_structs() -> None:
    made = structs()
    one, other = (np.dtype({"names": ["x"], "formats": ["f4"], "offsets": [at]}) for at in (0, 4))
    names = [made.record(dtype, "Record(x: float32)") for dtype in (one, other, one)]
    assert names == ["f_record0", "f_record1", "f_record0"]
    assert "gap" not in made.definitions["f_record0"]


@pytest.mark.parametrize("kind", ["S4", "U2", ">f4", "O"])
def test_fields_that_c_has_no_type_for_are_refused(kind: str) -> None:
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
def test_numpy_makes_the_same_record_of_its_description(dtype: np.dtype[Any]) -> None:
    import json

    from aotcuda.integrations.interop import packaged

    described = json.loads(json.dumps(c_types.describe(dtype)))
    text, names = packaged.signature_names(
        {"signature": "void(Record(x: float32), bool, datetime64[ns])", "records": {"Record(x: float32)": described}},  # type: ignore[arg-type]
        lambda made: made,
    )
    assert text == "void(aotcuda_record0, boolean, NPDatetime('ns'))"
    assert names["aotcuda_record0"] == dtype
    assert names["aotcuda_record0"].isalignedstruct == dtype.isalignedstruct


def parameter(kind: str, **more: object) -> Any:
    return {"name": "x", "type": "T", "kind": kind, "offset": 0, **more}


def members(*parameters: Any) -> list[str]:
    overload = {"symbol": "k__0", "signature": "void()", "parameters": list(parameters), "parameter_bytes": 8}
    lines = list(parameter_blocks.render("my.pkg", [{"name": "k", "origin": "", "overloads": [overload]}]))  # type: ignore[list-item]
    assert lines[0] == '/* "k__0": k, void() */'
    assert lines[-2] == "enum { my_pkg_k__0_parameter_bytes = 8 };"
    return lines[2:-3]


def test_each_kind_of_parameter_has_its_member() -> None:
    assert members(parameter("scalar", format="e")) == ["    unsigned short x; /* T */"]
    assert members(parameter("complex", format="d")) == ["    aotcuda_complex128 x; /* T */"]
    assert members(parameter("datetime", dtype="<M8[ns]")) == ["    long long x; /* T */"]
    assert members(parameter("pointer")) == members(parameter("record", dtype="|V8")) == ["    void *x; /* T */"]


def test_an_array_is_a_struct_of_its_words() -> None:
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


def test_the_items_of_a_tuple_are_members_of_the_block() -> None:
    item = {**parameter("scalar", format="i"), "name": "t[0]"}
    inner = {**parameter("scalar", format="f"), "name": "t[1][0]"}
    nested = {**parameter("tuple", members=[inner]), "name": "t[1]"}
    lines = members({**parameter("tuple", members=[item, nested]), "name": "t"})
    assert lines == ["    int t_0; /* T */", "    float t_1_0; /* T */"]
