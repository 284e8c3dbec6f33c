"""The C header's text."""

from __future__ import annotations

import re

from aotcuda.builder.c_header import header
from aotcuda.builder.frontends.protocol import CompiledFunction


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


def test_each_function_stands_below_its_python_signature() -> None:
    text = header.render("pkg.k", [("f", function("int")), ("g", function("void"))])
    assert "/* as Python */\nAOTCUDA_DEVICE int f(void);\n" in text
    assert "/* as Python */\nAOTCUDA_DEVICE void g(void);\n" in text


def test_complex_types_are_declared_all_of_them_where_one_is_used() -> None:
    plain = header.render("pkg.k", [("f", function("int"))])
    assert "complex" not in plain
    used = header.render("pkg.k", [("f", function("aotcuda_complex64"))])
    assert "} aotcuda_complex64;" in used
    assert "} aotcuda_complex128;" in used
    assert "} aotcuda_complex64;" in header.render("pkg.k", [("f", function("int", ("aotcuda_complex128 *", "p")))])
