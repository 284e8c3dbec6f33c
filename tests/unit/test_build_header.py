"""The C header's text."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Any

from aotcuda.builder.c_header import header, parameter_blocks
from aotcuda.builder.frontends.protocol import CompiledFunction

if TYPE_CHECKING:
    from pathlib import Path


def function(result: str, *parameters: tuple[str, str]) -> CompiledFunction:
    return CompiledFunction(ir=(), fastmath=False, signature="as Python", result=result, parameters=parameters)


def test_prototypes_are_spelled_as_people_spell_them() -> None:
    assert header.prototype("add", function("int", ("int", "x"), ("int", "y"))) == "int add(int x, int y);"
    assert header.prototype("go", function("void", ("float *", "p"))) == "void go(float *p);"
    assert header.prototype("next", function("float *", ("void *", "p"))) == "float *next(void *p);"
    assert header.prototype("answer", function("int")) == "int answer(void);"


def test_the_name_and_the_guard_come_from_the_module() -> None:
    text = header.render("my_pkg.sub.kernels", [("answer", function("int"))])
    assert header.file_name("my_pkg.sub.kernels") == "my_pkg_sub_kernels.h"
    assert (
        re.findall(r"^#(?:ifndef|define) (AOTCUDA_MY\w+)", text, re.MULTILINE) == ["AOTCUDA_MY_PKG_SUB_KERNELS_H"] * 2
    )


def test_complex_types_are_declared_all_of_them_where_one_is_used() -> None:
    plain = header.render("pkg.k", [("f", function("int"))])
    assert "complex" not in plain
    used = header.render("pkg.k", [("f", function("aotcuda_complex64"))])
    assert "} aotcuda_complex64;" in used
    assert "} aotcuda_complex128;" in used
    assert "} aotcuda_complex64;" in header.render("pkg.k", [("f", function("int", ("aotcuda_complex128 *", "p")))])


def test_blocks_of_kernels_with_compiled_in_constants_hold_what_is_passed(tmp_path: Path) -> None:
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
    done = subprocess.run(["cc", "-fsyntax-only", "-Werror", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
